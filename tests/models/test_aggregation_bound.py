"""Bounds for several workers, unequal ones and pools, and by charges where arrivals ramp up."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings

import orsched
from orsched import BlockMemory, InfeasibleError, Instance, Link, Requests, Worker, summarise
from orsched.certificates.context import Context
from orsched.certificates.one_machine import Workers
from orsched.checker.certificates import bound_violations, certificate_violations
from orsched.costs import AffineCost
from orsched.models.bounds.bounds import (
    bound_for,
    improving_bounds,
    makespan_bound,
)
from orsched.models.bounds.latency_bounds import OBJECTIVES
from orsched.models.bounds.makespan_certificates import (
    balanced_weights,
    best_shares,
    charged_certificates,
)
from orsched.models.bounds.ordering import ordering_cannot_help
from orsched.simulator import simulate_policy
from tests.brute_force import least_sum_ns, optimum_ns
from tests.decoding import decoding
from tests.forged import leaves, with_leaf
from tests.in_order import in_order
from tests.models.cases import FALLING, proven, shuffled, small
from tests.models.divisions import divisible, least_over_divisions
from tests.models.least_in_any_mode import Search
from tests.pools import pool_instance, pool_policy
from tests.seeds import seeds
from tests.simulator.test_pools import Cost


@settings(max_examples=40)
@given(small(caps=(None, 6), longest=(6, 5), blocks=(12, 30), late=(0, 0, 40), workers=(2, 3)))
def test_bound_of_equal_workers_at_most_the_optimum_and_that_of_one(instance):
    bound = proven(instance)
    assert bound.value_ns <= least_over_divisions(instance, optimum_ns, max)
    single = instance.replace(workers=instance.workers[0])
    assert bound.value_ns <= makespan_bound(single).value_ns


def test_equal_workers_share_the_work():
    one = orsched.load("gsm8k-llama65b")
    two = one.replace(workers=(one.worker, one.worker))
    bound = makespan_bound(two)
    assert bound.name == "shared"
    assert bound.value_ns == -(-makespan_bound(one).value_ns // 2)
    assert ordering_cannot_help(two) is None
    good = bound.to_dict()
    claim, inner = good["certificate"], good["certificate"]["one_worker"]
    others = {**inner, "value_ns": inner["value_ns"] + 2}, {**inner, "bound": "longest_request"}
    changes = {"workers": 1}, {"value_ns": claim["value_ns"] + 1}, {"extra": 1}
    for change in (*changes, *({"one_worker": other} for other in others)):
        assert certificate_violations(two, {**good, "certificate": {**claim, **change}})
    assert certificate_violations(two, {**good, "certificate": {"bound": "shared"}})
    assert certificate_violations(two, {**good, "name": "joint"})
    assert certificate_violations(two, {**good, "value_ns": good["value_ns"] + 1})
    assert certificate_violations(one, good)


def all_bounds_hold(instance):
    """Whether there is a schedule; then no bound is above the shortest, and all are proven."""
    optimum = least_over_divisions(instance, optimum_ns, max)
    if optimum is None:
        with pytest.raises(InfeasibleError, match="request"):
            makespan_bound(instance)
        return False
    for bound in improving_bounds(instance, lambda: False):
        assert proven(instance, bound).value_ns <= optimum
    return True


def mean_bounds_hold(instance):
    for objective in OBJECTIVES:
        least = least_over_divisions(
            instance, lambda part, of=objective: least_sum_ns(part, of), sum
        )
        assume(least is not None)
        bound = proven(instance, orsched.bound(instance, objective), objective)
        assert bound.certificate["sum_ns"] <= least


@settings(max_examples=50)
@given(divisible())
def test_bound_at_most_the_optimum_and_re_derived(instance):
    """INV: bound <= optimum over every division, under every cost model, cap and memory."""
    all_bounds_hold(instance)


@settings(max_examples=25)
@given(divisible(most=3))
def test_mean_bounds_at_most_the_optimum_and_re_derived(instance):
    mean_bounds_hold(instance)


@pytest.mark.full
@settings(max_examples=3_000)
@given(divisible())
def test_every_bound_of_a_long_sweep(instance):
    """INV: as above, further: all bounds on all objectives, and all of their certificates."""
    if all_bounds_hold(instance):
        mean_bounds_hold(instance)


@settings(max_examples=30)
@given(divisible(most=3))
def test_no_changed_certificate_proves_too_much(instance):
    optimum = least_over_divisions(instance, optimum_ns, max)
    assume(optimum is not None)
    for claim in charged_if_any(instance):
        for broken in changed(claim):
            assert broken["value_ns"] <= optimum or certificate_violations(instance, broken)


def charged_if_any(instance):
    if all(bound.name != "charged" for bound in improving_bounds(instance, lambda: False)):
        return []
    return list(charged_certificates(Context(instance), lambda: False))


def changed(certificate):
    """Yield documents with one leaf of the certificate changed, and its value raised or not."""
    for path, value in leaves(certificate):
        for other in (
            (value + 1, value - 1, 2 * value + 10**6, -value) if type(value) is int else ()
        ):
            for raised in (0, 1, 20):
                broken = with_leaf(certificate, path, other)
                broken["value_ns"] += raised
                yield {"name": "charged", "value_ns": broken["value_ns"], "certificate": broken}


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


@settings(max_examples=80)
@given(divisible(workers=1))
def test_a_bound_that_holds_for_mixed_steps(instance):
    instance = instance.replace(workers=replace(instance.worker, memory=None))
    assume(Context(instance).fit(0).rows == list(range(len(instance))))
    bound = proven(instance, orsched.bound(instance, allows=("chunks", "mixed")))
    assert bound.value_ns <= Search(instance, ("mixed",)).least()


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
    assert proven(instance, found[-1]).value_ns > 1.02 * by_counts


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


def one_client(times, round_ns=(10, 20)):
    """Requests of ten rounds, and nothing else, on workers of one client."""
    workers = tuple(
        Worker(1, in_order(AffineCost, 0, 0, time, 0), name=str(time)) for time in round_ns
    )
    return decoding([1] * times, [10] * times, workers)


def test_weights_are_the_speeds_of_proportional_workers():
    """Twice as fast: twice the weight, and the bound is the work over the summed speed."""
    instance = one_client(6)
    context = Context(instance)
    assert balanced_weights(Workers.of(context, best_shares(context)), None) == [2, 1]
    assert makespan_bound(instance).value_ns == 400
    assert makespan_bound(instance).value_ns == least_over_divisions(instance, optimum_ns, max)


def test_a_worker_too_slow_to_end_in_time_serves_nobody():
    """One request takes 1,000 there, the other worker serves all three in 300."""
    instance = one_client(3, (10, 100))
    assert proven(instance).value_ns == 300 == least_over_divisions(instance, optimum_ns, max)


def test_workers_of_which_nothing_is_known():
    workers = (Worker(1), Worker(1, FALLING, name="odd"))
    instance = decoding([1, 2], [1, 2], workers, arrival_ns=[0, 50])
    bound = makespan_bound(instance)
    assert (bound.name, bound.value_ns) == ("last_arrival", 50)
    for objective in OBJECTIVES:
        bound = proven(instance, orsched.bound(instance, objective), objective)
        assert (bound.name, bound.value_ns) == ("arrivals", 0)


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


def test_paged_blocks_do_not_limit_the_clients():
    """Blocks that grow with the cache: more requests at once than fit with all their tokens.

    Over rounds of 2, 3, 4 and 5 blocks, four requests hold 56, which is six rounds of 10.
    """
    whole, paged = (
        Worker(4, in_order(AffineCost, 1, 0, 10, 0), memory=BlockMemory(10, 1, allocation))
        for allocation in ("whole", "paged")
    )
    bounds = [proven(decoding([1] * 4, [4] * 4, worker)) for worker in (whole, paged)]
    assert bounds[1].value_ns == 61 < bounds[0].value_ns


def test_row_order_changes_no_bound():
    base = orsched.load("pang-100x20")
    slow = replace(base.worker, cost=base.worker.cost.scaled(3), name="slow")
    arrivals = poisson(100, 5)
    instance = base.replace(
        requests=base.requests.replace(arrival_ns=arrivals), workers=(base.worker, slow)
    )
    permuted = shuffled(instance, random.Random(1))
    for objective in OBJECTIVES:
        one, other = orsched.bound(permuted, objective), orsched.bound(instance, objective)
        assert one.certificate["sum_ns"] == pytest.approx(other.certificate["sum_ns"], rel=1e-4)


def test_sums_beyond_64_bits_are_exact():
    """The longest times that an instance may have: whole numbers, no floats, no overflow."""
    workers = tuple(
        Worker(clients, in_order(AffineCost, 0, 0, time, 0))
        for clients, time in ((3, 2**28), (2, 2**28 + 1))
    )
    instance = decoding([1] * 3, [2**31 - 1] * 3, workers)
    for objective in ("makespan", *OBJECTIVES):
        proven(instance, orsched.bound(instance, objective), objective)
    assert makespan_bound(instance).value_ns == (2**31 - 1) * 2**28


@pytest.mark.parametrize("rule", ["prefill", "decode"])
@pytest.mark.parametrize("seed", seeds(10, 40))
def test_bounds_hold_for_pools(seed, rule):
    """INV-10: no schedule is shorter than the bound for what it does."""
    instance = pool_instance(seed, rule)
    schedule = simulate_policy(instance, pool_policy(seed)).schedule
    found = proven(instance, bound_for(instance, schedule, orsched.bound(instance)))
    assert 0 < found.value_ns <= schedule.makespan_ns


def apart(requests, link, prefill=1):
    roles = ["prefill"] * prefill + ["decode"]
    workers = tuple(Worker(4, Cost(), role=role) for role in roles)
    return Instance(requests, workers, first_token="prefill", link=link)


@pytest.mark.parametrize(
    ("requests", "link", "binding", "value"),
    [
        # alone: 10 tokens of 10 ns, a link of 50 + 10 x 7, two rounds of 100
        (Requests([10], [3]), Link(ns_per_token=7, latency_ns=50), "path_ns", 100 + 120 + 200),
        # four prefills of 1,000 ns
        (Requests([100] * 4, [2] * 4), Link(), "prefill_ns", 4000),
        # the first prefill, then eight transfers of 1,000
        (Requests([10] * 8, [2] * 8), Link(ns_per_token=100), "link_ns", 100 + 8000),
        # the first cache, then 8 x 50 rounds on four clients
        (Requests([10] * 8, [51] * 8), Link(), "decode_ns", 100 + 10_000),
    ],
)
def test_each_part_binds_somewhere(requests, link, binding, value):
    """The parts of the bound by hand, and their largest is the bound."""
    found = orsched.bound(apart(requests, link))
    assert found.certificate[binding] == value
    assert found.value_ns >= value


def test_more_workers_of_a_pool_share_its_work_and_two_roles_of_a_device_its_time():
    requests = Requests([100] * 4, [2] * 4)
    one, two = (orsched.bound(apart(requests, Link(), prefill=n)).certificate for n in (1, 2))
    assert two["prefill_ns"] * 2 == one["prefill_ns"]
    instance = apart(Requests([100] * 4, [101] * 4), Link())
    shared = tuple(replace(worker, device="gpu") for worker in instance.workers)
    on_one = orsched.bound(instance.replace(workers=shared)).certificate
    assert orsched.bound(instance).certificate["all_ns"] * 2 == on_one["all_ns"]


@pytest.mark.parametrize("objective", ["mean_jct", "mean_ttft"])
@pytest.mark.parametrize("seed", seeds(8, 30))
def test_bounds_on_means_hold_for_pools(seed, objective):
    """INV-10: no schedule has a smaller mean than requests that are alone with their transfers."""
    instance = pool_instance(seed, ("prefill", "decode")[seed % 2])
    schedule = simulate_policy(instance, pool_policy(seed)).schedule
    lower = bound_for(instance, schedule, orsched.bound(instance, objective), objective=objective)
    found, results = proven(instance, lower, objective).to_dict(), summarise(instance, schedule)
    value, claim = found["value_ns"], found["certificate"]
    assert found["name"] == "alone"
    assert 0 < value <= results[f"{objective.removeprefix('mean_')}_ns"]["mean"]
    more = {**claim, "sum_ns": claim["sum_ns"] + len(instance), "value_ns": claim["value_ns"] + 1}
    wrong = {**found, "value_ns": value + 1, "certificate": more}
    assert bound_violations(instance, wrong, objective)


def test_a_mean_by_hand():
    """Prefill of 10 tokens, a transfer of 50 + 10 x 7, two rounds; the first token before it."""
    instance = apart(Requests([10], [3]), Link(ns_per_token=7, latency_ns=50))
    assert orsched.bound(instance, "mean_jct").value_ns == 100 + 120 + 200
    assert orsched.bound(instance, "mean_ttft").value_ns == 100
    late = instance.replace(first_token="decode")
    assert orsched.bound(late, "mean_ttft").value_ns == 100 + 120 + 100


def test_bounds_on_attainment_refuse_links():
    instance = pool_instance(1).with_classes("interactive:ttft=1")
    with pytest.raises(orsched.InputError, match="know of no links"):
        orsched.attainment_bound(instance)
