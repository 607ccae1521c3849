"""Bounds on mean JCT and TTFT: below the exhaustive optimum and every method, re-derivable."""

import random
from itertools import accumulate, combinations, product
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import BlockMemory, Instance, Requests, Worker
from orsched.certificates.context import Context
from orsched.certificates.one_machine import shortest_remaining_first
from orsched.certificates.scope import PLAIN, Scope
from orsched.certificates.shared_rounds import (
    LATE,
    UNIT,
    WEIGHT,
    least_costs,
    parts_of,
    round_prices,
    shared_rounds,
)
from orsched.checker.certificates import bound_violations
from orsched.costs import AffineCost, LevelsCost, LinearCost, PoolingCost
from orsched.instances import with_arrivals
from orsched.models.bounds.bounds import Bound
from orsched.models.bounds.latency_bounds import OBJECTIVES, candidates
from orsched.models.bounds.shared_rounds_bound import falling, shared_rounds_choices
from tests.brute_force import least_sum_ns
from tests.decoding import decoding
from tests.forged import with_leaf
from tests.in_order import in_order
from tests.models.cases import proven, shuffled, small
from tests.models.least_in_any_mode import Search

SOME = settings.default.max_examples // 4
"""A search for prices on every example: few in the short tests, more in the full ones."""


def of(instance, objective):
    """The bound on a mean, whose certificate holds."""
    return proven(instance, orsched.bound(instance, objective), objective)


def sums_of(instance, method):
    """Return the sums of JCT and TTFT of a method's schedule."""
    results = orsched.solve(instance, method, iterations=3).schedule.results
    n = len(instance)
    return {"mean_jct": results["jct_ns"]["mean"] * n, "mean_ttft": results["ttft_ns"]["mean"] * n}


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=SOME * 2)
@given(instance=small(most=3))
def test_bound_at_most_the_least_sum(objective, instance):
    """INV: bound <= optimum, under every cost model, with arrivals, caps and memory."""
    bound = orsched.bound(instance, objective)
    assert bound.certificate["sum_ns"] <= least_sum_ns(instance, objective)
    assert bound.value_ns == bound.certificate["sum_ns"] // len(instance)


@settings(max_examples=SOME)
@given(small(most=12))
def test_bound_at_most_every_method_and_re_derived(instance):
    sums = {each: of(instance, each).certificate["sum_ns"] for each in OBJECTIVES}
    assert min(sums.values()) >= 0
    for method in ("fcfs", "offline", "hybrid"):
        reached = sums_of(instance, method)
        assert all(sums[objective] <= round(reached[objective]) for objective in OBJECTIVES)


@settings(max_examples=SOME)
@given(small(most=12), st.randoms(use_true_random=False))
def test_row_order_changes_no_bound(instance, rng):
    permuted = shuffled(instance, rng)
    for objective in OBJECTIVES:
        one, other = (orsched.bound(each, objective) for each in (permuted, instance))
        assert one.certificate == other.certificate


def named(instance, name):
    """Return the bound of a name among those on the mean JCT, whether or not it is the best."""
    for found in candidates(Context(instance), "mean_jct", lambda: False):
        if found["bound"] == name:
            return Bound(name, value_ns=found["value_ns"], certificate=found, reference={})
    raise AssertionError(name)


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
    """A full worker: far above what each takes alone, and above mean busy times; a start waits
    for an end, and ends come late on average."""
    instance = orsched.load("pang-100x20")
    bound, req = orsched.bound(instance, "mean_jct"), instance.requests
    alone = 25_000_000 + 130_000 * req.prompt_tokens + 29_210_000 * req.output_tokens
    assert bound.name == "ranks"
    assert bound.value_ns > named(instance, "mean_busy").value_ns > 2 * alone.mean()
    queue = of(instance, "mean_ttft")
    assert queue.name == "queue_ranks"
    assert queue.certificate["sum_ns"] <= round(sums_of(instance, "fcfs")["mean_ttft"])


