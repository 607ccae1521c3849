"""The fits of fidelity.py find the constants of simulated runs; with the data, the goal is met."""

from __future__ import annotations

import os

import numpy as np
import pytest

import orsched
from benchmarks.reproductions import fidelity, fidelity_setting
from benchmarks.reproductions.fidelity_fit import (
    Family,
    fit_decode_time,
    fit_spans,
    spans,
    step_rows,
)
from benchmarks.reproductions.fidelity_setting import Measured, Server, Times
from orsched.costs.fit_profiled import Basis
from orsched.errors import InputError
from orsched.instances.datasets import VARIABLE
from orsched.requests import Requests

BASIS = Basis((1, 512))
TRUE = [7_000_000.0, 60_000_000.0, 90.0]
FAMILY = Family(
    "profiled",
    ["low", "high", "context"],
    [1.0] * 3,
    [5e6, 5e7, 50.0],
    lambda prompts, active, context_sum: BASIS.row(prompts, active, context_sum),
    lambda values: BASIS.cost(values, 8, 1024),
)


@pytest.fixture(scope="module")
def run() -> Measured:
    """Return a run that was simulated: chunks, mixed steps, preemptions.

    All requests are there at once, so that what is in a step does not depend on its time.
    """
    rng = np.random.default_rng(5)
    requests = Requests(rng.integers(20, 700, 60), rng.integers(5, 120, 60))
    server = Server("small", "none", 8, 200)
    blank = Measured(server, requests, Times(requests.arrival_ns, None, None, None), 0)
    _, schedule, times = blank.simulate(FAMILY.cost(TRUE))
    assert (schedule.work.stay > 0).any()
    assert {1, 2} <= set(schedule.steps.phase.tolist())
    return Measured(server, requests, times, 0)


def test_constants_times_what_they_count_for_are_the_durations(run):
    instance, schedule, _ = run.simulate(FAMILY.cost(TRUE))
    steps = schedule.steps
    counted = step_rows(instance, schedule, FAMILY) @ np.array(TRUE)
    # A table's corner and each round are rounded to a nanosecond.
    assert np.abs(counted - (steps.end_ns - steps.start_ns)).max() < 200


def test_a_fit_finds_the_constants_of_a_simulated_run(run):
    fitted = fit_spans(run, FAMILY, requests=30)
    assert fitted.values == pytest.approx(TRUE, rel=1e-3)
    assert fitted.error < 1e-4


def test_decode_times_find_one_constant(run):
    one = Family(
        "one", ["low"], [1.0], [0.0], lambda *_: [0.0], lambda v: FAMILY.cost([v[0], *TRUE[1:]])
    )
    fitted = fit_decode_time(run, one, 20_000_000, 1000)
    assert fitted.values[0] == pytest.approx(TRUE[0], abs=2000)


def test_spans_are_decode_times_and_first_tokens_after_the_first():
    times = Times(np.zeros(3), np.array([5, 7, 9]), np.array([50, 70, 90]), np.array([2, 2, 2]))
    assert spans(times, 2).tolist() == [[5, 50], [7, 70], [5, 7]]


def test_figures_by_hand():
    second = 10**9
    times = Times(
        np.array([0, 1, 2]) * second,
        np.array([1, 4, 4]) * second,
        np.array([3, 6, 9]) * second,
        np.array([3, 2, 6]),
    )
    assert times.figures() == {
        "makespan": 9,
        "mean TPOT": pytest.approx((1 + 2 + 1) / 3),
        "mean TTFT": 2,
        "mean JCT": pytest.approx((3 + 5 + 7) / 3),
        "TTFT p50": 2,
        "TTFT p90": 3,
        "TTFT p99": 3,
    }
    assert times.figures(slice(2, None))["mean TTFT"] == 2


def test_microseconds_are_read_exactly():
    found = fidelity_setting.picoseconds(["9.31067", " 126.766", "3"])
    assert found.tolist() == [9_310_670, 126_766_000, 3_000_000]


def test_without_the_data_the_variable_is_named(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(InputError, match=VARIABLE):
        Measured.load(fidelity_setting.RTX_4090)


@pytest.fixture
def _data():
    if not os.environ.get(VARIABLE):
        pytest.skip(f"needs {VARIABLE}")


@pytest.mark.usefixtures("_data")
@pytest.mark.parametrize("server", [fidelity_setting.RTX_4090, fidelity_setting.RTX_PRO])
def test_nobody_is_queued_before_it_arrives(server):
    measured = Measured.load(server)
    times = measured.times
    assert 0 < measured.offset_ns < 2_000_000
    assert (times.arrival < times.first).all()
    assert (times.first < times.last).all()


@pytest.mark.usefixtures("_data")
def test_the_kernels_of_a_step():
    cost = fidelity_setting.kernel_profile()
    # embedding, final norm, and 32 layers with two norms each, at one token
    layer = 2 * 1.85083 + 54.898 + 2.17567 + 38.1313 + 247.292 + 2.592 + 126.766
    assert cost.dense.at(1) == pytest.approx((2.837 + 1.94167 + 32 * layer) * 1e3, abs=1)
    assert cost.prefill.at(16, 0) == pytest.approx(32 * 9546, abs=1)
    assert cost.decode.at(0, 1, 16) == pytest.approx(32 * 9310.67, abs=1)


@pytest.mark.usefixtures("_data")
@pytest.mark.parametrize(
    ("server", "family", "values"),
    [
        (fidelity_setting.RTX_4090, fidelity.overhead, [590_000.0]),
        (
            fidelity_setting.RTX_PRO,
            lambda: fidelity.profiled(1, 2048),
            [28_133_731.0, 367_656_563.0, 80.2486],
        ),
    ],
)
def test_the_stated_constants_meet_the_goal(server, family, values):
    measured = Measured.load(server)
    instance, schedule, times = measured.simulate(family().cost(values))
    assert orsched.check(instance, schedule) == []
    found = fidelity.errors(measured.times, times, fidelity.REST)
    assert abs(found["makespan s"]) < fidelity.GOAL
    assert abs(found["mean TPOT ms"]) < fidelity.GOAL
