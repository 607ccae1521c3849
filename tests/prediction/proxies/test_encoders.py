"""Encoders from a model's folder: weights of older names too, and hostile folders refused."""

import json
import pickle

import numpy as np
import pytest

from orsched.prediction.proxies import encoders
from orsched.prediction.proxies.encoders import config_of, folder_values, folder_weights
from orsched.prediction.proxies.network import Phase, new_network
from tests.refusals import refusal


def old_name(name):
    gamma = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    return gamma.replace("LayerNorm.bias", "LayerNorm.beta")


@pytest.fixture(params=["bert", "distilbert"])
def folder(request, tiny, tmp_path):
    """Return a folder of a model with a head, as published ones are, and its kind and encoder."""
    import torch
    from safetensors.torch import save_file

    encoder = encoders.new_encoder(config_of(request.param, tiny[request.param]))
    tensors = {f"{request.param}.{old_name(n)}": t for n, t in encoder.state_dict().items()}
    save_file({**tensors, "cls.bias": torch.ones(3)}, tmp_path / "model.safetensors")
    values = {**tiny[request.param], "model_type": request.param, "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    return tmp_path, request.param, encoder


def test_a_folders_weights_are_the_encoders(folder):
    path, kind, encoder = folder
    found = folder_weights(path, config_of(kind, folder_values(path, kind)))
    wanted = encoder.state_dict()
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[n].numpy(), wanted[n].numpy()) for n in wanted)


def test_training_starts_from_the_folder(folder, trained):
    path, kind, encoder = folder
    name = "bert_ssjf" if kind == "bert" else "distilbert_mico"
    made = trained(name, model=path, phases=(Phase(1, 1e-2, frozen=True),))
    wanted, found = encoder.state_dict(), made.network["encoder"].state_dict()
    assert all(np.array_equal(found[n].numpy(), wanted[n].numpy()) for n in wanted)


def changed(path, **values):
    document = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**document, **values}))


def test_code_of_a_folder_is_not_run(folder, trained, tmp_path):
    path, kind, _ = folder
    (path / "modeling.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    changed(path, auto_map={"AutoModel": "modeling.Model"})
    trained("bert_ssjf" if kind == "bert" else "distilbert_mico", model=path,
            phases=(Phase(1, 1e-2),))  # fmt: skip
    changed(path, model_type="own")
    error = refusal(folder_values, path, kind)
    assert (error.field, "never run" in str(error)) == ("model_type", True)
    assert not (tmp_path / "run").exists()


def test_wrong_folders_are_refused_with_their_file(folder):
    path, kind, _ = folder
    values = folder_values(path, kind)
    config = config_of(kind, {**values, "vocab_size": 300})
    error = refusal(folder_weights, path, config)
    assert (error.file, "not those of config" in str(error)) == (str(path), True)
    raw = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(raw[: len(raw) // 2])
    error = refusal(folder_weights, path, config_of(kind, values))
    assert error.file == str(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    error = refusal(folder_weights, path, config_of(kind, values))
    assert ("pickled" in str(error), "allow" in error.remedy) == (True, False)
    for text in ("", "[]", "{", '{"model_type": "bert", "model_type": "bert"}'):
        (path / "config.json").write_text(text)
        assert refusal(folder_values, path, kind).file == str(path / "config.json")
    (path / "config.json").unlink()
    assert "no such file" in str(refusal(folder_values, path, kind))


@pytest.mark.parametrize(("kind", "outputs", "head", "millions"), [
    # Published: 110 M with the pooler (0.6 M), which SSJF's head replaces, and 66 M.
    ("bert", 1, "regression_l1", 109.0), ("distilbert", 10, "buckets", 67.0),
])  # fmt: skip
def test_the_full_configurations_have_the_published_sizes(kind, outputs, head, millions):
    import torch

    with torch.device("meta"):
        network = new_network(config_of(kind, encoders.FULL[kind]), outputs, head)
    assert abs(sum(p.numel() for p in network.parameters()) / 1e6 - millions) < 0.1
