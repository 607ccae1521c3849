"""Bounds: below every optimum and every method, re-derivable, and tight where they should be."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import BlockMemory, InfeasibleError, InputError, Worker
from orsched.checker.certificates import certificate_violations
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost
from orsched.instances import catalog
from orsched.models.bounds.bounds import improving_bounds, makespan_bound
from orsched.models.bounds.ordering import ordering_cannot_help
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.forged import with_leaf
from tests.in_order import in_order
from tests.models.cases import FALLING, proven, shuffled, small


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
    permuted = shuffled(instance, rng)
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
    worker, lengths = Worker(2, in_order(AffineCost, 1, 1, 1, 1)), [4] * 8
    instance = decoding(lengths, lengths, worker, arrival_ns=[0, 0] + [10**6] * 6)
    bound = proven(instance)
    assert bound.certificate["released_ns"] == 10**6
    assert bound.value_ns > 10**6 + 12


def test_lifted_bound_beats_volume_and_longest():
    """Three equal jobs on two clients: one client serves two of them."""
    instance = decoding([1] * 3, [5] * 3, Worker(2, in_order(AffineCost, 0, 0, 1, 0)))
    rounds = makespan_bound(instance).certificate["decode_rounds"]
    assert rounds == {"value": 10, "reason": "lifted", "k": 3, "l": 1}
    assert makespan_bound(instance).value_ns == optimum_ns(instance) == 10


LARGE = "large_requests"


@pytest.mark.parametrize(
    ("blocks", "room", "rounds", "least_stages", "least_rounds"),
    [
        # One at a time: the clients that memory leaves.
        ([10, 10], 10, [5, 5], (2, "clients"), (10, "volume")),
        # Two of the smallest fit, but 22 block-rounds share 10.
        ([3, 9, 5], 10, [1, 1, 2], (2, "clients"), (3, "memory")),
        ([12, 11, 3, 4], 13, [1, 1, 2, 2], (3, "memory"), (3, "volume")),
        # Of those of more than half the memory one at a time, of more than a third two.
        ([8, 3, 7], 13, [2, 1, 2], (2, "clients"), (4, LARGE, 1)),
        ([3, 7, 8, 7], 13, [1, 1, 2, 1], (3, LARGE, 1), (4, LARGE, 1)),
        ([3, 4, 6, 4, 4], 11, [1, 2, 1, 2, 2], (2, "clients"), (4, LARGE, 2)),
    ],
)
def test_memory_can_be_what_bounds(blocks, room, rounds, least_stages, least_rounds):
    """Requests that hold blocks for so many rounds; a stage and a round cost 1."""
    prompts = [b - d for b, d in zip(blocks, rounds, strict=True)]
    worker = Worker(5, in_order(AffineCost, 1, 0, 1, 0), memory=BlockMemory(room, 1, "whole"))
    bound = proven(instance := decoding(prompts, rounds, worker))
    assert tuple(bound.certificate["prefill_stages"].values()) == least_stages
    assert tuple(bound.certificate["decode_rounds"].values()) == least_rounds
    assert bound.value_ns <= optimum_ns(instance)


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
    bound = proven(instance := decoding(prompts, [1] * len(prompts), worker))
    assert bound.certificate["prefill_stages"] == expected
    assert bound.value_ns <= optimum_ns(instance)


@pytest.mark.parametrize(
    ("cost", "clients", "prompts", "value"),
    [
        # Four stages of two; a small level holds one prompt, a large one two. Alone: four of the
        # smallest take 120, the cheapest cover 100; together 4 * 20 + 80.
        (LevelsCost(levels=((10, 30), (20, 40), (80, 100)), round_fixed_ns=0), 2, [10] * 8, 160),
        # p3 alone, a stage as long as its longest prompt: two a stage, sorted; the mean gives 8.
        (in_order(BilinearCost, 0, 0, 10**6, 0, 0, 0, 0, 0), 2, [9, 1, 2, 4], 9 + 2),
        # Pooled prompts take their own times.
        (in_order(PoolingCost, 10**6, -(10**6), 3 * 10**6, 0, 0), 3, [1, 2, 5], 3 + 3 + 20),
    ],
    ids=["levels", "bilinear", "pooling"],
)
def test_stages_are_priced_as_the_model_says(cost, clients, prompts, value):
    instance = decoding(prompts, [1] * len(prompts), Worker(clients, cost))
    bound = proven(instance)
    assert bound.value_ns == optimum_ns(instance) == value
    assert isinstance(cost, LevelsCost) or bound.certificate["prefill_ns"] == value


def test_fewer_requests_than_clients_share_a_pool():
    """Two requests on a hundred clients: the mean context is over two."""
    cost = in_order(PoolingCost, 0, 0, 0, 2 * 10**9, 10**9)
    instance = decoding([5, 5], [3, 3], Worker(100, cost))
    assert optimum_ns(instance) - 3 <= proven(instance).value_ns <= optimum_ns(instance)


@settings(max_examples=15)
@given(st.integers(65, 120), st.randoms(use_true_random=False))
def test_row_order_does_not_matter_beyond_the_candidates(n, rng):
    """More ties than the longest request is looked for among: the value stays."""
    prompts, outputs, late = ([rng.randint(1, 3) for _ in range(n)] for _ in range(3))
    worker = Worker(n, in_order(AffineCost, 5, 10**6, 1, 1))
    instance = decoding(prompts, outputs, worker, arrival_ns=[10 * a for a in late])
    permuted = shuffled(instance, rng)
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
    instance = decoding([1, 2], [1, 2], Worker(2, FALLING), arrival_ns=[0, 50])
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


@given(small())
def test_where_ordering_cannot_help_fcfs_is_optimal(instance):
    if ordering_cannot_help(instance) is not None:
        result = orsched.solve(instance, "fcfs")
        assert result.makespan_ns == optimum_ns(instance)
        assert any("no order can help" in note for note in result.notes)


def test_no_note_where_splitting_a_stage_is_cheaper_or_there_is_a_queue():
    """Levels of 1 and 10 ms: two small stages beat the one that takes both requests."""
    worker = Worker(2, LevelsCost(levels=((100, 10**6), (200, 10**7)), round_fixed_ns=10**6))
    instance = decoding([100, 100], [5, 5], worker)
    assert ordering_cannot_help(instance) is None
    assert optimum_ns(instance) < orsched.solve(instance, "fcfs").makespan_ns
    assert ordering_cannot_help(orsched.load("gsm8k-llama65b")) is None
    assert ordering_cannot_help(orsched.load("all-fit")) is not None


def test_shorter_requests_beside_it_shorten_a_pooled_round():
    """Pooling, delta alone: beside two short prompts a round takes less than one alone."""
    cost, alone = in_order(PoolingCost, 0, 0, 0, 0, 3 * 10**6), 3 * (41 + 42)
    instance = decoding([1, 1, 40], [2, 2, 2], Worker(3, cost))
    assert proven(instance).value_ns <= optimum_ns(instance) < alone
    # With nobody shorter beside it the bound is the time of a request on its own.
    single = decoding([40], [2], Worker(1, cost))
    assert makespan_bound(single).value_ns == optimum_ns(single) == alone


def test_a_moment_after_all_arrivals_proves_nothing():
    """Without a request released at or after it, a moment would be its own bound."""
    instance, name = decoding([3], [2], Worker(1)), "stages_and_rounds"
    sums = ("requests", "clients", "prompt_tokens", "rounds_needed", "context_sum", "blocks")
    claim = {
        **{"bound": name, "released_ns": 10**9, "value_ns": 10**9},
        **dict.fromkeys((*sums, "block_rounds", "prefill_ns", "decode_ns"), 0),
        "prefill_stages": {"value": 0, "reason": "clients"},
        "decode_rounds": {"value": 0, "reason": "volume"},
    }
    assert certificate_violations(
        instance, {"name": name, "value_ns": 10**9, "certificate": claim}
    ) == ["the certificate is malformed: ValueError('no request arrives at 1000000000 or later')"]


@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
def test_no_time_at_all_leaves_the_cheapest_bound(objective):
    instance = orsched.load("pang-100x20")
    hurried = orsched.bound(instance, objective, time_limit=1e-9)
    best = orsched.bound(instance, objective)
    assert 0 < proven(instance, hurried, objective).value_ns <= best.value_ns
    assert orsched.bound(instance, objective, time_limit=600) == best


@settings(max_examples=40)
@given(small(most=6))
def test_bounds_improve_from_one_to_the_next(instance):
    found = list(improving_bounds(instance, lambda: False))
    values = [proven(instance, bound).value_ns for bound in found]
    assert values == sorted(set(values))
    assert makespan_bound(instance) in found
    assert next(improving_bounds(instance, lambda: True)) == found[0]


def test_dual_prices_prove_more_rounds():
    """Rounds that no formula excludes, and no packing onto the clients fits into."""
    instance = catalog.generate("gsm8k", seed=5, requests=100, clients=20)
    searched = proven(instance, orsched.bound(instance))
    rounds = searched.certificate["decode_rounds"]
    assert rounds["reason"] in ("dual", "cover")
    assert searched.value_ns > makespan_bound(instance).value_ns
    for name, value in (("value", rounds["value"] + 1), ("duals", [])):
        broken = with_leaf(searched.to_dict(), ("certificate", "decode_rounds", name), value)
        assert certificate_violations(instance, broken)
