"""Small cases whose optimum is known: as exhaustive search finds it, between bound and policies."""

from __future__ import annotations

import random

import orsched
from benchmarks.solved_cases import least_jct_sum
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.schedule_classes import allowances_of
from orsched.data.workers import Worker
from tests.in_order import in_order
from tests.models.least_sums import least_sum_ns


def drawn(rng, n):
    column = lambda high: [rng.randint(1, high) for _ in range(n)]  # noqa: E731
    cost = in_order(
        AffineCost, rng.randint(0, 20), rng.randint(1, 9), rng.randint(1, 20), rng.randint(0, 5)
    )
    made = Requests(column(9), column(4), arrival_ns=[rng.randint(0, 60) for _ in range(n)])
    return Instance(made, Worker(n, cost), first_token="prefill")


def test_the_search_finds_the_least_sum():
    rng = random.Random(1)
    for _ in range(40):
        instance = drawn(rng, rng.randint(1, 4))
        least = least_jct_sum(instance)
        assert least == least_sum_ns(instance, "mean_jct")
        assert orsched.bound(instance, "mean_jct").certificate["sum_ns"] <= least
        mean = orsched.solve(instance, "fcfs").schedule.results["jct_ns"]["mean"]
        assert least <= round(mean * len(instance))


def test_on_several_workers_all_divisions_are_tried():
    rng = random.Random(3)
    for _ in range(4):
        one = drawn(rng, 4)
        two = one.replace(workers=[one.worker, Worker(4, one.worker.cost, name="other")])
        least = least_jct_sum(two)
        halves = [[i for i in range(4) if chosen >> i & 1] for chosen in range(16)]
        sums = [
            sum(
                least_sum_ns(one.replace(requests=one.requests.take(rows)), "mean_jct")
                for rows in (half, [i for i in range(4) if i not in half])
                if rows
            )
            for half in halves
        ]
        assert least == min(sums) <= least_jct_sum(one)
        for method in ("fcfs", "gittins"):
            schedule = orsched.solve(two, method).schedule
            if not allowances_of(two, schedule):
                assert schedule.results["jct_ns"]["mean"] * 4 >= least - 2


def test_a_search_that_is_too_long_says_so():
    assert least_jct_sum(drawn(random.Random(2), 12), 1e-3) is None
