"""Makespan bounds for several equal workers: below the optimum over all divisions of requests."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import BlockMemory, Instance, Requests, Worker
from orsched.checker.certificates import certificate_violations
from orsched.costs import (
    AffineCost,
    BilinearCost,
    LevelsCost,
    LinearCost,
    PoolingCost,
    RooflineCost,
)
from orsched.models.bounds.bounds import makespan_bound, ordering_cannot_help
from tests.brute_force import optimum_ns
from tests.in_order import in_order
from tests.models.divisions import least_over_divisions

COSTS = (
    in_order(AffineCost, 9, 1, 10, 2),
    in_order(AffineCost, 0, 0, 7, 0),
    LevelsCost(levels=((6, 3), (12, 5)), round_fixed_ns=4),
    in_order(BilinearCost, 10**6, 2 * 10**6, 10**5, 3 * 10**6, 10**5, 10**6, 10**6, 2 * 10**6),
    in_order(PoolingCost, 10**5, 10**6, 5 * 10**6, 10**6, 10**6),
    in_order(RooflineCost, 10**6, 30 * 10**6, 4 * 10**6, 10**6, 3 * 10**5),
    in_order(RooflineCost, 1, 1, 1, 1, 1),
    in_order(LinearCost, 30 * 10**6, 10**6, 10**5, 20 * 10**6, 3 * 10**6, 10**6, 4 * 10**6, 10**6),
)


@st.composite
def several(draw):
    n = draw(st.integers(1, 4))
    column = lambda low, high: draw(st.lists(st.integers(low, high), min_size=n, max_size=n))  # noqa: E731
    memory = BlockMemory(draw(st.integers(12, 30)), 1, "whole") if draw(st.booleans()) else None
    worker = Worker(
        draw(st.integers(1, 2)),
        draw(st.sampled_from(COSTS)),
        draw(st.sampled_from((None, 6))),
        memory,
    )
    arrivals = column(0, draw(st.sampled_from((0, 0, 40))))
    requests = Requests(column(1, 6), column(1, 5), arrival_ns=arrivals)
    return Instance(requests, (worker,) * draw(st.integers(2, 3)), first_token="decode")


def optimum_of_several_ns(instance):
    """Least makespan over every division of the requests among the workers."""
    return least_over_divisions(instance, optimum_ns, max)


@settings(max_examples=40)
@given(several())
def test_bound_at_most_the_optimum_and_re_derived(instance):
    bound = makespan_bound(instance)
    assert bound.value_ns <= optimum_of_several_ns(instance)
    assert certificate_violations(instance, bound.to_dict()) == []
    single = instance.replace(workers=instance.workers[0])
    assert bound.value_ns <= makespan_bound(single).value_ns


def test_workers_share_the_work():
    one = orsched.load("gsm8k-llama65b")
    two = one.replace(workers=(one.worker, one.worker))
    bound = makespan_bound(two)
    assert bound.name == "shared"
    assert bound.value_ns == -(-makespan_bound(one).value_ns // 2)
    assert ordering_cannot_help(two) is None
    good = bound.to_dict()
    claim = good["certificate"]
    inner = claim["one_worker"]
    for bad in (
        {**claim, "workers": 1},
        {**claim, "value_ns": claim["value_ns"] + 1},
        {**claim, "one_worker": {**inner, "value_ns": inner["value_ns"] + 2}},
        {**claim, "one_worker": {**inner, "bound": "longest_request"}},
        {**claim, "extra": 1},
        {"bound": "shared"},
    ):
        assert certificate_violations(two, {**good, "certificate": bad})
    assert certificate_violations(two, {**good, "name": "joint"})
    assert certificate_violations(two, {**good, "value_ns": good["value_ns"] + 1})
    assert certificate_violations(one, good)
