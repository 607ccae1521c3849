"""Bounds on mean JCT and TTFT: below the exhaustive optimum and every method, re-derivable."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import BlockMemory, InfeasibleError, Instance, Requests, Worker
from orsched.certificates.context import Context
from orsched.certificates.one_machine import shortest_remaining_first
from orsched.certificates.shared_rounds import WINDOW_FIELDS
from orsched.checker.certificates import bound_violations
from orsched.costs import (
    AffineCost,
    BilinearCost,
    LevelsCost,
    LinearCost,
    PoolingCost,
    RooflineCost,
)
from orsched.models.bounds.bounds import Bound
from orsched.models.bounds.latency_bounds import OBJECTIVES, candidates
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.least_sums import least_sum_ns

COSTS = (
    in_order(AffineCost, 25, 1, 29, 2),
    in_order(AffineCost, 3, 1, 20, 0),
    in_order(AffineCost, 0, 0, 7, 0),
    in_order(AffineCost, 40, 3, 1, 1),
    in_order(AffineCost, 0, 0, 0, 0),
    LevelsCost(levels=((4, 10), (9, 16)), round_fixed_ns=5),
    LevelsCost(levels=((9, 30),), round_fixed_ns=1),
    LevelsCost(levels=((9, 5), (16, 12), (40, 60)), round_fixed_ns=3),
    in_order(BilinearCost, 10**6, 2 * 10**6, 10**5, 3 * 10**6, 10**5, 10**6, 10**6, 2 * 10**6),
    in_order(PoolingCost, 10**5, 10**6, 5 * 10**6, 10**6, 10**6),
    in_order(BilinearCost, 10**6, -1, 0, 10**7, 10**6, 0, 0, 10**7),
    in_order(RooflineCost, 10**6, 30 * 10**6, 4 * 10**6, 10**6, 3 * 10**5),
    in_order(RooflineCost, 1, 1, 1, 1, 1),
    in_order(LinearCost, 30 * 10**6, 10**6, 10**5, 20 * 10**6, 3 * 10**6, 10**6, 4 * 10**6, 10**6),
)

SOME = settings.default.max_examples // 4
"""A search for prices on every example: few in the short tests, more in the full ones."""


@st.composite
def small(draw, most=3):
    """Feasible instances that the exhaustive search can solve."""
    n = draw(st.integers(1, most))
    column = lambda low, high: draw(st.lists(st.integers(low, high), min_size=n, max_size=n))  # noqa: E731
    arrivals = column(0, draw(st.sampled_from((0, 0, 60))))
    memory = BlockMemory(draw(st.integers(13, 30)), 1, "whole") if draw(st.booleans()) else None
    worker = Worker(
        draw(st.integers(1, 3)),
        draw(st.sampled_from(COSTS)),
        draw(st.sampled_from((None, 9, 12))),
        memory,
    )
    return Instance(
        Requests(column(1, 9), column(1, 4), arrival_ns=arrivals, predicted_tokens=column(1, 4)),
        worker,
        first_token=draw(st.sampled_from(("decode", "prefill"))),
    )


def sums_of(instance, method):
    """Return the sums of JCT and TTFT of a method's schedule."""
    results = orsched.solve(instance, method, iterations=3).schedule.results
    n = len(instance)
    return {"mean_jct": results["jct_ns"]["mean"] * n, "mean_ttft": results["ttft_ns"]["mean"] * n}


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=SOME * 2)
@given(instance=small())
def test_bound_at_most_the_least_sum(objective, instance):
    """INV: bound <= optimum, under every cost model, with arrivals, caps and memory."""
    bound = orsched.bound(instance, objective)
    assert bound.certificate["sum_ns"] <= least_sum_ns(instance, objective)
    assert bound.value_ns == bound.certificate["sum_ns"] // len(instance)


@settings(max_examples=SOME)
@given(small(most=12))
def test_bound_at_most_every_method_and_re_derived(instance):
    for objective in OBJECTIVES:
        bound = orsched.bound(instance, objective)
        assert bound_violations(instance, bound.to_dict(), objective) == []
        assert bound.certificate["sum_ns"] >= 0
    for method in ("fcfs", "offline", "hybrid"):
        reached = sums_of(instance, method)
        for objective in OBJECTIVES:
            total = orsched.bound(instance, objective).certificate["sum_ns"]
            assert total <= round(reached[objective])


@settings(max_examples=SOME)
@given(small(most=12), st.randoms(use_true_random=False))
def test_row_order_changes_no_bound(instance, rng):
    rows = list(range(len(instance)))
    rng.shuffle(rows)
    permuted = instance.replace(requests=instance.requests.take(rows))
    for objective in OBJECTIVES:
        assert (
            orsched.bound(permuted, objective).certificate
            == orsched.bound(instance, objective).certificate
        )


@settings(max_examples=SOME)
@given(small(most=6))
def test_every_changed_certificate_is_refused(instance):
    """Each field of a certificate, changed, no longer proves the bound."""
    for objective in OBJECTIVES:
        document = orsched.bound(instance, objective).to_dict()
        for path in _leaves(document):
            broken = copy.deepcopy(document)
            owner = broken
            for key in path[:-1]:
                owner = owner[key]
            value = owner[path[-1]]
            owner[path[-1]] = value + 1 if isinstance(value, int) else value + "x"
            # Another choice may prove the same sum.
            chosen = {"line", "weight", "level", "smooth", *WINDOW_FIELDS}
            if chosen.intersection(path) and not bound_violations(instance, broken, objective):
                assert broken["value_ns"] == document["value_ns"]
                continue
            assert bound_violations(instance, broken, objective), path
        other = OBJECTIVES[objective == OBJECTIVES[0]]
        assert bound_violations(instance, document, other)
        assert bound_violations(instance, document)


