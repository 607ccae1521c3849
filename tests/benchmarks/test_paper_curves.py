"""Curves of papers end where the totals of the same run are; fits beside what they fit."""

from __future__ import annotations

import pytest

from benchmarks.reproductions import mico_curves, mico_runs, pang_cases, scls_runs
from benchmarks.reproductions.mico_curves import curves
from orsched.calibration.measurements import DECODE, PREFILL, Measurements
from orsched.costs import BilinearCost
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


def test_the_gain_of_a_case_is_the_difference_of_its_figures():
    first = [{"slot_utilization": 0.5, "tokens_per_s": 100.0}] * 2
    other = [
        {"slot_utilization": 0.75, "tokens_per_s": 110.0},
        {"slot_utilization": 0.5, "tokens_per_s": 90.0},
    ]
    rows = pang_cases.means({"fcfs": first, "hybrid": other})
    assert rows[1]["gain, utilization, %"] == "+12.50"
    assert rows[1]["least, tokens/s"] == "-10.00"
    assert rows[-1]["gain, tokens/s"] == "+100.63"


def test_shares_of_slices_are_all_requests():
    import numpy as np

    shares = scls_runs.slice_shares(np.array([1, 1, 2, 9, 30]))
    assert shares["1 %"] == 40
    assert shares["2 %"] == 20
    assert shares["more %"] == 40
    assert sum(shares.values()) == pytest.approx(100)


def test_a_fit_to_a_bilinear_machine_has_no_error():
    profiles = pytest.importorskip("benchmarks.reproductions.scls_profiles")
    machine = BilinearCost.from_ms(p=(0.2, 0.5, 0.1, 9), d=(0.003, 0.2, 0.01, 7))
    sizes = [(n, length) for n in (1, 2, 4, 8) for length in (16, 64, 256)]
    measured = Measurements(
        phase=[PREFILL] * len(sizes) + [DECODE] * len(sizes),
        count=[n for n, _ in sizes] * 2,
        duration_ns=[machine.prefill_ns([length] * n) for n, length in sizes]
        + [machine.round_ns(n, n * length, length) for n, length in sizes],
        tokens=[n * length for n, length in sizes] + [0] * len(sizes),
        longest=[length for _, length in sizes] + [0] * len(sizes),
        context_sum=[0] * len(sizes) + [n * length for n, length in sizes],
        context_max=[0] * len(sizes) + [length for _, length in sizes],
    )
    cost = profiles.fitted(measured)
    for phase in (PREFILL, DECODE):
        error, mean = profiles.errors(cost, measured, phase)
        assert error < 1e-6 < mean
    slower = Measurements(
        **{name: measured.column(name).tolist() for name in ("count", "tokens", "longest")},
        phase=list(measured.phase),
        duration_ns=(measured.column("duration_ns") + 1_000_000).tolist(),
        context_sum=measured.column("context_sum").tolist(),
        context_max=measured.column("context_max").tolist(),
    )
    error, _ = profiles.errors(cost, slower, PREFILL)
    assert error == pytest.approx(1e-3)


@pytest.mark.full
def test_profiles_of_a_small_worker(capsys):
    pytest.importorskip("torch")
    from benchmarks.reproductions.scls_profiles import main

    arguments = ["--model", "tiny", "--slots", "2", "--length", "160", "--repeats", "1"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    for part in ("Fig. 8", "Fig. 9", "Fig. 10a", "Fig. 10b", "mean error"):
        assert part in out
