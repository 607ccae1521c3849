"""The command line without the extra orsched[parquet]."""

from __future__ import annotations

import sys

import pytest

from orsched.cli.commands import run

COMMANDS = [
    ["solve", "two-by-two", "--method", "fcfs", "-o", "x.parquet"],
    ["simulate", "two-by-two", "--policy", "fcfs", "--records", "x.parquet"],
    ["convert", "two-by-two", "x.parquet"],
    ["generate", "uniform", "--set", "requests=3", "--set", "clients=1", "-o", "x.parquet"],
    ["run", "two-by-two", "--worker", "virtual", "--policy", "fcfs", "-o", "x.parquet"],
]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    return tmp_path


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_parquet_file_is_refused_before_the_work(bare, arguments, capsys, monkeypatch):
    monkeypatch.setattr("orsched.files.locate.load", lambda name: 1 / 0)
    monkeypatch.setattr("orsched.instances.catalog.generate", lambda *a, **k: 1 / 0)
    assert run(arguments) == 2
    assert "pip install 'orsched[parquet]'" in capsys.readouterr().err
    assert list(bare.iterdir()) == []


def test_a_study_has_its_table_as_csv_and_says_so(bare, capsys, caplog):
    (bare / "s.toml").write_text('instances = ["two-by-two"]\npolicies = ["fcfs"]\n')
    assert run(["study", "s.toml", "--jobs", "1"]) == 0
    assert (bare / "s-study" / "table.csv").exists()
    assert not (bare / "s-study" / "table.parquet").exists()
    assert "table.parquet is not: it needs pip install 'orsched[parquet]'" in caplog.text
