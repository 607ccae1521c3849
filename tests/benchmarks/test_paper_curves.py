"""Settings and curves of papers: what is printed, what a run totals, what is fitted."""

import numpy as np
import pytest

from benchmarks.reproductions import mico_curves, mico_runs, pang_cases, scls_runs, scls_setting
from benchmarks.reproductions.mico_curves import curves
from benchmarks.reproductions.scls import change, overloaded
from orsched.calibration.measurements import DECODE, PREFILL, Measurements
from orsched.costs import BilinearCost
from orsched.heuristics.scls.continuous import ILS
from orsched.heuristics.scls.sliced import SCLS
from orsched.instances.datasets import VARIABLE
from orsched.models.batch.batcher import serving_ns


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
    first, second, third = (
        {"slot_utilization": used, "tokens_per_s": speed}
        for used, speed in ((0.5, 100.0), (0.75, 110.0), (0.5, 90.0))
    )
    rows = pang_cases.means({"fcfs": [first, first], "hybrid": [second, third]})
    assert (rows[1]["gain, utilization, %"], rows[1]["least, tokens/s"]) == ("+12.50", "-10.00")
    assert rows[-1]["gain, tokens/s"] == "+100.63"


def test_shares_of_slices_are_all_requests():
    shares = scls_runs.slice_shares(np.array([1, 1, 2, 9, 30]))
    assert [shares[name] for name in ("1 %", "2 %", "more %")] == [40, 20, 40]
    assert sum(shares.values()) == pytest.approx(100)
    assert change(3.0, 2.0) == 50
    assert [overloaded({"requests_per_s": rate, "rate": 10}) for rate in (8.9, 9.1)] == [
        True,
        False,
    ]


def test_a_fit_to_a_bilinear_machine_has_no_error():
    profiles = pytest.importorskip("benchmarks.reproductions.scls_profiles")
    machine = BilinearCost.from_ms(p=(0.2, 0.5, 0.1, 9), d=(0.003, 0.2, 0.01, 7))
    sizes = [(n, length) for n in (1, 2, 4, 8) for length in (16, 64, 256)]
    together, none = [n * length for n, length in sizes], [0] * len(sizes)
    lengths = [length for _, length in sizes]
    measured = Measurements(
        phase=[PREFILL] * len(sizes) + [DECODE] * len(sizes),
        count=[n for n, _ in sizes] * 2,
        duration_ns=[machine.prefill_ns([length] * n) for n, length in sizes]
        + [machine.round_ns(n, n * length, length) for n, length in sizes],
        tokens=together + none, longest=lengths + none,
        context_sum=none + together, context_max=none + lengths,
    )  # fmt: skip
    cost = profiles.fitted(measured)
    for phase in (PREFILL, DECODE):
        error, mean = profiles.errors(cost, measured, phase)
        assert error < 1e-6 < mean
    times = (measured.column("duration_ns") + 1_000_000).tolist()
    slower = Measurements(**{**measured.to_dict(), "duration_ns": times})
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


def test_the_constants_give_figure_11():
    cost = scls_setting.HF.bilinear()
    together = serving_ns(cost, 16, 1024, 128)
    separate = serving_ns(cost, 15, 10, 128) + serving_ns(cost, 1, 1024, 128)
    assert together == pytest.approx(13.5e9, rel=1e-6)
    assert separate == pytest.approx(7.6e9, rel=1e-6)
    assert serving_ns(scls_setting.DS.bilinear(), 16, 1024, 128) < together


def test_the_synthetic_lengths_have_the_shape_of_sharegpt():
    prompts, outputs, source = scls_setting.lengths(20_000, 0)
    assert source == "synthetic"
    assert prompts.max() == outputs.max() == 1024
    assert 150 < prompts.mean() < 200
    assert 300 < outputs.mean() < 350
    assert 0.75 < (outputs < 512).mean() < 0.85


def test_arrivals_end_with_the_time():
    requests, _ = scls_setting.workload(10.0, 1, seconds=30)
    assert requests.arrival_ns.max() < 30e9
    assert 240 < len(requests) < 360


@pytest.mark.parametrize("engine", ["HF", "DS"])
def test_slices_waste_fewer_tokens_than_whole_batches(engine):
    requests, _ = scls_setting.workload(4.0, 0, seconds=20)
    worker = scls_setting.static_worker(scls_setting.ENGINES[engine])
    instance = scls_setting.instance(requests, worker, 2)
    found = {
        name: scls_runs._run(SCLS, scls_setting.slice_params(engine, **values), instance)
        for name, values in (("SLS", scls_runs.ABLATION["SLS"]), ("SCLS", {}))
    }
    assert found["SCLS"]["invalid"] < found["SLS"]["invalid"]
    assert found["SCLS"]["requests_per_s"] > found["SLS"]["requests_per_s"]


def test_iteration_level_wastes_nothing():
    requests, _ = scls_setting.workload(4.0, 0, seconds=20)
    instance = scls_setting.instance(requests, scls_setting.continuous_worker(scls_setting.DS), 2)
    found = scls_runs._run(ILS, {"parallel": 12}, instance)
    assert found["invalid"] == found["pads"] == found["reschedules"] == 0
    assert found["batch"] <= 12
