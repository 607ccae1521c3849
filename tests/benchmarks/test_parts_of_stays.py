"""Parts of requests' stays: they add up, and are what a schedule of a few steps says."""

from __future__ import annotations

import pytest

import orsched
from benchmarks.parts_of_stays import stays
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances import with_arrivals
from tests.in_order import in_order

MS = 10**6
COST = in_order(AffineCost, 0, MS, 20 * MS, 3 * MS)


def test_one_alone_has_its_own_time_only():
    instance = Instance(Requests([10], [4]), Worker(2, COST), first_token="prefill")
    found = stays(instance, orsched.solve(instance, "fcfs").schedule)
    assert found["own"] == found["JCT"] == pytest.approx(0.010 + 3 * 0.023)
    assert found["wait"] == found["rounds"] == found["held up"] == 0


def test_two_at_once_share_a_stage_and_rounds():
    """Both wait for both prefills in one stage; four of their rounds are shared."""
    instance = Instance(Requests([10, 30], [5, 5]), Worker(2, COST), first_token="prefill")
    found = stays(instance, orsched.solve(instance, "fcfs").schedule)
    assert found["JCT"] == pytest.approx(0.040 + 4 * 0.026)
    assert found["own"] == pytest.approx(0.020 + 4 * 0.023)
    assert found["rounds"] == pytest.approx(4 * 0.003)
    assert (found["wait"], found["held up"]) == pytest.approx((0, 0.020))


def test_parts_add_up_on_two_workers():
    made = Requests(list(range(5, 45)), [3, 9, 30, 14] * 10)
    instance = Instance(made, (Worker(4, COST),) * 2, first_token="prefill")
    instance = with_arrivals(instance, "poisson:rate=20", seed=1)
    schedule = orsched.solve(instance, "gittins@clairvoyant").schedule
    found = stays(instance, schedule)
    assert found["JCT"] == pytest.approx(schedule.results["jct_ns"]["mean"] / 1e9)
    parts = [found[name] for name in ("own", "wait", "rounds", "held up")]
    assert sum(parts) == pytest.approx(found["JCT"])
    assert min(parts) > 0
