"""Bounds: below every optimum and every method, re-derivable, and tight where they should be."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import BlockMemory, InfeasibleError, InputError, Instance, Requests, Worker
from orsched.checker.certificates import bound_violations, certificate_violations
from orsched.costs import (
    AffineCost,
    BilinearCost,
    LevelsCost,
    LinearCost,
    PoolingCost,
    RooflineCost,
)
from orsched.instances import catalog
from orsched.models.bounds.bounds import improving_bounds, makespan_bound, ordering_cannot_help
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.in_order import in_order

COSTS = (
    in_order(AffineCost, 25, 1, 29, 2),
    in_order(AffineCost, 0, 0, 7, 0),
    in_order(AffineCost, 100, 3, 1, 1),
    LevelsCost(levels=((4, 10), (9, 16)), round_fixed_ns=5),
    LevelsCost(levels=((9, 30),), round_fixed_ns=1),
    LevelsCost(levels=((9, 5), (16, 12), (40, 60)), round_fixed_ns=3),
    in_order(BilinearCost, 10**6, 2 * 10**6, 10**5, 3 * 10**6, 10**5, 10**6, 10**6, 2 * 10**6),
    in_order(BilinearCost, 1, 1, 1, 1, 1, 1, 1, 1),
    in_order(PoolingCost, 10**5, 10**6, 5 * 10**6, 10**6, 10**6),
    in_order(PoolingCost, 1, 1, 1, 1, 1),
    in_order(RooflineCost, 10**6, 30 * 10**6, 4 * 10**6, 10**6, 3 * 10**5),
    in_order(RooflineCost, 1, 1, 1, 1, 1),
    in_order(LinearCost, 30 * 10**6, 10**6, 10**5, 20 * 10**6, 3 * 10**6, 10**6, 4 * 10**6, 10**6),
)


@st.composite
def small(draw, most=4):
    """Feasible instances that the exhaustive search can solve."""
    n = draw(st.integers(1, most))
    column = lambda low, high: draw(st.lists(st.integers(low, high), min_size=n, max_size=n))  # noqa: E731
    arrivals = column(0, draw(st.sampled_from((0, 0, 100))))
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


@given(small())
def test_bound_at_most_optimum_at_most_every_method(instance):
    """INV: bound <= optimum <= every method, under every cost model."""
    bound = makespan_bound(instance)
    optimum = optimum_ns(instance)
    assert bound.value_ns <= optimum
    for method in ("fcfs", "offline", "online", "hybrid", "hybrid@predicted", "online@predicted"):
        result = orsched.solve(instance, method, iterations=3)
        assert result.makespan_ns >= optimum
        assert result.bound_ns == bound.value_ns
        assert result.checked


@given(small(), st.randoms(use_true_random=False))
def test_row_order_changes_neither_bound_nor_optimum(instance, rng):
    rows = list(range(len(instance)))
    rng.shuffle(rows)
    permuted = instance.replace(requests=instance.requests.take(rows))
    assert makespan_bound(permuted).value_ns == makespan_bound(instance).value_ns
    assert optimum_ns(permuted) == optimum_ns(instance)


@given(small(most=6), st.integers(2, 9))
def test_a_bound_has_no_unit_of_its_own(instance, factor):
    """INV-16: all times multiplied by a whole number multiply the bound by it, before rounding."""
    requests = instance.requests
    worker = dataclasses.replace(instance.worker, cost=instance.worker.cost.scaled(factor))
    scaled = instance.replace(
        workers=worker, requests=requests.replace(arrival_ns=requests.arrival_ns * factor)
    )
    value = makespan_bound(instance).value_ns  # rounded up from a fraction
    assert factor * (value - 1) < makespan_bound(scaled).value_ns <= factor * value


@given(small(most=6))
def test_every_certificate_is_re_derived(instance):
    bound = makespan_bound(instance)
    assert certificate_violations(instance, bound.to_dict()) == []


@settings(max_examples=15)
@given(small(most=5))
def test_every_changed_certificate_is_refused(instance):
    """Each leaf of a certificate, changed, no longer proves the bound."""
    document = makespan_bound(instance).to_dict()
    for path in _leaves(document):
        broken = copy.deepcopy(document)
        owner = broken
        for key in path[:-1]:
            owner = owner[key]
        value = owner[path[-1]]
        owner[path[-1]] = value + 1 if isinstance(value, int) else value + "x"
        # Another choice of set may prove the same numbers.
        choice = path[-1] in ("k", "l", "request", "released_ns")
        if choice and _same_claim(instance, broken, document):
            continue
        assert certificate_violations(instance, broken), path


def _leaves(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path


def _same_claim(instance, broken, document):
    return (
        broken["value_ns"] == document["value_ns"]
        and certificate_violations(instance, broken) == []
    )


def test_malformed_certificates_are_refused_not_raised():
    instance = orsched.load("two-by-two")
    good = makespan_bound(instance).to_dict()
    for bad in (
        {},
        {"name": "x", "value_ns": 1, "certificate": {}},
        {**good, "certificate": {"bound": "empty"}},
        {**good, "certificate": None},
        {**good, "name": "empty"},
        {**good, "certificate": {**good["certificate"], "extra": 1}},
        {**good, "certificate": {**good["certificate"], "prefill_stages": {"value": 9}}},
        {**good, "value_ns": float(good["value_ns"])},
    ):
        assert certificate_violations(instance, bad)


def test_single_request_is_bounded_exactly_while_pangs_value_is_no_bound():
    """One request of 68/345 takes 10.1 s, Pang's (31)-(32) says 24.8 s."""
    instance = decoding([68], [345], Worker(200, prefill_cap_tokens=2048))
    bound = makespan_bound(instance)
    alone = 25_000_000 + 68 * 130_000 + 345 * (29_000_000 + 210_000)
    assert bound.value_ns == alone == optimum_ns(instance)
    assert bound.reference["pang_31_32_ns"] > alone
    assert "pang_31_32_ns" not in bound.certificate
    prefill, decode = (bound.reference[f"pang_31_32_{part}_ns"] for part in ("prefill", "decode"))
    assert prefill == instance.worker.cost.prefill_ns([2048])
    assert decode == 345 * instance.worker.cost.round_ns(200, 0, 0)
    assert prefill + decode == bound.reference["pang_31_32_ns"]