def test_few_requests_that_fit_are_bounded_by_themselves():
    """With a free client for everyone and nothing shared, each takes what it takes alone."""
    cost = in_order(AffineCost, 0, 0, 7, 0)
    instance = decoding([1] * 3, [2, 3, 4], Worker(5, cost))
    bound = orsched.bound(instance, "mean_jct")
    assert bound.certificate["sum_ns"] == 7 * 9 == least_sum_ns(instance, "mean_jct")


def test_levels_and_memory_have_machine_times():
    levels = LevelsCost(levels=((10, 30), (20, 40), (80, 100)), round_fixed_ns=6)
    worker = Worker(4, levels, memory=BlockMemory(30, 1, "whole"))
    bound = of(decoding([8] * 6, [2] * 6, worker), "mean_jct")
    assert "line" in bound.certificate["workers"][0]
    assert bound.certificate["sum_ns"] > 6 * (30 + 12)


def test_shortest_remaining_first_by_hand():
    """A shorter request that comes later interrupts; equal ones do not."""
    assert shortest_remaining_first([0, 2, 4], [10, 3, 1]) == [5, 6, 14]
    assert shortest_remaining_first([7, 0], [2, 3]) == [3, 9]


COSTS = (
    in_order(AffineCost, 0, 5, 2, 2),
    in_order(AffineCost, 3, 9, 3, 0),
    in_order(AffineCost, 1, 1, 2, 9),
    in_order(AffineCost, 0, 30, 5, 1),
    in_order(LinearCost, 3 * 10**6, 9 * 10**6, 10**5, 2 * 10**6, 3 * 10**6, 10**6, 0, 0),
    LevelsCost(levels=((4, 40), (9, 66)), round_fixed_ns=3),
)


def drawn(rng, n, most=9, late=40):
    """A small instance of requests that are there together; half of them are of equals."""
    several = rng.choice((1, n))
    prompts, outputs = (
        [rng.randint(1, high) for _ in range(several)] * (n // several) for high in (most, 4)
    )
    arrivals = [rng.randint(0, late) for _ in range(n)]
    requests = Requests(prompts, outputs, arrival_ns=arrivals)
    first = rng.choice(("decode", "prefill"))
    return Instance(requests, Worker(rng.randint(2, 4), rng.choice(COSTS)), first_token=first)


def any_claim(rng, instance, scope):
    """Windows, levels and numbers at random, of which each proves something that is true."""
    parts, last = parts_of(Context(instance, scope)), int(instance.requests.arrival_ns.max())
    middle = rng.randint(1, last + len(instance) * int(parts.own.max()))
    starts = sorted({0, middle, rng.choice((middle, rng.randint(1, middle)))})
    prefill = [int(each) for each in parts.prefill if each > 0]
    levels = sorted(set(rng.sample(prefill, rng.randint(0, len(prefill)))))
    high = rng.choice((1, 1, 2, 3))
    most = high * WEIGHT
    ended = [[rng.randint(0, most) for _ in levels] for _ in starts[:-1]]
    return {
        "starts": starts,
        "levels": levels,
        "late": [rng.choice((LATE, 900, 700, 500, 300)) for _ in starts],
        "rounds": [rng.randint(0, high) for _ in starts[:-1]] + [0],
        "meet": [*ended, [0] * len(levels)],
    }


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.full) for s in range(1, 12))]
)
def test_any_numbers_prove_no_more_than_the_least_sum(seed):
    """INV: whatever a certificate chooses, bound <= optimum of all plain schedules."""
    rng, more = random.Random(seed), 0
    for _ in range(25):
        instance = drawn(rng, rng.randint(2, 5), late=rng.choice((0, 3, 20)))
        alone, least = int(parts_of(Context(instance)).own.sum()), None
        for _ in range(40):
            proven = shared_rounds(Context(instance), any_claim(rng, instance, PLAIN))
            if proven > alone:
                least = least or least_sum_ns(instance, "mean_jct")
                more += 1
                assert proven <= least
    assert more  # some prove more than that no request is faster than alone


