"""Methods pass on what is left of a time limit to the parts that take the time."""

from __future__ import annotations

import pytest

import orsched
from orsched.errors import TimeLimitError
from orsched.heuristics import planning


@pytest.mark.parametrize("method", ["offline", "offline@predicted", "hybrid", "hybrid@predicted"])
def test_packing_gets_a_part_of_the_time_left(monkeypatch, method):
    limits = []
    pack = planning.pack

    def noted(lengths, clients, time_limit=None):
        limits.append(time_limit)
        return pack(lengths, clients, time_limit)

    monkeypatch.setattr(planning, "pack", noted)
    instance = orsched.load("pang-100x20")
    orsched.solve(instance, method, time_limit=30.0, iterations=1)
    orsched.solve(instance, method, iterations=1)
    assert limits[0] is not None
    assert 0 < limits[0] <= 7.5
    assert limits[1] is None


class Countdown:
    """A stop whose time passes only when a simulation takes ten seconds of it."""

    def __init__(self, limit):
        self.limit, self.now = limit, 0.0

    def start(self):
        """Nothing to start."""

    def __call__(self, iteration, best_ns):
        return True

    @property
    def seconds_left(self):
        return self.limit - self.now


@pytest.mark.parametrize(("limit", "runs"), [(25.0, 2), (15.0, 0), (5.0, 0)])
def test_a_predicting_search_leaves_time_for_the_run_on_the_truth(monkeypatch, limit, runs):
    stop, done = Countdown(limit), []
    simulate = planning.simulate_policy

    def slow(*args, **kwargs):
        simulated = simulate(*args, **kwargs)
        stop.now += 10
        kwargs["deadline"]()
        done.append(simulated)
        return simulated

    monkeypatch.setattr(planning, "simulate_policy", slow)
    monkeypatch.setattr(planning, "perf_counter", lambda: stop.now)
    instance = orsched.load("pang-100x20")
    if runs:
        assert orsched.solve(instance, "hybrid@predicted", stop=stop).checked
    else:
        with pytest.raises(TimeLimitError):
            orsched.solve(instance, "hybrid@predicted", stop=stop)
    assert len(done) == runs
