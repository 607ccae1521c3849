"""The table of regrets: what a row holds, and that runs are kept."""

from __future__ import annotations

import json

import pytest

import orsched
from benchmarks import regret


def test_every_method_of_the_registry_is_in_the_table_or_left_out_with_a_reason():
    named = {spec.partition("@")[0] for spec in regret.specs()}
    assert named | set(regret.LEFT_OUT) == {each.name for each in orsched.methods()}


@pytest.mark.parametrize("part", regret.REQUESTS)
def test_regret_is_the_mean_jct_less_a_bound_that_no_policy_beats(part):
    jct, least = regret.figures("gittins@none", part, 0)
    instance = regret.problem(part, 0)
    found = orsched.solve(instance, "gittins@none").schedule.results["jct_ns"]["mean"] / 1e9
    assert jct == pytest.approx(found)
    assert 0 < least <= jct
    assert regret.figures("sjf@clairvoyant", part, 0)[0] < regret.figures("sls@none", part, 0)[0]


def test_an_instance_that_a_method_does_not_take_is_a_reason_and_no_row(capsys):
    made = regret.rows(
        "arrivals", range(1), ["windows@clairvoyant", "fcfs@none"], regret.Kept(None)
    )
    assert [row["method"] for row in made] == ["fcfs"]
    assert "windows@clairvoyant: left out" in capsys.readouterr().out


def test_kept_runs_are_read_again_and_not_made_again(tmp_path, monkeypatch):
    path = tmp_path / "runs"
    first = regret.Kept(path)("fcfs@none", "at_once", 0)
    key, value = json.loads(path.read_text())
    assert (key, tuple(value)) == ("fcfs@none at_once 0", first)
    monkeypatch.setattr(regret, "figures", lambda *_: pytest.fail("made again"))
    assert regret.Kept(path)("fcfs@none", "at_once", 0) == first


def test_rows_are_the_same_again_and_the_least_regret_comes_first():
    methods = ["one_at_a_time@none", "sjf@clairvoyant", "fcfs@none"]
    made = regret.rows("at_once", range(2), methods, regret.Kept(None))
    assert [row["method"] for row in made] == ["sjf", "fcfs", "one_at_a_time"]
    assert made == regret.rows("at_once", range(2), methods, regret.Kept(None))
