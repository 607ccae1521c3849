"""Files of proxy models and folders of encoders: read again, refused where damaged."""

import json
import pickle
from hashlib import sha256

import numpy as np
import pytest

from orsched.common.errors import InputError
from orsched.prediction import OnlinePredictor, load_predictor, save_predictor
from orsched.prediction.proxies import network as encoders
from orsched.prediction.proxies.network import (
    Phase,
    config_of,
    folder_values,
    folder_weights,
    new_network,
)
from tests.refusals import refusal

KINDS = ("bert_ssjf", "distilbert_mico", "bert_ranker")


@pytest.fixture(scope="module")
def files(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxies")
    for kind, model in models.items():
        save_predictor(model, folder / f"{kind}.json", seed=2)
    return folder


@pytest.fixture
def copy(files, tmp_path):
    """Return the document of SSJF's model, in a folder of its own with the weights."""
    for name in ("bert_ssjf.json", "bert_ssjf.safetensors"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    return tmp_path / "bert_ssjf.json"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_loaded_predicts_and_is_saved_the_same(kind, files, models, rows, tmp_path):
    found = load_predictor(files / f"{kind}.json")
    one, two = (p.predict(rows.prompts[:100]) for p in (models[kind], found))
    assert np.array_equal(one.values, two.values)
    save_predictor(found, tmp_path / f"{kind}.json", seed=2)
    for suffix in (".json", ".safetensors"):
        name = kind + suffix
        assert (tmp_path / name).read_bytes() == (files / name).read_bytes()


def refused(path):
    error = refusal(load_predictor, path)
    assert error.file
    assert error.remedy
    return error


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_truncated_file_is_refused(share, suffix, copy):
    path = copy.with_suffix(suffix)
    raw = path.read_bytes()
    path.write_bytes(raw[: min(int(share * len(raw)), len(raw) - 3)])
    assert refused(copy).file == str(path)


def test_missing_foreign_and_pickled_weights_are_refused_and_nothing_is_run(copy, files, tmp_path):
    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "run"), "w"))

    path = copy.with_suffix(".safetensors")
    path.write_bytes((files / "bert_ranker.safetensors").read_bytes())
    assert refused(copy).file == str(path)
    with_hash(copy, path, pickle.dumps(Hostile()))
    assert refused(copy).file == str(path)
    assert not (tmp_path / "run").exists()
    path.unlink()
    assert refused(copy).file == str(path)


def with_hash(path, weights, raw):
    """Put other weights beside a document, with their right hash."""
    weights.write_bytes(raw)
    document = json.loads(path.read_text()) | {"weights_sha256": sha256(raw).hexdigest()}
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(("name", "change"), [
    ("head.0.bias", lambda t: t * float("nan")), ("head.0.bias", lambda t: t[:3].clone()),
    ("head.0.bias", lambda t: t.double()), ("head.9.bias", lambda t: t),
])  # fmt: skip
def test_weights_of_another_shape_or_value_are_refused(name, change, copy):
    from safetensors.torch import load_file, save

    path = copy.with_suffix(".safetensors")
    tensors = load_file(path)
    tensors[name] = change(tensors.pop("head.0.bias"))
    with_hash(copy, path, save(tensors))
    assert refused(copy).field == "weights"


HOSTILE = [
    ({"model": "gpt"}, "kind"), ({"model": 3}, "model"), ({"head": "ranks"}, "head"),
    ({"head": "classes"}, "middles"), ({"config": []}, "config"),
    ({"config": {"hidden_size": 8192, "num_attention_heads": 8}}, "weights"),
    ({"config": {"vocab_size": 1 << 40}}, "vocab_size"),
    ({"config": {"hidden_act": "os.system"}}, "hidden_act"),
    ({"config": {"layer_norm_eps": "1"}}, "layer_norm_eps"),
    ({"most_input": 65}, "most_input"), ({"most_input": 0}, "most_input"),
    ({"edges": [5, 4]}, "edges"), ({"edges": [5.0]}, "weights"), ({"middles": []}, "middles"),
    ({"middles": [-1.0]}, "middles"), ({"scale_longest": "x"}, "scale_longest"),
    ({"line": [0, 0]}, "line"), ({"line": [0]}, "line"), ({"shift": [0.0]}, "shift"),
    ({"tokenizer": 1}, "tokenizer"), ({"tokenizer": "{}"}, "tokenizer"),
    ({"weights_sha256": None}, None), ({"version": 2}, "version"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "field"), HOSTILE)
def test_a_field_that_is_wrong_is_named(values, field, copy):
    document = json.loads(copy.read_text())
    if values == {"edges": [5.0]}:
        document |= {"head": "classes", "middles": []}
    copy.write_text(json.dumps({**document, **values}))
    assert refused(copy).field == field


def test_a_field_that_is_missing_is_named(copy):
    document = json.loads(copy.read_text())
    for name in document.keys() - {"seed"}:
        copy.write_text(json.dumps({k: v for k, v in document.items() if k != name}))
        assert refused(copy).field == name


def test_a_proxy_stands_in_no_other_predictor(models, tmp_path):
    with pytest.raises(InputError, match="file of their own"):
        save_predictor(OnlinePredictor(models["bert_ssjf"]), tmp_path / "m.json")
    assert list(tmp_path.iterdir()) == []


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