def test_time_splits_into_constants_and_two_counts():
    """makespan = 0.13 sum N^p + 0.21 sum N^d + 25 K + 29 R, whatever the order."""
    instance = orsched.load("gsm8k-llama65b")
    req = instance.requests
    constant = 130_000 * int(req.prompt_tokens.sum()) + 210_000 * int(req.output_tokens.sum())
    for method in ("fcfs", "offline", "online", "hybrid@predicted"):
        row = orsched.solve(instance, method, iterations=2)
        stages = row.schedule.results["prefill_stages"]
        rounds = row.schedule.results["decode_rounds"]
        assert row.makespan_ns == constant + 25_000_000 * stages + 29_000_000 * rounds
        assert stages >= row.certificate["prefill_stages"]["value"]
        assert rounds >= row.certificate["decode_rounds"]["value"]


def test_late_arrivals_are_used():
    """Work released late cannot start before: the bound over all requests at 0 is beaten."""
    early, late = [4] * 2, [4] * 6
    instance = decoding(
        early + late,
        early + late,
        Worker(2, in_order(AffineCost, 1, 1, 1, 1)),
        arrival_ns=[0, 0] + [10**6] * 6,
    )
    bound = makespan_bound(instance)
    assert bound.certificate["released_ns"] == 10**6
    assert bound.value_ns > 10**6 + 12
    assert certificate_violations(instance, bound.to_dict()) == []


def test_lifted_bound_beats_volume_and_longest():
    """Three equal jobs on two clients: one client serves two of them."""
    instance = decoding([1] * 3, [5] * 3, Worker(2, in_order(AffineCost, 0, 0, 1, 0)))
    rounds = makespan_bound(instance).certificate["decode_rounds"]
    assert rounds == {"value": 10, "reason": "lifted", "k": 3, "l": 1}
    assert makespan_bound(instance).value_ns == optimum_ns(instance) == 10


