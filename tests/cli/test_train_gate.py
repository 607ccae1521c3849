"""``orsched train-gate``: the file that it writes, and what it refuses."""

from __future__ import annotations

import json

from orsched.cli.commands import run


def test_it_writes_a_gate_that_compare_reads(tmp_path, capsys):
    path = tmp_path / "gate.json"
    arguments = ["--seeds", "100:102", "--set", "requests=30", "--set", "clients=4",
                 "--arrivals", "at_once", "--arrivals", "poisson:rate=0.5",
                 "--generations", "1", "--population", "4"]  # fmt: skip
    assert run(["train-gate", "gsm8k", *arguments, "-o", str(path)]) == 0
    assert "4 instances" in capsys.readouterr().err
    assert json.loads(path.read_text())["trained"]["arrivals"] == ["at_once", "poisson:rate=0.5"]
    method = f"online+assignment=shared+gate=learned+gate_file={path}"
    assert run(["compare", "two-by-two", "--methods", method]) == 0
    again = tmp_path / "again.json"
    assert run(["train-gate", "gsm8k", *arguments, "-o", str(again)]) == 0
    assert again.read_bytes() == path.read_bytes()


def test_what_is_wrong_is_said_in_a_line_before_any_training(tmp_path, capsys):
    path = str(tmp_path / "gate.json")
    for words in (
        ["nothing-like-it"],
        ["two-by-two", "--set", "clients=2"],
        ["two-by-two", "--arrivals", "nonsense"],
        ["gsm8k", "--seeds", "3:1"],
        ["gsm8k", "--seeds", "0:5000"],
        ["two-by-two", "--seed", "-1"],
    ):
        assert run(["train-gate", *words, "-o", path]) == 2, words
        said = capsys.readouterr().err
        assert said.startswith("orsched: ")
        assert "Traceback" not in said
    assert run(["train-gate", "two-by-two", "-o", str(tmp_path / "no" / "gate.json")]) == 2


def test_the_file_is_json_by_name(tmp_path, capsys):
    path = tmp_path / "gate.parquet"
    assert run(["train-gate", "two-by-two", "-o", str(path)]) == 2
    assert "ends in .json" in capsys.readouterr().err
    assert not path.exists()


def test_a_fault_in_a_gate_file_is_located_in_the_file(tmp_path, capsys):
    path = tmp_path / "gate.json"
    arguments = ["solve", "two-by-two", "--method", f"online+gate=learned+gate_file={path}"]
    assert run(arguments) == 2
    assert f"{path}: no such file" in capsys.readouterr().err
    path.write_text('{"format": "orsched/gate", "version": 1, "weights": {"idle": -1}}')
    assert run(arguments) == 2
    assert f"{path}, field 'weights.idle'" in capsys.readouterr().err
