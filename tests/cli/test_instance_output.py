"""``simulate --instance-output``: a schedule of another scenario can be checked and drawn later."""

from __future__ import annotations

import pytest

import orsched
from orsched.cli import main as program

SCENARIO = ["pang-100x20", "--arrivals", "poisson:rate=5", "--workers", "2", "--seed", "3"]


def main(arguments: list[str]) -> int:
    """Return the exit code of a command line."""
    with pytest.raises(SystemExit) as ended:
        program(arguments)
    return int(ended.value.code or 0)


def test_check_and_report_take_the_instance_as_it_was_simulated(tmp_path, capsys):
    schedule, instance = str(tmp_path / "s.json"), str(tmp_path / "i.parquet")
    arguments = ["simulate", *SCENARIO, "-o", schedule]
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert "note: check and report need the instance as it was simulated: --instance-output" in said
    assert main(["check", "pang-100x20", schedule]) == 1
    assert main([*arguments, "--instance-output", instance]) == 0
    assert "note:" not in capsys.readouterr().err.partition("machine:")[0]
    assert main(["check", instance, schedule]) == 0
    assert len(orsched.load(instance).workers) == 2


def test_the_same_instance_needs_no_note(tmp_path, capsys):
    assert main(["simulate", "pang-100x20", "-o", str(tmp_path / "s.json")]) == 0
    assert "as it was simulated" not in capsys.readouterr().err


def test_two_outputs_cannot_be_one_file(tmp_path, capsys):
    path = str(tmp_path / "s.json")
    assert main(["simulate", "pang-100x20", "-o", path, "--instance-output", path]) == 2
    assert "--instance-output" in capsys.readouterr().err
    assert main(["simulate", "pang-100x20", "--instance-output", str(tmp_path / "x.csv")]) == 2
