"""Curves of papers: what a run totals, what is printed."""

import pytest

from benchmarks.reproductions import mico_curves, mico_runs
from benchmarks.reproductions.mico_curves import curves
from orsched.instances.datasets import VARIABLE


@pytest.fixture(autouse=True)
def _no_data(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize("variant", ["QI", "neither"])
def test_cumulated_caches_end_at_the_sum_of_the_run(variant):
    problem, schedule = mico_runs.scheduled(variant, 30, 2, 3, 1)
    figures = mico_runs.figures(problem, schedule, caches=True)
    found = [curves(schedule, cloud) for cloud in range(2)]
    assert [each.cumulated[-1] for each in found] == figures.kv["engine"]
    assert [len(each.done_s) for each in found] == figures.served
    ends = sorted(t for each in found for t in each.done_s)
    assert ends == pytest.approx([end / 1e9 for end in figures.ends_ns])
    assert all(each.iterations == sorted(each.iterations) for each in found)


def test_the_figure_of_a_run_names_both(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(mico_curves, "SETTING", (12, mico_curves.CLOUDS, 2))
    target = tmp_path / "run.svg"
    assert mico_curves.main(["-o", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    for word in ("MICO", "baseline", "KV-Cache length", "time, s"):
        assert word in target.read_text()
