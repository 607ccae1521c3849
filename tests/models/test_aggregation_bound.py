"""Bounds by charges: arrivals that ramp up, unequal workers; below the optimum, re-derivable."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from heapq import heappop, heappush
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings

import orsched
from orsched import BlockMemory, InfeasibleError, Instance, Requests, Worker
from orsched.certificates.context import Context
from orsched.certificates.one_machine import Workers
from orsched.checker.certificates import bound_violations, certificate_violations
from orsched.costs import AffineCost, BilinearCost, mixed_ns
from orsched.models.bounds.bounds import improving_bounds, makespan_bound
from orsched.models.bounds.latency_bounds import OBJECTIVES
from orsched.models.bounds.makespan_certificates import (
    balanced_weights,
    best_shares,
    charged_certificates,
)
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.divisions import divisible, least_over_divisions
from tests.models.least_sums import least_sum_ns


@settings(max_examples=50)
@given(divisible())
def test_bound_at_most_the_optimum_and_re_derived(instance):
    """INV: bound <= optimum over every division, under every cost model, cap and memory."""
    optimum = least_over_divisions(instance, optimum_ns, max)
    if optimum is None:
        with pytest.raises(InfeasibleError, match="request"):
            makespan_bound(instance)
        return
    for bound in improving_bounds(instance, lambda: False):
        assert bound.value_ns <= optimum
        assert certificate_violations(instance, bound.to_dict()) == []


@settings(max_examples=60)
@given(divisible(most=3))
def test_mean_bounds_at_most_the_optimum_and_re_derived(instance):
    for objective in OBJECTIVES:
        least = least_over_divisions(
            instance, lambda part, of=objective: least_sum_ns(part, of), sum
        )
        assume(least is not None)
        bound = orsched.bound(instance, objective)
        assert bound.certificate["sum_ns"] <= least
        assert bound_violations(instance, bound.to_dict(), objective) == []


@settings(max_examples=30)
@given(divisible(most=3))
def test_no_changed_certificate_proves_too_much(instance):
    optimum = least_over_divisions(instance, optimum_ns, max)
    assume(optimum is not None)
    for certificate in charged_if_any(instance):
        document = {
            "name": "charged",
            "value_ns": certificate["value_ns"],
            "certificate": certificate,
        }
        for broken in changed(document):
            assert broken["value_ns"] <= optimum or certificate_violations(instance, broken)


def charged_if_any(instance):
    if all(bound.name != "charged" for bound in improving_bounds(instance, lambda: False)):
        return []
    return list(charged_certificates(Context(instance), lambda: False))


def changed(document):
    """Yield the document with one leaf changed, and its value raised or not."""
    for path in leaves(document["certificate"]):
        for change in (lambda x: x + 1, lambda x: x - 1, lambda x: 2 * x + 10**6, lambda x: -x):
            for raised in (0, 1, 20):
                broken = copy.deepcopy(document)
                owner = broken["certificate"]
                for key in path[:-1]:
                    owner = owner[key]
                owner[path[-1]] = change(owner[path[-1]])
                broken["certificate"]["value_ns"] += raised
                broken["value_ns"] = broken["certificate"]["value_ns"]
                yield broken


def leaves(value, path=()):
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    elif isinstance(value, int):
        yield path


@settings(max_examples=60)
@given(divisible(workers=1))
def test_no_step_charges_more_than_it_takes(instance):
    """The heart of the proof, step by step: random stages and rounds of requests that fit."""
    (worker,) = instance.workers
    context = Context(instance)
    rows, jobs = context.fit(0)
    assume(rows)
    (part,) = Workers.of(context, best_shares(context)).parts
    charges, rng = part.charges, random.Random(len(rows))
    prompts, rounds = jobs.prompts.tolist(), jobs.rounds.tolist()
    for _ in range(20):
        at = rng.sample(range(len(rows)), rng.randint(1, charges.clients))
        if worker.memory is not None and int(jobs.blocks[at].sum()) > worker.memory.blocks:
            continue
        limit = worker.prefill_limit
        if limit is None or int(jobs.prompts[at].sum()) <= limit:
            taken = worker.cost.prefill_ns([prompts[k] for k in at]) * charges.scale
            assert 0 <= sum(charges.stages[k] for k in at) <= taken
        at = [k for k in at if rounds[k]]
        if at:
            done = {k: rng.randint(1, rounds[k]) for k in at}
            contexts = [prompts[k] + done[k] for k in at]
            taken = worker.cost.round_ns(len(at), sum(contexts), max(contexts)) * charges.scale
            parts = [charges.first[k] + charges.growth * done[k] for k in at]
            wasted = charges.round_fixed * (charges.clients - len(at))
            assert min(parts) >= 0
            assert charges.clients * (taken - sum(parts)) >= wasted
            assert max(parts) <= charges.round_most or charges.round_fixed == 0


def least_with_mixed_steps(instance):
    """Return the least makespan if a round may have whole prompts beside it (one worker)."""
    worker, req = instance.worker, instance.requests
    prompts, arrivals = req.prompt_tokens.tolist(), req.arrival_ns.tolist()
    needed = instance.rounds_needed.tolist()
    start = (tuple(range(len(prompts))), ())
    heap, best = [(0, start)], {start: 0}
    while heap:
        now, (waiting, running) = heappop(heap)
        if not waiting and not running:
            return now
        moments = {now, *(arrivals[i] for i in waiting if arrivals[i] > now)}
        for moment in moments:
            here = [i for i in waiting if arrivals[i] <= moment]
            for size in range(min(len(here), worker.clients - len(running)) + 1):
                for stage in combinations(here, size):
                    tokens = [prompts[i] for i in stage]
                    if worker.prefill_limit is not None and sum(tokens) > worker.prefill_limit:
                        continue
                    for decoders in {(), running}:
                        if not stage and not decoders:
                            continue
                        contexts = [prompts[i] + needed[i] - left + 1 for i, left in decoders]
                        took = mixed_ns(
                            worker.cost,
                            tokens,
                            len(decoders),
                            sum(contexts),
                            max(contexts, default=0),
                        )
                        left = running
                        if decoders:
                            left = tuple((i, more - 1) for i, more in running if more > 1)
                        begun = tuple((i, needed[i]) for i in stage if needed[i])
                        state = (
                            tuple(i for i in waiting if i not in stage),
                            tuple(sorted(left + begun)),
                        )
                        if moment + took < best.get(state, 2**63):
                            best[state] = moment + took
                            heappush(heap, (moment + took, state))
    raise AssertionError("no schedule")


@settings(max_examples=80)
@given(divisible(workers=1))
def test_a_bound_that_holds_for_mixed_steps(instance):
    worker = replace(instance.worker, memory=None)
    instance = instance.replace(workers=worker)
    assume(Context(instance).fit(0).rows == list(range(len(instance))))
    bound = orsched.bound(instance, allows=("chunks", "mixed"))
    assert bound.value_ns <= least_with_mixed_steps(instance)
    assert certificate_violations(instance, bound.to_dict()) == []


def test_mixed_steps_can_beat_the_other_bounds():
    """One fixed part for a stage and a round together: below what separate steps can reach."""
    worker = Worker(3, in_order(AffineCost, 50, 0, 50, 0), prefill_cap_tokens=1)
    instance = decoding([1] * 6, [8, 1, 1, 1, 1, 1], worker)
    mixed = orsched.bound(instance, allows=("chunks", "mixed"))
    assert mixed.value_ns <= least_with_mixed_steps(instance)
    assert least_with_mixed_steps(instance) < makespan_bound(instance).value_ns


def poisson(requests, per_s, seed=0):
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.exponential(1e9 / per_s, requests)).astype(np.int64)


def test_few_requests_at_first_waste_clients():
    """A ramp of arrivals: rounds are long for what they yield until the clients are busy."""
    base = orsched.load("gsm8k-llama65b")
    requests = base.requests.replace(arrival_ns=poisson(len(base), 10))
    instance = base.replace(requests=requests)
    found = list(improving_bounds(instance, lambda: False))
    by_counts = max(b.value_ns for b in found if b.name != "charged")
    assert found[-1].name == "charged"
    assert found[-1].value_ns > 1.02 * by_counts
    assert certificate_violations(instance, found[-1].to_dict()) == []


def test_a_slow_worker_is_worth_what_it_is():
    """Half as fast at everything, and with half the clients: less than a second worker."""
    one = orsched.load("pang-100x20")
    cost = one.worker.cost.scaled(2)
    slow = replace(one.worker, cost=cost, clients=one.worker.clients // 2, name="slow")
    values = [
        makespan_bound(one.replace(workers=workers)).value_ns
        for workers in ((one.worker,) * 2, (one.worker, slow), (one.worker,))
    ]
    assert values[0] < values[1] < values[2]


def test_weights_are_the_speeds_of_proportional_workers():
    """Twice as fast: twice the weight, and the bound is the work over the summed speed."""
    fast, slow = (
        Worker(1, in_order(AffineCost, 0, 0, 10, 0)),
        Worker(1, in_order(AffineCost, 0, 0, 20, 0), name="slow"),
    )
    instance = decoding([1] * 9, [10] * 9, (fast, slow))
    context = Context(instance)
    assert balanced_weights(Workers.of(context, best_shares(context)), None) == [2, 1]
    assert makespan_bound(instance).value_ns == 600
    assert makespan_bound(instance).value_ns == least_over_divisions(instance, optimum_ns, max)


def test_a_worker_too_slow_to_end_in_time_serves_nobody():
    """One request takes 1,000 there, the other worker serves all three in 300."""
    fast, slow = (
        Worker(1, in_order(AffineCost, 0, 0, 10, 0)),
        Worker(1, in_order(AffineCost, 0, 0, 100, 0), name="s"),
    )
    instance = decoding([1] * 3, [10] * 3, (fast, slow))
    bound = makespan_bound(instance)
    assert bound.value_ns == 300 == least_over_divisions(instance, optimum_ns, max)
    assert certificate_violations(instance, bound.to_dict()) == []


def test_workers_of_which_nothing_is_known():
    odd = Worker(1, in_order(BilinearCost, 10**6, -1, 0, 10**7, 10**6, 0, 0, 10**7), name="odd")
    instance = decoding([1, 2], [1, 2], (Worker(1), odd), arrival_ns=[0, 50])
    assert (makespan_bound(instance).name, makespan_bound(instance).value_ns) == (
        "last_arrival",
        50,
    )
    for objective in OBJECTIVES:
        bound = orsched.bound(instance, objective)
        assert (bound.name, bound.value_ns) == ("arrivals", 0)
        assert bound_violations(instance, bound.to_dict(), objective) == []


def test_a_request_that_fits_onto_no_worker_is_named():
    workers = (
        Worker(1, prefill_cap_tokens=4, name="small"),
        Worker(1, memory=BlockMemory(2, 4, "whole"), name="tiny"),
    )
    instance = decoding([3, 5], [9, 9], workers)
    for objective in ("makespan", *OBJECTIVES):
        with pytest.raises(InfeasibleError, match=r"row 1\).*the 4 .*small.*; it .*tiny"):
            orsched.bound(instance, objective)
    assert makespan_bound(instance.replace(requests=Requests([3, 3], [9, 1]))).value_ns > 0


def test_empty_instances_of_several_workers():
    empty = decoding([], [], (Worker(1), Worker(2)))
    for objective in ("makespan", *OBJECTIVES):
        bound = orsched.bound(empty, objective)
        assert (bound.name, bound.value_ns) == ("empty", 0)
        assert bound_violations(empty, bound.to_dict(), objective) == []


def test_paged_blocks_do_not_limit_the_clients():
    """Blocks that grow with the cache: more requests at once than fit with all their tokens."""
    whole = Worker(4, in_order(AffineCost, 1, 0, 10, 0), memory=BlockMemory(10, 1, "whole"))
    paged = replace(whole, memory=BlockMemory(10, 1, "paged"))
    requests = Requests([1] * 4, [4] * 4)
    bounds = [
        makespan_bound(Instance(requests, worker, first_token="decode"))
        for worker in (whole, paged)
    ]
    assert bounds[1].value_ns == 41 < bounds[0].value_ns
    for worker, bound in zip((whole, paged), bounds, strict=True):
        assert (
            certificate_violations(
                Instance(requests, worker, first_token="decode"), bound.to_dict()
            )
            == []
        )


def test_malformed_certificates_are_refused_not_raised():
    instance = decoding([1, 2], [3, 4], (Worker(1), Worker(2, name="other")))
    good = makespan_bound(instance).to_dict()
    claim = good["certificate"]
    first, second = claim["workers"]
    assert certificate_violations(instance, good) == []
    for workers in (
        [],
        [first],
        [second, first],
        [first, first],
        [first, {**second, "weight": 0}],
        [first, {**second, "weight": 1.0}],
        [first, {**second, "extra": 1}],
        [first, {**second, "worker": True}],
        [first, {key: value for key, value in second.items() if key != "line"}],
        None,
        {},
    ):
        bad = {**good, "certificate": {**claim, "workers": workers}}
        assert certificate_violations(instance, bad)
    for change in ({"value_ns": 0.0}, {"released_ns": 1}, {"released_ns": "0"}, {"extra": 1}):
        assert certificate_violations(instance, {**good, "certificate": {**claim, **change}})


def test_row_order_changes_no_bound():
    base = orsched.load("pang-100x20")
    slow = replace(base.worker, cost=base.worker.cost.scaled(3), name="slow")
    arrivals = poisson(100, 5)
    instance = base.replace(
        requests=base.requests.replace(arrival_ns=arrivals), workers=(base.worker, slow)
    )
    rows = list(range(100))
    random.Random(1).shuffle(rows)
    permuted = instance.replace(requests=instance.requests.take(rows))
    for objective in OBJECTIVES:
        one, other = orsched.bound(permuted, objective), orsched.bound(instance, objective)
        assert one.certificate["sum_ns"] == pytest.approx(other.certificate["sum_ns"], rel=1e-4)


def test_sums_beyond_64_bits_are_exact():
    """The longest times that an instance may have: whole numbers, no floats, no overflow."""
    workers = (
        Worker(3, in_order(AffineCost, 0, 0, 2**28, 0)),
        Worker(2, in_order(AffineCost, 0, 0, 2**28 + 1, 0)),
    )
    instance = decoding([1] * 3, [2**31 - 1] * 3, workers)
    for objective in ("makespan", *OBJECTIVES):
        bound = orsched.bound(instance, objective)
        assert bound_violations(instance, bound.to_dict(), objective) == []
    assert makespan_bound(instance).value_ns == (2**31 - 1) * 2**28


@pytest.mark.full
@settings(max_examples=3_000)
@given(divisible())
def test_every_bound_of_a_long_sweep(instance):
    """INV: as above, further: all bounds on all objectives, and all of their certificates."""
    optimum = least_over_divisions(instance, optimum_ns, max)
    assume(optimum is not None)
    for bound in improving_bounds(instance, lambda: False):
        assert bound.value_ns <= optimum
        assert certificate_violations(instance, bound.to_dict()) == []
    for objective in OBJECTIVES:
        least = least_over_divisions(
            instance, lambda part, of=objective: least_sum_ns(part, of), sum
        )
        bound = orsched.bound(instance, objective)
        assert bound.certificate["sum_ns"] <= least
        assert bound_violations(instance, bound.to_dict(), objective) == []
