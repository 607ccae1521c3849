"""Model folders that are damaged, absurd or carry code: refused in time, and nothing is run."""

import io
import json
import sys
import time

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from orsched.cli.commands import run
from orsched.common.errors import InputError, OrschedError
from orsched.runner.capacity import size_of
from orsched.runner.worker.language_model import PRESETS, load_model, preset_config

CODE = "import pathlib\npathlib.Path({mark!r}).touch()\n"


def made(folder, preset="tiny", **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(preset_config(preset))
    model.save_pretrained(folder, **options)
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return made(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound, tmp_path):
    """A copy of a small model to damage."""
    for path in sound.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    size_of.cache_clear()
    return tmp_path


def changed(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(folder, capsys):
    """Return what the command line says, with the code of bad input and without much work."""
    begin = time.process_time()
    code = run(["run", "two-by-two", "--model", str(folder), "--threads", "1"])
    assert time.process_time() - begin < 30
    err = capsys.readouterr().err
    assert code == 2, err
    with pytest.raises(OrschedError):
        load_model(str(folder), "cpu", "float32")
    return err.splitlines()[-1]


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.startswith("tiny")])
def test_a_sound_folder_holds_the_model_that_was_saved(tmp_path, preset):
    made(tmp_path, preset, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    found = load_model(str(tmp_path), "cpu", "float32").state_dict()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert found.keys() == theirs.state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in theirs.state_dict().items())
    assert size_of(str(tmp_path), "float32").weight_bytes == sum(
        parameter.nbytes for parameter in theirs.parameters()
    )


NUMBERS = [None, 0, -1, "8", 1.5, True, [8], {}, 10**9, 10**400]


@pytest.mark.parametrize(
    "field", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"]
)
@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: f"{value!r:.9}")
def test_absurd_numbers_are_refused_at_once(folder, capsys, field, value):
    changed(folder, **{field: value})
    err = refused(folder, capsys)
    assert str(folder) in err
    assert "field '" in err


@pytest.mark.parametrize(("field", "value"), [
    ("num_key_value_heads", 3), ("head_dim", 7), ("hidden_act", "no_such_function"),
    ("hidden_act", 3), ("rms_norm_eps", "small"), ("rms_norm_eps", -1),
    ("rope_parameters", {"rope_type": "llama3", "rope_theta": 1e4}),
    ("rope_parameters", {"rope_type": "linear", "rope_theta": 1e4, "factor": 0}),
    ("rope_parameters", 3), ("rope_theta", -5), ("max_position_embeddings", 10**12),
    ("pad_token_id", 10**6), ("layer_types", ["full_attention"] * 10**5),
    ("quantization_config", {"quant_method": "gptq"}), ("model_type", "t5"),
    ("model_type", ["llama"]), ("num_hidden_layers", 3), ("num_hidden_layers", 100_000),
    ("vocab_size", 600),
])  # fmt: skip
def test_other_fields_that_cannot_be_are_refused(folder, capsys, field, value):
    changed(folder, **{field: value})
    assert str(folder) in refused(folder, capsys)


def test_a_model_larger_than_the_memory_is_refused_before_it_is_built(folder, tmp_path, capsys):
    changed(folder, hidden_size=1 << 18, intermediate_size=1 << 20, num_hidden_layers=200)
    assert "the weights alone do not fit" in refused(folder, capsys)
    neo = made(tmp_path / "neo", "tiny-gpt-neo")
    changed(neo, attention_types=[[["global", "local"], 10**9]])
    assert "attention_types" in refused(neo, capsys)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "\x00", "[" * 10**5, " " * (1 << 21)])
def test_a_configuration_that_is_none_is_refused(folder, capsys, text):
    (folder / "config.json").write_text(text)
    assert "config.json" in refused(folder, capsys)


@pytest.mark.parametrize("kept", [0, 7, 100, 5000, -1, None])
def test_weights_that_are_cut_short_or_say_an_absurd_length_are_refused(folder, capsys, kept):
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    path.write_bytes(b"\xff" * 8 + raw[8:] if kept is None else raw[:kept])
    assert "model.safetensors" in refused(folder, capsys)


@pytest.mark.parametrize(
    "index",
    ["{}", '{"weight_map": {}}', '{"weight_map": {"a": "../model.safetensors"}}',
     '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "absent.safetensors"}}'],
)  # fmt: skip
def test_an_index_names_files_of_the_folder_only(folder, capsys, index):
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(index)
    assert "model.safetensors.index.json" in refused(folder, capsys)


def test_weights_that_are_missing_are_not_made_up(folder, capsys):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["elsewhere"] = tensors.pop("model.norm.weight")
    save_file(tensors, path, metadata={"format": "pt"})
    assert "model.norm.weight" in refused(folder, capsys)


def test_code_in_a_folder_is_never_run_and_nothing_is_asked(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 100))
    mark = folder / "RAN"
    for name in ("configuration_own", "modeling_own"):
        (folder / f"{name}.py").write_text(CODE.format(mark=str(mark)))
    auto = {"AutoConfig": "configuration_own.C", "AutoModelForCausalLM": "modeling_own.M"}
    changed(folder, auto_map=auto, attn_implementation="somebody/kernel")
    load_model(str(folder), "cpu", "float32")  # of a known type: its own code is not needed
    changed(folder, model_type="own")
    assert "code of its own is never run" in refused(folder, capsys)
    assert sys.stdin.tell() == 0
    assert not mark.exists()


def test_pickled_weights_are_refused_unless_asked_for(folder, capsys):
    class Opens:
        def __reduce__(self):
            return open, (str(folder / "RAN"), "w")

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert "--allow-pickle" in refused(folder, capsys)
    model = load_model(str(folder), "cpu", "float32", allow_pickle=True)
    assert torch.equal(model.model.norm.weight, tensors["model.norm.weight"])
    command = ["run", "two-by-two", "--model", str(folder), "--threads", "1", "--allow-pickle"]
    assert run(command) == 0
    capsys.readouterr()
    torch.save({"x": Opens()}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="loads no model"):
        load_model(str(folder), "cpu", "float32", allow_pickle=True)
    assert not (folder / "RAN").exists()
