"""More time never gives a worse answer: a long search begins as a short one."""

from __future__ import annotations

import math

import pytest

from orsched.common.registry import resolve
from orsched.common.stop import MaxIterations, MaxRuntime
from orsched.instances.synthetic import gsm8k
from orsched.models.bounds.bounds import makespan_bound
from orsched.models.windows import method
from orsched.models.windows.method import SHORT_S, WINDOWS, _Follower
from orsched.models.windows.window_state import compiled
from orsched.simulator.policy import Information
from orsched.solving.methods import Run


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch):
    monkeypatch.setattr("orsched.common.stop.perf_counter", lambda: 0.0)


def _searches(seconds, requests):
    instance = gsm8k(0, requests=requests, clients=4)
    stop = MaxRuntime(seconds)
    stop.start()
    lower = makespan_bound(instance).value_ns
    run = Run(
        Information.CLAIRVOYANT,
        stop,
        0,
        {},
        None,
        bound_ns=lower,
        initial_schedule=None,
        observer=None,
        begin=0.0,
    )
    start = resolve("methods", "hybrid")(
        instance, Run(Information.CLAIRVOYANT, MaxIterations(1), 0, {}, None, bound_ns=lower)
    )
    follower = _Follower(instance, start, "windows")
    found = list(WINDOWS._searches(follower, run, 1, compiled()))
    return [(search.run.stop.seconds_left, search.run.seed) for search, _ in found]


@pytest.mark.parametrize("requests", [12, method.MOST_TO_RESTART + 1])
def test_a_long_search_begins_with_all_of_a_short_one(requests):
    short, long = _searches(SHORT_S, requests), _searches(6 * SHORT_S, requests)
    first = long[: len(short)]
    assert [seed for _, seed in first] == [seed for _, seed in short]
    assert [left for left, _ in first] == [left for left, _ in short]
    assert long[-1][0] == 6 * SHORT_S
    assert len(long) == 2 * len(short)


def test_without_a_limit_there_is_one_search():
    assert len(_searches(math.inf, 12)) == 1
