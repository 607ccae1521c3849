"""Methods pass on what is left of a time limit to the parts that take the time."""

from __future__ import annotations

import pytest

import orsched
from orsched.heuristics import pang
from tests.stops import Countdown


@pytest.mark.parametrize("method", ["offline", "offline@predicted", "hybrid", "hybrid@predicted"])
def test_packing_gets_a_part_of_the_time_left(monkeypatch, method):
    limits = []
    pack = pang.pack

    def noted(lengths, clients, time_limit=None):
        limits.append(time_limit)
        return pack(lengths, clients, time_limit)

    monkeypatch.setattr(pang, "pack", noted)
    instance = orsched.load("pang-100x20")
    orsched.solve(instance, method, time_limit=30.0, iterations=1)
    orsched.solve(instance, method, iterations=1)
    assert limits[0] is not None
    assert 0 < limits[0] <= 7.5
    assert limits[1] is None


@pytest.mark.parametrize(("limit", "runs"), [(25.0, 2), (15.0, 0), (5.0, 0), (0.0, 0)])
def test_a_predicting_search_leaves_time_for_the_run_on_the_truth(monkeypatch, limit, runs):
    stop, done = Countdown(limit), []
    simulate = pang.simulate_policy

    def slow(*args, **kwargs):
        simulated = simulate(*args, **kwargs)
        stop.now += 10
        kwargs["deadline"]()
        done.append(simulated)
        return simulated

    monkeypatch.setattr(pang, "simulate_policy", slow)
    monkeypatch.setattr(pang, "perf_counter", lambda: stop.now)
    instance = orsched.load("pang-100x20")
    result = orsched.solve(instance, "hybrid@predicted", stop=stop)
    assert result.checked
    assert result.schedule.information == "predicted"
    assert len(done) == runs
    late = "time ended before hybrid had a schedule; this is that of fcfs"
    assert (late in result.notes) == (not runs)