def test_any_numbers_prove_no_more_where_steps_are_mixed():
    """INV: bound <= optimum of all schedules with chunks and mixed steps."""
    rng = random.Random(5)
    for _ in range(25):
        allows = rng.choice((("mixed",), ("chunks",), ("chunks", "mixed")))
        instance = drawn(rng, 2, most=3, late=0)
        scope = Scope.allowing(allows, instance)
        claims = [any_claim(rng, instance, scope) for _ in range(20)]
        proven = max(shared_rounds(Context(instance, scope), claim) for claim in claims)
        if proven > int(parts_of(Context(instance, scope)).own.sum()):
            assert proven <= Search(instance, allows, "mean_jct").least()


@pytest.mark.parametrize("seed", range(5))
def test_rounds_pay_for_their_pairs_and_no_more(seed):
    """What those in a round pay, less what is given back, is at most its pairs'; equals meet it."""
    rng = random.Random(seed)
    for _ in range(20):
        shared, windows = rng.randint(0, 9), rng.randint(1, 3)
        levels = sorted(rng.sample(range(1, 50), rng.randint(0, 2)))
        several = [(rng.randint(0, len(levels)), isqrt(WEIGHT**2 // rng.randint(1, 9)))] * 3
        kinds = [*several, *((rng.randint(0, len(levels)), rng.randint(0, WEIGHT)) for _ in "abc")]
        claim = {
            "starts": list(range(windows)),
            "levels": levels,
            "late": [rng.randint(0, LATE) for _ in range(windows)],
            "rounds": [rng.randint(0, 4) for _ in range(windows)],
            "meet": [[rng.randint(0, 3 * WEIGHT) for _ in levels] for _ in range(windows)],
        }
        prices, back = round_prices(claim, shared, kinds)
        before = list(accumulate(claim["late"], min))  # prefills lie before the rounds
        for window in range(windows):
            for m in range(len(kinds) + 1):
                for some in combinations(range(len(kinds)), m):
                    pairs = claim["late"][window] * shared * m * (m - 1) * (UNIT // LATE)
                    for (i, s), (j, t) in combinations([kinds[each] for each in some], 2):
                        least = [0, *levels][min(i, j)]
                        pairs += 2 * before[window] * least * s * t
                    assert sum(prices[each][window] for each in some) - back[window] <= pairs


def test_equal_requests_pay_all_that_their_pairs_cost():
    """Four that weigh the same: numbers that are theirs leave an eighth of one's square."""
    for s in (WEIGHT, WEIGHT // 3):
        claim = {"levels": [50], "late": [LATE, 0], "rounds": [3, 0]}
        meet = 7 * s // 2  # halfway between three and four
        prices, back = round_prices({**claim, "meet": [[meet], [0]]}, 7, [(1, s)])
        pairs = 7 * 12 * UNIT + 50 * LATE * 12 * s * s
        assert 0 <= pairs - (4 * prices[0][0] - back[0]) <= 50 * LATE * (s * s // 4 + 8 * s)


def test_of_two_that_share_rounds_the_product_of_weights_is_small_enough():
    """A pair pays for each shared round no more than the smaller prefill over all of them."""
    instance = decoding([3] * 40, range(1, 41), Worker(2, in_order(AffineCost, 1, 1, 2, 2)))
    weights, tokens = parts_of(Context(instance)).weights().tolist(), range(1, 41)
    for (s, p), (t, q) in product(zip(weights, tokens, strict=True), repeat=2):
        assert s * t * min(p, q) <= WEIGHT**2
        assert p != q or s * t * p > 0.99 * WEIGHT**2


def test_who_is_prefilled_later_has_waited_for_it():
    """Where the first window is dear, a prefill of 10 waits 90 of it: its share, and lateness."""
    instance = decoding([10], [1], Worker(1, in_order(AffineCost, 0, 1, 5, 0)))
    parts = parts_of(Context(instance))
    assert (parts.prefill[0], parts.first[0], parts.decode[0]) == (10, 0, 5)
    starts, none = np.array([0, 100, 200]), np.zeros((1, 3), np.int64)
    for share in (0, 1, 3, 4):
        shares = np.array([share] * 3)
        found = least_costs(parts, starts, none, np.array([1000, 0, 0]), shares, 4)
        late = (4 - share) * (100 - (0 if share == 4 else 5))  # its round may be in the first
        assert found.cost[0] == share * (100 - 10) + late
        assert found.prefill[0].tolist() == [0, 10, 0]
        assert least_costs(parts, starts, none, np.zeros(3, np.int64), shares, 4).cost[0] == 0


@pytest.mark.parametrize("allows", [(), ("chunks", "mixed")])
def test_a_queue_for_prefills_counts_in_full(allows):
    """Requests come twice as fast as they are done one by one: more than half of what they wait."""
    made = Requests([50] * 60, [3] * 60, arrival_ns=[25 * k for k in range(60)])
    instance = Instance(made, Worker(60, in_order(AffineCost, 0, 1, 2, 0)), first_token="prefill")
    scope = Scope.allowing(allows, instance)
    alone = int(parts_of(Context(instance, scope)).own.sum())
    _, claim = shared_rounds_choices(Context(instance, scope), lambda: False)
    in_turn = sum((50 + 2 * 2) * (k + 1) - 25 * k for k in range(60))
    assert alone + (in_turn - alone) / 2 < shared_rounds(Context(instance, scope), claim) <= in_turn


def test_who_waits_pays_no_share_of_rounds():
    """Two requests, better one after the other: lateness and shared rounds are no two costs."""
    instance = decoding([1, 1], [1, 1], Worker(2, in_order(AffineCost, 0, 0, 20, 100)))
    assert least_sum_ns(instance, "mean_jct") == 120 + 240 < 2 * 220
    for middle, late in product(range(60, 400, 20), range(0, LATE + 1, 64)):
        rows = {"late": [late, 0], "rounds": [1, 0], "meet": [[], []]}
        claim = {"starts": [0, middle], "levels": [], **rows}
        assert shared_rounds(Context(instance), claim) <= 120 + 240


@pytest.mark.parametrize("workers", [1, 2])
def test_a_steady_stream_is_close_to_its_bound(workers):
    """Rounds of twenty requests, without prefills: most of what sharing costs, and never more."""
    several = (Worker(200, in_order(AffineCost, 0, 0, 20, 1)),) * workers
    arrivals = [40 * k // workers for k in range(200)]
    instance = decoding([1] * 200, [20] * 200, several, arrival_ns=arrivals)
    least = orsched.solve(instance, "fcfs").schedule.results["jct_ns"]["mean"] * len(instance)
    alone, proven = int(parts_of(Context(instance)).own.sum()), []
    _, claim = shared_rounds_choices(Context(instance), lambda: False)
    for late in (claim["late"], *([share] * len(claim["late"]) for share in (400, 600, 800, 900))):
        proven.append(shared_rounds(Context(instance), {**claim, "late": late}))
    assert alone + (least - alone) // 2 < max(proven) <= least


@pytest.mark.parametrize(
    ("times", "prompt"),
    [
        *(((0, 0, 20, 3), 1), ((0, 0, 20, 6), 1), ((0, 12, 20, 0), 2)),
        pytest.param((5, 30, 20, 3), 2, marks=pytest.mark.full),
    ],
)
def test_equal_requests_at_once(times, prompt):
    """All numbers of a grid, where they prove most: a fifth of what sharing costs, no more."""
    worker = Worker(4, in_order(AffineCost, *times))
    instance = decoding([prompt] * 3, [6] * 3, worker)
    least, parts = least_sum_ns(instance, "mean_jct"), parts_of(Context(instance))
    alone, levels = int(parts.own.sum()), sorted({*parts.prefill.tolist()} - {0})
    weight = int(parts.weights()[0])
    best, middles = 0, range(least // 6, 2 * least // 3, 10)
    for middle, late, a, b in product(middles, range(64, LATE + 1, 64), (0, 1, 2), (0, 3, 5)):
        meet = [[b * weight // 2] * len(levels), [0] * len(levels)]
        rows = {"late": [late, 0], "rounds": [a, 0], "meet": meet}
        claim = {"starts": [0, middle], "levels": levels, **rows}
        best = max(best, shared_rounds(Context(instance), claim))
    assert alone + (least - alone) // 6 < best <= least


def busy(workers=2, requests=60, rate=40):
    """Requests that arrive faster than they end, with long prefills."""
    rng = np.random.default_rng(3)
    made = Requests(rng.integers(20, 400, requests), rng.integers(5, 60, requests))
    worker = Worker(64, in_order(AffineCost, 20_000_000, 100_000, 20_000_000, 300_000))
    instance = Instance(made, (worker,) * workers, first_token="prefill")
    return with_arrivals(instance, f"poisson:rate={rate}", seed=1)


def test_it_is_above_all_others_where_requests_are_there_together():
    """The best of all bounds, below every policy, on two workers, with mixed steps."""
    instance = busy()
    allows = ("chunks", "mixed")
    bound = orsched.bound(instance, "mean_jct", allows=allows)
    assert bound.name == "shared_rounds"
    scope = Scope.allowing(allows, instance)
    others = list(candidates(Context(instance, scope), "mean_jct", lambda: False))[:-1]
    assert bound.value_ns > 1.1 * max(each["value_ns"] for each in others)
    for method in ("vllm", "gittins@clairvoyant", "fcfs+dispatch=least_work"):
        assert bound.value_ns <= orsched.solve(instance, method).schedule.results["jct_ns"]["mean"]


def test_it_is_the_same_for_requests_in_any_order():
    instance = busy()
    one, other = (
        orsched.bound(each, "mean_jct") for each in (instance, shuffled(instance, random.Random(1)))
    )
    assert one.certificate == other.certificate


def test_forged_certificates_are_refused():
    instance = busy()
    good = orsched.bound(instance, "mean_jct").to_dict()
    claim = good["certificate"]
    assert bound_violations(instance, good, "mean_jct") == []
    last = len(claim["starts"]) - 1
    starts, levels, late, rounds = (claim[name] for name in ("starts", "levels", "late", "rounds"))
    last_has_no_end = [*rounds[:last], 1]
    for name, values in {
        "sum_ns": (claim["sum_ns"] + 1,),
        "starts": ([1, *starts[1:]], starts[::-1], starts[:-1]),
        "levels": (levels[::-1], [*levels, 2**61]),
        "late": ([LATE + 1, *late[1:]], [-1, *late[1:]]),
        "rounds": (rounds[:-1], last_has_no_end, [2**30] * (last + 1)),
        "meet": ([row[:-1] for row in claim["meet"]],),
        "allows": (["restarts"],),
    }.items():
        for value in values:
            broken = with_leaf(good, ("certificate", name), value)
            assert bound_violations(instance, broken, "mean_jct"), (name, value)
    above = {**good, "value_ns": good["value_ns"] + 1}
    assert bound_violations(instance, above, "mean_jct")
    assert bound_violations(instance, good, "mean_ttft")
    half = {**claim, "rounds": [0] * (last + 1), "meet": [[0] * len(row) for row in claim["meet"]]}
    assert bound_violations(instance, {**good, "certificate": half}, "mean_jct")


def test_where_parts_do_not_add_up_there_is_none():
    """Restarts, a mean context, and rounds without a fixed part."""
    instance = busy()
    mean_context = in_order(PoolingCost, 10, 10**6, 5 * 10**6, 10**6, 10**6)
    others = (
        instance.replace(workers=(Worker(4, cost),))
        for cost in (mean_context, in_order(AffineCost, 0, 1, 0, 1))
    )
    for context in (Context.allowing(instance, ["restarts"]), *map(Context, others)):
        assert shared_rounds_choices(context, lambda: False) is None


def test_shares_that_rise_become_their_mean():
    """The closest values that never rise keep the weighted sum, and what falls already."""
    values, weights = np.array([0.1, 0.9, 0.5, 0.6, 0.2]), np.array([1.0, 3.0, 1.0, 1.0, 9.0])
    found = falling(values, weights)
    assert np.allclose(found, [0.7, 0.7, 0.55, 0.55, 0.2])
    assert np.isclose((found * weights).sum(), (values * weights).sum())
    already = values[::-1].cumsum()[::-1]
    assert np.array_equal(falling(already, weights), already)
