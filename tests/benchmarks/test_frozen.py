"""What must not move is the same when it is made twice, and what moved is listed."""

from __future__ import annotations

import json

import pytest

from benchmarks import frozen


@pytest.mark.parametrize("section", ["names", "files"])
def test_two_runs_are_equal_and_a_changed_row_is_listed(section, tmp_path, capsys):
    path = tmp_path / "frozen.json"
    assert frozen.main(["write", str(path), "--only", section]) == 0
    assert frozen.main(["compare", str(path)]) == 0
    held = json.loads(path.read_text())
    key = sorted(held[section])[0]
    held[section][key] = "other"
    held[section]["gone"] = 1
    path.write_text(json.dumps(held))
    capsys.readouterr()
    assert frozen.main(["compare", str(path)]) == 1
    printed = capsys.readouterr().out
    assert f"{section}: {key}: " in printed
    assert f"{section}: gone: 1 -> absent" in printed


def test_what_a_clock_said_is_left_out():
    text = 'orsched: 2 s: simulating\n"decision_p99_s": 3.8e-05,\nmakespan 2.00\n'
    assert frozen._without_times(text) == '"decision_p99_s": TIME,\nmakespan 2.00\n'
