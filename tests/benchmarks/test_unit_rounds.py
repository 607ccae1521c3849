"""The tables of unit rounds: what is in them, on few draws."""

from __future__ import annotations

import pytest

from benchmarks.reproductions.unit_rounds import (
    POLICIES,
    adversarial,
    main,
    published,
    readings,
    small,
    with_predictions,
)
from benchmarks.reproductions.unit_rounds_proven import cold, proven
from benchmarks.reproductions.unit_rounds_proven import main as proven_main
from benchmarks.reproductions.unit_rounds_proven import published as bounds_of
from orsched.instances.unit_rounds import unit_rounds


def test_no_policy_without_evictions_is_below_the_best_of_them():
    rows, lines = published(2, 500)
    assert len(lines) == 2
    assert [row["policy"] for row in rows] == [f"`{name}`" for name in POLICIES]
    without = [row for row in rows if row["evicts"] == "no"]
    assert {row["policy"] for row in without} >= {"`mc_sf`", "`svf`", "`a_max@clairvoyant`"}
    for label in ("all at 0", "arrivals"):
        values = [float(row[f"over the best, {label}"]) for row in without]
        assert 1 <= min(values) < 1.1  # the search is ahead of all of them
        assert all(float(row[f"most, {label}"]) >= 1 for row in without)


def test_none_without_evictions_is_below_a_proven_optimum():
    pytest.importorskip("ortools")
    rows, proven = small(3)
    assert proven == 3
    without = ("mc_sf", "svf", "sorted_f", "gba", "wait", "a_max@clairvoyant", "the search")
    least = {row["policy"].strip("`"): float(row["least"]) for row in rows}
    assert all(least[name] >= 1 for name in without)


def test_predictions_are_within_the_interval():
    instance = unit_rounds(5)
    requests = with_predictions(instance, 5).requests
    ratios = requests.predicted_tokens / requests.output_tokens
    assert (requests.predicted_tokens >= 1).all()
    assert ratios.min() < 0.9
    assert ratios.max() > 1.1
    assert (abs(requests.predicted_tokens - requests.output_tokens) <= requests.output_tokens).all()


def test_a_table_may_be_left_out(capsys):
    few = ["--readings", "0", "--adversarial", "--iterations", "100"]
    assert main(["--seeds", "1", "--small", "0", *few]) == 0
    assert "mc_sf" in capsys.readouterr().out


def test_readings_and_families_compare_with_what_no_policy_is_below():
    rows = readings(1, 200)
    assert all(float(row[label]) >= 1 for row in rows for label in ("all at 0", "arrivals"))
    table = {row["policy"].strip("`"): row for row in adversarial([16], 200)}
    for family in ("long-prompts", "long-first", "late-burst"):
        column = f"{family}, M = 16"
        assert min(float(table[name][column]) for name in ("mc_sf", "svf", "sorted_f")) >= 1
    assert float(table["mc_sf"]["long-prompts, M = 16"]) > 1.3


def test_proven_draws_and_bounds():
    pytest.importorskip("ortools")
    row = proven("6x12", 2, 20.0)
    assert row["proven"] == "2 of 2"
    assert float(row["least"]) >= 1
    assert float(row["annealing"]) >= 1
    assert row["greatest gap"] == "0"
    row = bounds_of(3, 0.1)
    assert row["bound"] <= row["best known"]
    assert float(row["`mc_sf`, at least"]) <= float(row["at most"])


@pytest.mark.full
def test_solvers_from_nothing_and_tables_left_out(capsys):
    pytest.importorskip("ortools")
    row = cold(0, 0.5)
    assert float(row["over the best known"]) >= 1
    assert set(row) >= {"over that of cpsat", "over that of scip", "over that of highs"}
    assert proven_main(["--sizes", "5x10", "--draws", "1", "--published", "0", "--cold", "0"]) == 0
    assert "1 of 1" in capsys.readouterr().out
