"""The setting of SSJF: its constants give what the paper prints; a short run of each scheduler."""

import numpy as np
import pytest

from benchmarks.reproductions import ssjf_runs, ssjf_setting
from benchmarks.reproductions.ssjf_setting import Case
from orsched.instances import predict
from orsched.instances.datasets import VARIABLE
from orsched.instances.predictions import load_confusion


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(ssjf_setting, "WINDOW_S", 120)


def test_the_constants_give_the_printed_times():
    cost = Case("none").cost()
    times = [cost.prefill_ns([70]) + n * cost.round_ns(1, 0, 0) for n in (2, 1768)]
    assert times[0] == pytest.approx(0.120e9, rel=1e-6)
    assert (times[1] - times[0]) / 1766 * 174.8 == pytest.approx(9.68e9, rel=1e-6)
    assert cost.round_ns(4, 0, 0) == pytest.approx(1.15 * cost.round_ns(1, 0, 0), rel=1e-6)


def test_the_lengths_are_those_that_were_counted():
    outputs, told, source = ssjf_setting.lengths(40_000, 0)
    assert (told, source) == (None, "shipped counts")
    assert outputs.min() == ssjf_setting.SHORTEST
    assert outputs.max() <= ssjf_setting.LIMIT
    assert abs(outputs.mean() - ssjf_setting.MEAN_TOKENS) < 3
    assert abs(ssjf_setting.mean_longest(1) - ssjf_setting.MEAN_TOKENS) < 2
    fours = outputs.reshape(-1, 4).max(axis=1).mean()
    assert abs(ssjf_setting.mean_longest(4) - fours) < 4


def test_the_regression_row_has_the_papers_accuracy():
    instance = ssjf_setting.workload(Case("none", rate=400.0), 0)
    predicted = predict(instance, f"noise:sigma={ssjf_setting.SIGMA}", 0).requests
    borders = load_confusion(5).borders
    classes = [np.searchsorted(borders, column)
               for column in (predicted.predicted_tokens, predicted.output_tokens)]  # fmt: skip
    assert abs((classes[0] == classes[1]).mean() - 0.615) < 0.01


def test_load_one_is_what_first_come_first_served_can_serve():
    """Far above it, it completes as many in the window as load one brings."""
    for mode in ssjf_setting.MODES:
        case = Case(mode, 8.0)
        done = ssjf_runs.mean_of(case, ssjf_runs.FCFS, "done", range(4))
        expected = ssjf_setting.WINDOW_S / case.seconds_each()
        assert 0.7 * expected < done < 1.15 * expected


@pytest.mark.parametrize("mode", ssjf_setting.MODES)
@pytest.mark.parametrize("cv", [None, 4.0])
def test_shortest_first_is_ahead_under_overload_and_the_oracle_more(mode, cv):
    case, seeds = Case(mode, 8.0, cv), range(3)
    ours, oracle = (ssjf_runs.change(case, s, "jct_s", seeds).mean
                    for s in (ssjf_runs.SSJF, ssjf_runs.ORACLE))  # fmt: skip
    assert oracle < ours < -15
    assert ssjf_runs.ratio(case, ssjf_runs.ORACLE, "done", seeds).mean > 1.5


def test_each_seed_has_its_own_workload_and_both_schedulers_share_it():
    case = Case("none", 2.0)
    runs = [ssjf_runs.run(case, ssjf_runs.FCFS, seed) for seed in (0, 1)]
    assert runs[0] != runs[1]
    for seed in (0, 1):
        oracle = ssjf_runs.run(case, ssjf_runs.ORACLE, seed)
        assert oracle.makespan_s == runs[seed].makespan_s
