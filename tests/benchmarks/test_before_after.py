"""Figures of two versions beside each other."""

from __future__ import annotations

import json

import pytest

from benchmarks.speed.before_after import main, ratios
from benchmarks.speed.by_turns import ROOT, TurnError, by_turns, once, other_work, work


def document(wall, p99, simulated=9.0):
    row = {"program": "orsched", "runs": 5, "wall_min_s": wall, "p99_us": p99, "max_us": 100 * p99}
    row |= {"simulated_s": simulated, "checked": True, "start_s": 1e-5, "gap_s": None}
    return {"sections": [{"name": "one", "rows": [row]}]}


def test_the_least_of_each_side_is_compared():
    found = ratios([document(3.0, 8.0), document(2.0, 9.0)], [document(1.0, 12.0)])
    assert [(each.key[2], each.ratio) for each in found] == [("wall_min_s", 0.5), ("p99_us", 1.5)]
    assert found[0].spread == 1.5


def test_results_largest_figures_and_tiny_ones_are_no_speed():
    found = ratios([document(1.0, 0.1, 5.0)], [document(1.0, 0.1, 9.0)])
    assert [each.key for each in found] == [("one", "orsched", "wall_min_s")]


def test_slower_figures_are_marked(tmp_path, capsys):
    paths = {}
    for name, wall in (("before", 1.0), ("same", 1.04), ("slow", 1.06)):
        paths[name] = str(tmp_path / f"{name}.json")
        (tmp_path / f"{name}.json").write_text(json.dumps(document(wall, 2.0)))
    assert main(["--before", paths["before"], "--after", paths["same"]]) == 0
    assert main(["--before", paths["before"], "--after", paths["slow"], paths["slow"]]) == 1
    assert "1 of 2 figures" in capsys.readouterr().out
    assert main(["--before", paths["before"], "--after", paths["slow"], paths["same"]]) == 0


@pytest.mark.full
def test_turns_of_this_checkout_do_the_same_work():
    asked = work(tiny=True)
    asked["decide"]["policies"] = [("fcfs", "none"), ("hybrid", "predicted")]
    before, after = by_turns(ROOT, 1, asked)
    assert other_work(before[0], after[0]) == []
    rows = {(s["name"], row["name"]) for s in before[0]["sections"] for row in s["rows"]}
    assert {part for part, _ in rows} == set(asked)
    assert all(row["work"] > 0 for s in before[0]["sections"] for row in s["rows"])
    after[0]["sections"][0]["rows"][0]["work"] += 1
    assert other_work(before[0], after[0]) == ["decide: fcfs, none"]


def test_a_checkout_without_an_interpreter_is_told(tmp_path):
    with pytest.raises(TurnError, match=r"no \.venv"):
        once(tmp_path, work(["windows"], tiny=True))
