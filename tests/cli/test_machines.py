"""The catalogue on the command line, ``orsched cost``, and the machine beside every result."""

from __future__ import annotations

import json

import pytest

from orsched.calibration import machine
from orsched.calibration.catalogue import cost_words
from orsched.cli.commands import run
from orsched.files import load_fitted_cost, load_instance

PANG = (
    "machine: affine, LLaMA-65B on Ascend 910 (Pang et al.), 20 clients, "
    "1,024 blocks of 128 tokens (whole)"
)


def test_the_catalogue_is_listed(capsys):
    assert run(["info", "machines"]) == 0
    text = capsys.readouterr().out
    for word in ("pang-llama65b-ascend", "h100", "mi300x", "qwen2.5-32b", "not measured"):
        assert word in text
    assert run(["info", "machines", "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["h100-llama3-8b-sheet"]["kind"] == "data sheet"
    assert rows["h100-llama3-8b-sheet"]["cost"]["model"] == "roofline"
    assert run(["info", "machines", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("name,kind,title,model,source\n")
    assert run(["info"]) == 0
    assert "pang-llama65b-ascend" in capsys.readouterr().out
    assert run(["info", "--format", "json"]) == 0
    assert "h200-llama3-8b-sheet" in json.loads(capsys.readouterr().out)["machines"]


def test_one_machine_is_described(capsys):
    assert run(["info", "h100-8b-sheet"]) == 0
    text = capsys.readouterr().out
    assert "data sheet" in text
    assert "2,048 prompt tokens, ms" in text
    assert run(["info", "pang-llama65b-ascend", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"]["model"] == "affine"
    assert run(["info", "h100-9b-sheet"]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_a_data_sheet_is_written_and_used(tmp_path, capsys):
    path, requests = tmp_path / "cost.json", tmp_path / "requests.csv"
    requests.write_text("prompt_tokens,output_tokens\n10,20\n30,40\n")
    assert run(["cost", "--gpu", "h100", "--model", "8b", "-o", str(path)]) == 0
    assert "kv_tokens" in capsys.readouterr().out
    cost, report = load_fitted_cost(path)
    assert cost == machine("h100-llama3-8b-sheet").cost
    assert report is not None
    assert report["machine"]["kind"] == "data sheet"
    assert report["machine"]["kv_tokens"] == machine("h100-llama3-8b-sheet").facts["kv_tokens"]
    rows = []
    for name in (str(path), "h100-8b-sheet"):
        command = ["simulate", str(requests), "--clients", "2", "--cost", name, "--format", "json"]
        assert run(command) == 0
        captured = capsys.readouterr()
        rows.append(json.loads(captured.out)["makespan_s"])
        assert (
            "machine: roofline, Llama 3.1 8B on NVIDIA H100 SXM 80 GB (data sheet), 2 clients, "
            "26,674 blocks of 16 tokens (paged)"
        ) in captured.err
        assert "the KV cache of the machine, 26,674 blocks of 16 tokens (--memory" in captured.err
    assert rows[0] == rows[1]
    target = tmp_path / "instance.json"
    assert (
        run(["convert", str(requests), str(target), "--clients", "2", "--cost", "l4-1b-sheet"]) == 0
    )
    assert run(["info", str(target)]) == 0
    assert "Llama 3.2 1B on NVIDIA L4" in capsys.readouterr().out


def test_a_local_configuration_is_read(tmp_path, capsys):
    config = {
        "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 1000,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = ["cost", "--gpu", "rtx4090", "--config", str(tmp_path), "--efficiency", "0.5"]
    assert run([*command, "--memory-efficiency", "0.8", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["efficiency"], found["memory_efficiency"], found["gpus"]) == (0.5, 0.8, 1)
    assert found["cost"]["fixed_fs"] == 4 * 30 * 10**9


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--gpu", "h10", "--model", "8b"], "'h10' is not in the catalogue (did you mean h100"),
        (["--gpu", "h100", "--model", "9b"], "field '--model'"),
        (["--gpu", "h100"], "a model or its configuration"),
        (["--gpu", "l4", "--model", "70b", "--tensor-parallel", "2"], "--tensor-parallel"),
        (["--gpu", "l4", "--model", "8b", "--efficiency", "2"], "field '--efficiency'"),
        (["--gpu", "l4", "--model", "8b", "--length", "0"], "--length"),
        (["--gpu", "l4", "--model", "8b", "-o", "cost.txt"], "cost.txt"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(arguments, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["cost", *arguments]) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", ["solve", "simulate", "compare", "info"])
def test_every_result_says_whose_times_it_has(command, capsys):
    options = ["--method", "fcfs"] if command == "solve" else []
    options = ["--methods", "fcfs"] if command == "compare" else options
    assert run([command, "pang-100x20", *options]) == 0
    captured = capsys.readouterr()
    if command == "info":
        assert PANG.removeprefix("machine: ") in " ".join(captured.out.split())
    else:
        assert captured.err.splitlines().count(PANG) == 1
    assert run([command, "pang-100x20", *options, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    row = rows[0] if command == "compare" else rows
    assert row["machine"] == PANG.removeprefix("machine: ")


def test_seeds_say_it_once(capsys):
    command = ["compare", "gsm8k", "--seeds", "0:2", "--methods", "fcfs", "--set", "requests=20"]
    assert run(command) == 0
    assert capsys.readouterr().err.count("machine: affine, LLaMA-65B") == 1


def test_an_unknown_machine_is_one_line_with_those_like_it(tmp_path, capsys):
    requests = tmp_path / "requests.csv"
    requests.write_text("prompt_tokens,output_tokens\n10,20\n")
    assert run(["compare", str(requests), "--clients", "2", "--cost", "h100-8b-seet"]) == 2
    error = capsys.readouterr().err
    assert (
        "field '--cost': there is no machine 'h100-8b-seet' (did you mean h100-llama3-8b" in error
    )


def test_generators_take_a_machine(tmp_path, capsys):
    path = tmp_path / "case.json"
    command = ["generate", "gsm8k", "--set", "requests=20", "--cost", "h100-llama3-8b"]
    assert run([*command, "-o", str(path)]) == 0
    said = "machine: linear, Llama 3.1 8B on NVIDIA H100 SXM 80 GB (measured), 200 clients"
    assert said in capsys.readouterr().err
    assert load_instance(path).worker.cost == machine("h100-llama3-8b").cost
    assert run([*command[:-1], "h100-llama-8b"]) == 2
    assert "field '--cost'" in capsys.readouterr().err
    assert run([*command[:-1], "none.json"]) == 2
    assert "none.json" in capsys.readouterr().err


def test_a_worker_file_names_a_machine(tmp_path, capsys):
    """And gets its memory, unless the file says another one, or none."""
    command = ["simulate", "pang-100x20", "--workers", str(tmp_path / "w.json")]
    for said, words in (
        ({}, "4 clients, 26,674 blocks of 16 tokens (paged)"),
        ({"memory": {"blocks": 90, "block_tokens": 128}}, "90 blocks of 128 tokens (whole)"),
        ({"memory": None}, "4 clients"),
    ):
        worker = {"clients": 4, "cost": "h100-llama3-8b", **said}
        (tmp_path / "w.json").write_text(json.dumps(worker))
        assert run([*command, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)["machine"]
        assert "H100" in found
        assert found.endswith(words)


def test_a_data_sheet_makes_a_worker(tmp_path, capsys):
    path = tmp_path / "w.json"
    command = ["cost", "--gpu", "h100", "--model", "8b", "--worker-file", str(path)]
    assert run(command) == 0
    assert "worker written" in capsys.readouterr().err
    worker = json.loads(path.read_text())
    assert worker["clients"] == 208  # 426,788 tokens in slots of 2,048
    assert worker["memory"]["blocks"] == 26_674
    assert run([*command, "--slots", "20"]) == 0
    assert json.loads(path.read_text())["clients"] == 20
    capsys.readouterr()
    assert run(["simulate", "pang-100x20", "--workers", str(path), "--format", "json"]) == 0
    assert "H100" in json.loads(capsys.readouterr().out)["machine"]
    assert run(["cost", "--gpu", "h100", "--model", "8b", "--slots", "3"]) == 2
    assert "--worker-file" in capsys.readouterr().err
    assert run([*command, "-o", str(path)]) == 2


def test_other_numbers_of_gpus_are_named_as_well():
    for name in ("a100x2-llama3-8b-sheet", "a100x3-llama3-8b-sheet", "h100x16-llama3-70b-sheet"):
        found = machine(name)
        assert cost_words(found.cost, 4) == found.words
        assert " x NVIDIA " in found.words