def _leaves(value, path=()):
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _leaves(item, (*path, key))
    else:
        yield path


def named(instance, name):
    """Return the bound of a name among those on the mean JCT, whether or not it is the best."""
    for found in candidates(Context(instance), "mean_jct", lambda: False):
        if found["bound"] == name:
            return Bound(name, value_ns=found["value_ns"], certificate=found, reference={})
    raise AssertionError(name)


def test_malformed_certificates_are_refused_not_raised():
    instance = orsched.load("two-by-two")
    good = named(instance, "ranked").to_dict()
    claim = good["certificate"]
    (worker,) = claim["workers"]
    changes = (
        {"line": [10**12, 0, 1]},
        {"line": [-1, 0, 1]},
        {"line": [1, 0, 0]},
        {"line": [1]},
        {"stage_share": "memory"},
        {"round_share": "memory"},
        {"weight": 0},
        {"worker": 1},
    )
    for bad in (
        {},
        {**good, "certificate": None},
        {**good, "certificate": {}},
        {**good, "certificate": {**claim, "extra": 1}},
        *({**good, "certificate": {**claim, "workers": [{**worker, **c}]}} for c in changes),
        {**good, "certificate": {**claim, "bound": "queue"}, "name": "queue"},
        {**good, "value_ns": float(good["value_ns"])},
    ):
        assert bound_violations(instance, bad, "mean_jct")
    assert bound_violations(instance, good, "mean_tpot")


def test_one_client_meets_the_optimum():
    """One client: shortest first, one after the other, is optimal and the bound meets it."""
    instance = decoding([1, 2, 3], [3, 1, 2], Worker(1, in_order(AffineCost, 5, 1, 10, 1)))
    # Alone: 39, 18 and 30 ns; in the order of their lengths they end at 18, 48 and 87.
    bound = orsched.bound(instance, "mean_jct")
    assert bound.certificate["sum_ns"] == 18 + 48 + 87 == least_sum_ns(instance, "mean_jct")
    first = orsched.bound(instance, "mean_ttft").certificate["sum_ns"]
    assert first <= least_sum_ns(instance, "mean_ttft")


def test_late_first_tokens_wait_for_clients():
    """Two equal requests on one client: the second starts when the first has ended."""
    instance = decoding([1, 1], [50, 50], Worker(1, in_order(AffineCost, 5, 1, 10, 1)))
    bound = orsched.bound(instance, "mean_ttft")
    assert bound.name == "queue_ranks"
    assert bound.certificate["sum_ns"] == least_sum_ns(instance, "mean_ttft") == 2 * 17 + 556


def test_many_requests_at_once_are_bounded_by_ranks():
    """A full worker: far above what every request would take alone, and above mean busy times."""
    instance = orsched.load("pang-100x20")
    bound = orsched.bound(instance, "mean_jct")
    alone = [25_000_000 + 130_000 * p + 29_210_000 * d for p, d in _sizes(instance)]
    assert bound.name == "ranks"
    assert bound.value_ns > named(instance, "mean_busy").value_ns > 2 * sum(alone) // len(alone)


def _sizes(instance):
    req = instance.requests
    return zip(req.prompt_tokens.tolist(), req.output_tokens.tolist(), strict=True)


def test_queues_are_bounded_by_ranks():
    """A full worker: a start waits for an end, and ends come late on average."""
    instance = orsched.load("pang-100x20")
    bound = orsched.bound(instance, "mean_ttft")
    assert bound.name == "queue_ranks"
    assert bound_violations(instance, bound.to_dict(), "mean_ttft") == []
    assert bound.certificate["sum_ns"] <= round(sums_of(instance, "fcfs")["mean_ttft"])


def test_few_requests_that_fit_are_bounded_by_themselves():
    """With a free client for everyone and nothing shared, each takes what it takes alone."""
    cost = in_order(AffineCost, 0, 0, 7, 0)
    instance = decoding([1] * 3, [2, 3, 4], Worker(5, cost))
    bound = orsched.bound(instance, "mean_jct")
    assert bound.certificate["sum_ns"] == 7 * 9 == least_sum_ns(instance, "mean_jct")


def test_levels_and_memory_have_machine_times():
    levels = LevelsCost(levels=((10, 30), (20, 40), (80, 100)), round_fixed_ns=6)
    worker = Worker(4, levels, memory=BlockMemory(30, 1, "whole"))
    instance = decoding([8] * 6, [2] * 6, worker)
    bound = orsched.bound(instance, "mean_jct")
    assert "line" in bound.certificate["workers"][0]
    assert bound_violations(instance, bound.to_dict(), "mean_jct") == []
    assert bound.certificate["sum_ns"] > 6 * (30 + 12)


def test_empty_and_infeasible_instances():
    empty = decoding([], [], Worker(1))
    for objective in OBJECTIVES:
        bound = orsched.bound(empty, objective)
        assert (bound.name, bound.value_ns) == ("empty", 0)
        assert bound_violations(empty, bound.to_dict(), objective) == []
    with pytest.raises(InfeasibleError, match="prompt tokens"):
        orsched.bound(decoding([5], [1], Worker(1, prefill_cap_tokens=4)), "mean_jct")


def test_shortest_remaining_first_by_hand():
    """A shorter request that comes later interrupts; equal ones do not."""
    assert shortest_remaining_first([0, 2, 4], [10, 3, 1]) == [5, 6, 14]
    assert shortest_remaining_first([7, 0], [2, 3]) == [3, 9]
