"""The bound by volume: sums by hand, and beside the best and the simulated schedules."""

import random
from dataclasses import replace

import numpy as np
import pytest

import orsched
from orsched.certificates.context import Context
from orsched.certificates.kv_volume import Needs, Volume, kv_volume
from orsched.checker.certificates import certificate_violations
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.schedule_classes import ALLOWANCES, allowances_of
from orsched.data.workers import Worker
from orsched.simulator import simulate_policy
from tests.in_order import in_order
from tests.models.least_in_any_mode import Search
from tests.models.test_bound_scope import SETS, tiny_instance
from tests.models.test_bulk_bound import served
from tests.random_instances import random_batching_instance
from tests.seeds import seeds
from tests.simulator.batching_policies import BATCHING
from tests.simulator.prefix_workloads import prefix_instance

ROOFLINE = in_order(orsched.RooflineCost, 10**6, 9 * 10**6, 10**6, 0, 0)
"""A step takes 1 ns and the larger of 9 ns and 1 ns a token."""


def largest(instance, allows):
    """The largest bound by volume, over all moments and requests; each is verified."""
    context, found = Context.allowing(instance, allows), []
    for moment in dict.fromkeys(context.arrivals):
        for request in range(len(instance)):
            certificate = kv_volume(context, moment, request)
            document = {"name": "kv_volume", "certificate": certificate}
            document["value_ns"] = certificate["value_ns"]
            assert certificate_violations(instance, document) == []
            found.append(certificate["value_ns"])
    return max(found)


@pytest.mark.parametrize(("paged", "held"), [(True, 2 + 2 + 3 + 1 + 2), (False, 3 * 3 + 2 * 2)])
def test_block_rounds_are_counted_by_hand(paged, held):
    """Rounds over 3, 4 and 5 tokens, and over 2 and 3, in blocks of two."""
    memory = BlockMemory(6, 2, "paged" if paged else "whole")
    requests = Requests([2, 1], [3, 2])
    instance = Instance(requests, Worker(2, ROOFLINE, memory=memory), first_token="decode")
    volume = Volume.of(Context(instance), np.arange(2))
    assert volume.block_rounds == held
    assert (volume.tokens, volume.contexts, volume.attended) == (5, 3 + 4 + 5 + 2 + 3, 3 + 1)


def sharing(prompts, outputs, arrivals=(0, 0)):
    """Two requests with one beginning, in blocks of a token, under a prefix cache."""
    memory = BlockMemory(20, 1, "paged", orsched.PrefixCache("lru"))
    prefixes = orsched.Prefixes.from_documents([0, 0], prompts, 1)
    requests = Requests(prompts, outputs, arrival_ns=arrivals, prefixes=prefixes)
    return Instance(requests, Worker(2, ROOFLINE, memory=memory), first_token="decode")


def test_a_shared_block_is_computed_once_and_held_by_each():
    """Of 3 tokens each request finds two at best; round j holds its third and j tokens more."""
    context, rows = Context(sharing([3, 3], [2, 5])), np.arange(2)
    volume, needs = Volume.of(context, rows), Needs.of(context, 0, rows)
    own = [(1 + 1) + (1 + 2), sum(1 + j for j in (1, 2, 3, 4, 5))]
    assert volume.prompts == 1 + 1 + 2
    assert volume.attended == 3 + 3 + (1 + 2)
    assert volume.block_rounds == sum(own) + 2 * 5
    assert needs.prompts.tolist() == [1 + 1, 1 + 1]
    assert needs.attended.tolist() == [3 + 1, 3 + 1]  # a half of 1 + 2, rounded down
    assert needs.block_rounds.tolist() == [own[0] + 2, own[1] + 5]
    one = Volume.of(context, np.array([0]))
    assert (one.prompts, one.block_rounds) == (3, own[0] + 2 * 2)


@pytest.mark.parametrize(
    ("prompts", "arrivals", "released", "computed"),
    [
        ([3, 3], (0, 7), 7, 1),  # the first request may have computed both blocks before
        ([3, 3], (7, 7), 7, 2 + 1 + 1),
        ([2, 3], (0, 0), 0, 1 + 1 + 1),  # the second block of the first is its own copy
    ],
)
def test_what_may_be_there_before_counts_nothing(prompts, arrivals, released, computed):
    context = Context(sharing(prompts, [2, 5], arrivals))
    rows = np.flatnonzero(np.array(arrivals) >= released)
    assert Volume.of(context, rows).prompts == computed