def _with_memory(blocks, room, rounds):
    """Requests that hold the given blocks for the given rounds; a stage and a round cost 1."""
    prompts = [b - d for b, d in zip(blocks, rounds, strict=True)]
    worker = Worker(5, in_order(AffineCost, 1, 0, 1, 0), memory=BlockMemory(room, 1, "whole"))
    return decoding(prompts, rounds, worker)


@pytest.mark.parametrize(
    ("instance", "stages", "rounds"),
    [
        # One at a time: the clients that memory leaves.
        (_with_memory([10, 10], 10, [5, 5]), (2, "clients"), (10, "volume")),
        # Two of the smallest fit, but 22 block-rounds share 10.
        (_with_memory([3, 9, 5], 10, [1, 1, 2]), (2, "clients"), (3, "memory")),
        (_with_memory([12, 11, 3, 4], 13, [1, 1, 2, 2]), (3, "memory"), (3, "volume")),
        # Of those of more than half the memory one at a time, of more than a third two.
        (_with_memory([8, 3, 7], 13, [2, 1, 2]), (2, "clients"), (4, "large_requests", 1)),
        (
            _with_memory([3, 7, 8, 7], 13, [1, 1, 2, 1]),
            (3, "large_requests", 1),
            (4, "large_requests", 1),
        ),
        (
            _with_memory([3, 4, 6, 4, 4], 11, [1, 2, 1, 2, 2]),
            (2, "clients"),
            (4, "large_requests", 2),
        ),
    ],
)
def test_memory_can_be_what_bounds(instance, stages, rounds):
    bound = makespan_bound(instance)
    assert tuple(bound.certificate["prefill_stages"].values()) == stages
    assert tuple(bound.certificate["decode_rounds"].values()) == rounds
    assert bound.value_ns <= optimum_ns(instance)
    assert certificate_violations(instance, bound.to_dict()) == []


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ([6, 6, 6, 1], {"value": 3, "reason": "large_prompts", "k": 1}),
        ([4, 4, 4, 4, 4], {"value": 3, "reason": "large_prompts", "k": 2}),
        ([5, 5, 5, 5], {"value": 2, "reason": "cap"}),
    ],
)
def test_prompts_of_more_than_a_part_of_the_cap(prompts, expected):
    """Cap 10: one of more than 5 a stage, two of more than 3."""
    worker = Worker(6, in_order(AffineCost, 7, 0, 1, 0), prefill_cap_tokens=10)
    instance = decoding(prompts, [1] * len(prompts), worker)
    bound = makespan_bound(instance)
    assert bound.certificate["prefill_stages"] == expected
    assert bound.value_ns <= optimum_ns(instance)
    assert certificate_violations(instance, bound.to_dict()) == []


def test_levels_price_tokens_and_stages_together():
    """Four stages of two requests each; the small level holds one prompt, a large one two."""
    levels = LevelsCost(levels=((10, 30), (20, 40), (80, 100)), round_fixed_ns=0)
    instance = decoding([10] * 8, [1] * 8, Worker(2, levels))
    bound = makespan_bound(instance)
    # Alone: four of the smallest take 120, the cheapest cover 100; together 4 * 20 + 80.
    assert bound.value_ns == optimum_ns(instance) == 160
    assert certificate_violations(instance, bound.to_dict()) == []


def test_a_bilinear_stage_is_as_long_as_its_longest_prompt():
    """p3 alone: two a stage, sorted: 9 and 2; the mean alone would give 8."""
    cost = in_order(BilinearCost, 0, 0, 10**6, 0, 0, 0, 0, 0)
    instance = decoding([9, 1, 2, 4], [1] * 4, Worker(2, cost))
    bound = makespan_bound(instance)
    assert bound.certificate["prefill_ns"] == 9 + 2
    assert bound.value_ns == optimum_ns(instance) == 11
    assert certificate_violations(instance, bound.to_dict()) == []


def test_pooled_prompts_take_their_own_times():
    cost = in_order(PoolingCost, 10**6, -(10**6), 3 * 10**6, 0, 0)
    instance = decoding([1, 2, 5], [1] * 3, Worker(3, cost))
    bound = makespan_bound(instance)
    assert bound.certificate["prefill_ns"] == 3 + 3 + 20 == optimum_ns(instance) == bound.value_ns
    assert certificate_violations(instance, bound.to_dict()) == []


