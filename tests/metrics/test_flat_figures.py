"""The flat figures, SLOs with either limit, and files that were written before the new numbers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched.checker import check
from orsched.common.errors import InputError
from orsched.files import load_schedule, save_schedule
from orsched.metrics.flat_figures import FIGURES, flat_figures
from orsched.metrics.summary import SLO, summarise
from orsched.solving.result import ROW, request_columns
from tests.metrics.any_schedule import any_schedule

cases = st.integers(0, 10**6).map(any_schedule)
limits = st.none() | st.integers(0, 400)


@settings(max_examples=80)
@given(cases, limits, limits)
def test_figures_are_those_of_the_requests_one_by_one(case, ttft_ns, tpot_ns):
    instance, schedule = case
    slo = None if ttft_ns is None and tpot_ns is None else SLO(ttft_ns=ttft_ns, tpot_ns=tpot_ns)
    results = summarise(instance, schedule, slo)
    figures = flat_figures(results)
    assert list(figures) == list(FIGURES)
    rows = request_columns(instance, schedule)
    n = len(instance)
    if n == 0:
        assert figures["jct_mean_s"] is None
        return
    assert figures["ttft_mean_s"] == pytest.approx(sum(rows["ttft_s"]) / n)
    assert figures["jct_p99_s"] == sorted(rows["jct_s"])[-(-99 * n // 100) - 1]
    several = [k for k in range(n) if instance.requests.output_tokens[k] >= 2]
    gaps = [rows["itl_max_s"][k] for k in several]
    assert figures["itl_max_s"] == max(gaps, default=None)
    if slo is None:
        assert figures["slo_attainment"] is figures["goodput_per_s"] is None
        return
    met = 0
    for k in range(n):
        ttft, tpot = rows["ttft_s"][k] * 1e9, rows["tpot_s"][k] * 1e9
        in_ttft = ttft_ns is None or round(ttft) <= ttft_ns
        met += in_ttft and (tpot_ns is None or k not in several or round(tpot) <= tpot_ns)
    assert figures["slo_attainment"] == met / n
    assert figures["goodput_per_s"] == pytest.approx(met * 1e9 / schedule.makespan_ns)
    reported = schedule.replace(results=results)
    assert check(instance, reported) == []


def test_limits_are_given_in_seconds_or_nanoseconds_either_alone():
    assert SLO(ttft_s=2).limits_ns == (2_000_000_000, None)
    assert SLO(tpot_s=0.05) == SLO(tpot_ns=50_000_000)
    assert SLO(ttft_s=0.1, tpot_s=0.3) == SLO(ttft_ns=100_000_000, tpot_ns=300_000_000)
    assert (SLO(ttft_ns=1).ttft_s, SLO(ttft_ns=1).tpot_s) == (1e-9, None)
    for wrong in ({}, {"ttft_s": 1, "ttft_ns": 1}, {"ttft_s": -1}, {"tpot_ns": 0.5},
                  {"ttft_s": float("nan")}):  # fmt: skip
        with pytest.raises(InputError):
            SLO(**wrong)


def test_without_an_slo_the_limits_of_the_classes_give_the_overall_attainment():
    instance = orsched.load("gsm8k-llama65b").with_classes(
        "interactive:ttft=20,tpot=0.1", "batch:ttft=60"
    )
    result = orsched.solve(instance, "fcfs")
    results = result.schedule.results
    assert results["slo"] is None
    limited = [part for part in results["classes"].values() if part["slo"]]
    attained = sum(part["slo"]["attained"] for part in limited)
    judged = sum(part["requests"] for part in limited)
    assert judged == len(instance)
    assert 0 < result.slo_attainment == attained / judged < 1
    given = orsched.solve(instance, "fcfs", slo=SLO(ttft_s=20, tpot_s=0.1))
    assert given.slo_attainment == given.schedule.results["slo"]["attainment"]


def test_files_without_the_new_numbers_load_and_check_and_wrong_ones_do_not(tmp_path):
    instance = orsched.load("two-by-two")
    path = tmp_path / "s.json"
    save_schedule(orsched.solve(instance, "fcfs", slo=SLO(ttft_s=1)).schedule, path)
    document = json.loads(path.read_text())
    assert check(instance, load_schedule(path)) == []
    older = json.loads(path.read_text())
    del older["results"]["itl_ns"]
    del older["results"]["slo"]["goodput_per_s"]
    older["results"]["slo"]["tpot_ns"] = 2**62  # what stood for no limit
    path.write_text(json.dumps(older))
    old = load_schedule(path)
    assert check(instance, old) == []
    assert flat_figures(old.results)["itl_max_s"] is None
    for where, name in ((document["results"]["itl_ns"], "max"), (document["results"]["slo"],
                        "goodput_per_s")):  # fmt: skip
        kept = where[name]
        where[name] = kept + 1
        path.write_text(json.dumps(document))
        assert [v.kind.value for v in check(instance, load_schedule(path))] == ["result"]
        where[name] = kept
    document["results"]["slo"] |= {"ttft_ns": None, "tpot_ns": None}
    path.write_text(json.dumps(document))
    assert "an objective without a limit" in check(instance, load_schedule(path))[0].message


def test_attributes_of_a_result_are_the_figures_of_its_row():
    result = orsched.solve(orsched.load("two-by-two"), "fcfs", slo=SLO(ttft_s=0.1))
    row = result.to_row()
    assert tuple(row) == ROW
    for name in FIGURES:
        if name not in ("gap", "slot_utilization"):
            assert getattr(result, name) == row[name]
    assert result.makespan_s == result.makespan