@pytest.mark.parametrize(
    ("allows", "value"),
    [
        ((), 10 + 20),  # one prefill, and two rounds that read the weights
        (("mixed",), 20),  # the prefill may be beside the rounds
        (("mixed", "restarts"), 20),
    ],
)
def test_every_step_reads_the_weights(allows, value):
    instance = Instance(Requests([1, 1], [2, 2]), Worker(2, ROOFLINE), first_token="decode")
    assert largest(instance, allows) == value


def test_no_bound_is_below_a_request_alone_whatever_a_cache_may_find():
    """A prefill of one token behind hits still reads the weights."""
    memory = BlockMemory(200, 16, "paged", orsched.PrefixCache("lru"))
    worker = Worker(4, ROOFLINE, memory=memory)
    instance = Instance(Requests([500, 20], [1000, 20]), worker, first_token="prefill")
    assert orsched.bound(instance, allows=ALLOWANCES).value_ns >= 999 * 10
    alone = instance.replace(workers=replace(worker, memory=None))
    assert largest(instance, ALLOWANCES) == largest(alone, ALLOWANCES)


@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 1500), marks=pytest.mark.full)]
)
def test_no_simulated_schedule_beats_it(seeds):
    """Evictions, pages, chunks, mixed steps and several equal workers, by random policies."""
    seen, near = set(), 0
    for seed in seeds:
        rng = random.Random(seed)
        instance = random_batching_instance(rng)
        instance = instance.replace(workers=instance.workers[:1] * len(instance.workers))
        name = rng.choice(sorted(BATCHING))
        schedule = simulate_policy(instance, BATCHING[name](seed)).schedule
        allows = allowances_of(instance, schedule)
        if not Context.allowing(instance, allows).has_floors:
            continue
        value = largest(instance, allows)
        assert value <= schedule.makespan_ns, (seed, name)
        near += value > 0.9 * schedule.makespan_ns
        seen.add((allows, len(instance.workers) > 1, instance.first_token))
    assert len(seen) > 10
    assert near > len(seeds) // 20


@pytest.mark.parametrize("seed", seeds(5, 24))
def test_no_schedule_with_hits_beats_it(seed):
    instance = prefix_instance(seed, workers=1 + seed % 3 // 2)
    for cost in (instance.workers[0].cost, ROOFLINE):
        workers = tuple(replace(worker, cost=cost) for worker in instance.workers)
        problem = instance.replace(workers=workers)
        schedule = served(problem, seed)
        value = largest(problem, allowances_of(problem, schedule))
        assert value <= schedule.makespan_ns


@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 3000), marks=pytest.mark.full)]
)
def test_the_best_of_all_schedules_does_not_beat_it(seeds):
    met = 0
    for seed in seeds:
        rng = random.Random(seed)
        instance, allows = tiny_instance(rng), rng.choice(SETS)
        if not Context.allowing(instance, allows).has_floors:
            continue
        value, least = largest(instance, allows), Search(instance, allows).least()
        assert value <= least, seed
        met += value == least
    assert met > len(seeds) // 10


@pytest.mark.parametrize("objective", ["mean_jct", "makespan"])
def test_pages_that_bind_are_charged_to_those_that_hold_them(objective):
    """Two of eight requests fit at a time: a mean is bounded by more than clients would."""
    memory = BlockMemory(60, 1, "paged")
    requests = Requests([20] * 8, [10] * 8)
    instance = Instance(requests, Worker(8, ROOFLINE, memory=memory), first_token="decode")
    spare = instance.replace(workers=Worker(8, ROOFLINE))
    lower, without = (orsched.bound(each, objective).value_ns for each in (instance, spare))
    found = orsched.solve(instance, "fcfs").schedule.results
    reached = found["jct_ns"]["mean"] if objective == "mean_jct" else found["makespan_ns"]
    assert 1.2 * without < lower <= reached