def test_fewer_requests_than_clients_share_a_pool():
    """Two requests on a hundred clients: the mean context is over two."""
    cost = in_order(PoolingCost, 0, 0, 0, 2 * 10**9, 10**9)
    instance = decoding([5, 5], [3, 3], Worker(100, cost))
    bound = makespan_bound(instance)
    assert optimum_ns(instance) - 3 <= bound.value_ns <= optimum_ns(instance)
    assert certificate_violations(instance, bound.to_dict()) == []


@settings(max_examples=15)
@given(st.integers(65, 120), st.randoms(use_true_random=False))
def test_row_order_does_not_matter_beyond_the_candidates(n, rng):
    """More ties than the longest request is looked for among: the value stays."""
    draw = lambda most: [rng.randint(1, most) for _ in range(n)]  # noqa: E731
    requests = Requests(draw(3), draw(3), arrival_ns=[10 * a for a in draw(3)])
    instance = Instance(
        requests, Worker(n, in_order(AffineCost, 5, 10**6, 1, 1)), first_token="decode"
    )
    rows = list(range(n))
    rng.shuffle(rows)
    permuted = instance.replace(requests=requests.take(rows))
    assert makespan_bound(permuted).value_ns == makespan_bound(instance).value_ns


def test_large_sums_do_not_overflow():
    """Sums beyond 64 bits are exact: context sums go with the square of the lengths."""
    n = 2**20
    cost = in_order(BilinearCost, 0, 0, 0, 0, 1, 0, 0, 0)
    instance = decoding(np.full(3, n), np.full(3, n), Worker(1, cost))
    certificate = makespan_bound(instance).certificate
    contexts = 3 * (n * n + n * (n + 1) // 2)
    assert certificate["context_sum"] == contexts
    assert certificate["decode_ns"] == -(-(contexts - 499_999 * 3 * n) // 10**6)


def test_negative_coefficients_give_the_last_arrival_only():
    cost = in_order(BilinearCost, 10**6, -1, 0, 10**7, 10**6, 0, 0, 10**7)
    instance = decoding([1, 2], [1, 2], Worker(2, cost), arrival_ns=[0, 50])
    bound = makespan_bound(instance)
    assert (bound.name, bound.value_ns) == ("last_arrival", 50)


def test_infeasible_and_unknown_objectives_are_refused():
    worker = Worker(1, prefill_cap_tokens=4)
    with pytest.raises(InfeasibleError, match=r"request 1 .*5 prompt tokens.*the 4 that"):
        makespan_bound(decoding([1, 5], [1, 1], worker))
    with pytest.raises(InfeasibleError, match="memory blocks"):
        makespan_bound(decoding([9], [9], Worker(1, memory=BlockMemory(2, 8, "whole"))))
    with pytest.raises(InputError, match="mean_tpot"):
        orsched.bound(orsched.load("two-by-two"), "mean_tpot")


def test_empty_instance_is_bounded_by_nothing():
    instance = decoding([], [], Worker(1))
    assert makespan_bound(instance).value_ns == 0
    assert certificate_violations(instance, makespan_bound(instance).to_dict()) == []
    assert orsched.solve(instance, "hybrid").makespan_ns == 0


@given(small())
def test_where_ordering_cannot_help_fcfs_is_optimal(instance):
    if ordering_cannot_help(instance) is not None:
        result = orsched.solve(instance, "fcfs")
        assert result.makespan_ns == optimum_ns(instance)
        assert any("no order can help" in note for note in result.notes)


def test_no_note_where_splitting_a_stage_is_cheaper():
    """Levels of 1 and 10 ms: two small stages beat the one that takes both requests."""
    worker = Worker(2, LevelsCost(levels=((100, 10**6), (200, 10**7)), round_fixed_ns=10**6))
    instance = decoding([100, 100], [5, 5], worker)
    assert ordering_cannot_help(instance) is None
    assert optimum_ns(instance) < orsched.solve(instance, "fcfs").makespan_ns


def test_no_note_where_there_is_a_queue():
    assert ordering_cannot_help(orsched.load("gsm8k-llama65b")) is None
    assert ordering_cannot_help(orsched.load("all-fit")) is not None


def test_shorter_requests_beside_it_shorten_a_pooled_round():
    """Pooling, delta alone: beside two short prompts a round takes less than one alone."""
    cost = in_order(PoolingCost, 0, 0, 0, 0, 3 * 10**6)
    instance = decoding([1, 1, 40], [2, 2, 2], Worker(3, cost))
    alone = 3 * (41 + 42)
    optimum = optimum_ns(instance)
    bound = makespan_bound(instance)
    assert bound.value_ns <= optimum < alone
    assert certificate_violations(instance, bound.to_dict()) == []
    # With nobody shorter beside it the bound is the time of a request on its own.
    single = decoding([40], [2], Worker(1, cost))
    assert makespan_bound(single).value_ns == optimum_ns(single) == alone


def test_a_moment_after_all_arrivals_proves_nothing():
    """Without a request released at or after it, a moment would be its own bound."""
    instance = decoding([3], [2], Worker(1, in_order(AffineCost, 1, 1, 1, 1)))
    forged = copy.deepcopy(makespan_bound(instance).to_dict())
    forged["name"] = "stages_and_rounds"
    forged["value_ns"] = 10**9
    forged["certificate"] = {
        "bound": "stages_and_rounds",
        "released_ns": 10**9,
        **dict.fromkeys(("requests", "clients", "prompt_tokens", "rounds_needed"), 0),
        **dict.fromkeys(("context_sum", "blocks", "block_rounds"), 0),
        "prefill_stages": {"value": 0, "reason": "clients"},
        "decode_rounds": {"value": 0, "reason": "volume"},
        "prefill_ns": 0,
        "decode_ns": 0,
        "value_ns": 10**9,
    }
    assert certificate_violations(instance, forged) == [
        "the certificate is malformed: ValueError('no request arrives at 1000000000 or later')"
    ]


def test_a_wrong_value_of_the_empty_bound_is_refused():
    assert certificate_violations(
        decoding([], [], Worker(1)),
        {"name": "empty", "value_ns": 1, "certificate": {"bound": "empty"}},
    )


@pytest.mark.parametrize(
    "limit", [0, -1, float("nan"), -float("inf"), True, "1", 1j, None.__class__]
)
def test_time_limits_that_are_none_are_refused(limit):
    with pytest.raises(InputError, match="time limit") as caught:
        orsched.bound(orsched.load("two-by-two"), time_limit=limit)
    assert caught.value.field == "time_limit"


@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
def test_no_time_at_all_leaves_the_cheapest_bound(objective):
    instance = orsched.load("pang-100x20")
    hurried = orsched.bound(instance, objective, time_limit=1e-9)
    best = orsched.bound(instance, objective)
    assert 0 < hurried.value_ns <= best.value_ns
    assert bound_violations(instance, hurried.to_dict(), objective) == []
    assert orsched.bound(instance, objective, time_limit=600) == best


@settings(max_examples=40)
@given(small(most=6))
def test_bounds_improve_from_one_to_the_next(instance):
    found = list(improving_bounds(instance, lambda: False))
    values = [bound.value_ns for bound in found]
    assert values == sorted(set(values))
    assert makespan_bound(instance) in found
    for bound in found:
        assert certificate_violations(instance, bound.to_dict()) == []
    assert next(improving_bounds(instance, lambda: True)) == found[0]


def test_dual_prices_prove_more_rounds():
    """Rounds that no formula excludes, and no packing onto the clients fits into."""
    instance = catalog.generate("gsm8k", seed=5, requests=100, clients=20)
    searched = orsched.bound(instance)
    rounds = searched.certificate["decode_rounds"]
    assert rounds["reason"] in ("dual", "cover")
    assert searched.value_ns > makespan_bound(instance).value_ns
    assert certificate_violations(instance, searched.to_dict()) == []
    for path in (("value",), ("duals",)):
        broken = copy.deepcopy(searched.to_dict())
        owner = broken["certificate"]["decode_rounds"]
        owner[path[0]] = owner["value"] + 1 if path[0] == "value" else []
        assert certificate_violations(instance, broken)
