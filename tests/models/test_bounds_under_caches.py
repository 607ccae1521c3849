"""Bounds hold for schedules in which requests find each other's prefixes in a cache."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace

import pytest

import orsched
from orsched import Instance, PrefixCache, Prefixes, Step, bulk_bound
from orsched.certificates.scope import Sharing, cut_tokens, relaxed
from orsched.checker.certificates import bound_violations
from orsched.data.schedule_classes import allowances_of
from orsched.models.bounds.bounds import bound
from orsched.simulator import simulate_policy
from tests.checker.any_mode import COSTS
from tests.in_order import in_order
from tests.models.test_bulk_bound import attained
from tests.simulator.prefix_workloads import prefix_instance, prefix_params
from tests.simulator.scripted import Script

OBJECTIVES = ("makespan", "mean_jct", "mean_ttft")
DEAR = in_order(orsched.AffineCost, 1, 100, 1, 1)
"""Nearly all time is that of prompt tokens, which hits save."""
FALLING = in_order(orsched.PoolingCost, -1, 10**7, 5 * 10**6, 10**6, 10**6)


def with_cost(instance, cost):
    workers = tuple(replace(worker, cost=cost) for worker in instance.workers)
    return instance.replace(workers=workers)


def values_of(schedule):
    results = schedule.results
    return {
        "makespan": results["makespan_ns"],
        "mean_jct": results["jct_ns"]["mean"],
        "mean_ttft": results["ttft_ns"]["mean"],
    }


def served(instance, seed):
    """The schedule of vLLM with parameters drawn from the seed."""
    parameters = asdict(prefix_params(seed, instance.workers[0].clients))
    return orsched.simulate(instance, "vllm", parameters=parameters).schedule


@pytest.mark.parametrize("seed", range(16))
def test_no_schedule_with_hits_beats_a_bound(seed):
    """INV-26: whichever objective, cost and steps."""
    plain = prefix_instance(seed, workers=1 + seed % 3 // 2)
    for cost in (plain.workers[0].cost, DEAR, COSTS[seed % len(COSTS)]):
        instance = with_cost(plain, cost)
        schedule = served(instance, seed)
        found = values_of(schedule)
        for objective in OBJECTIVES:
            lower = bound(instance, objective, allows=allowances_of(instance, schedule))
            assert lower.value_ns <= found[objective]
            assert bound_violations(instance, lower.to_dict(), objective) == []


def test_hits_make_schedules_shorter_than_bounds_without_a_cache():
    """Otherwise these tests would pass without any cut."""
    beaten = 0
    for seed in range(24):
        instance = with_cost(prefix_instance(seed), DEAR)
        schedule = served(instance, seed)
        memory = replace(instance.worker.memory, prefix_cache=None)
        without = instance.replace(workers=replace(instance.worker, memory=memory))
        allows = allowances_of(instance, schedule)
        found = values_of(schedule)
        beaten += any(
            bound(without, objective, allows=allows).value_ns > found[objective]
            for objective in OBJECTIVES
        )
    assert beaten > 3


def test_repeated_prefills_find_their_own_blocks():
    """INV-26: Evicted after each token, a request computes a block at most for the next one."""
    dear_rounds = in_order(orsched.AffineCost, 1, 1, 1000, 1)
    memory = orsched.BlockMemory(20, 4, "paged", PrefixCache("lru"))
    worker = orsched.Worker(1, dear_rounds, memory=memory)
    instance = Instance(
        orsched.Requests([12], [8], service_class=[1]), worker, first_token="prefill"
    )
    again = [Step(preempt=[0], decode=()), Step(prefill=[0])] * 7
    schedule = simulate_policy(instance, Script(Step(prefill=[0]), *again)).schedule
    schedule = schedule.replace(results=orsched.summarise(instance, schedule))
    assert orsched.check(instance, schedule) == []
    allows = allowances_of(instance, schedule)
    assert {"restarts"} <= allows
    uncached = instance.replace(workers=replace(worker, memory=orsched.BlockMemory(20, 4, "paged")))
    for objective in ("makespan", "mean_jct"):
        assert bound(instance, objective, allows=allows).value_ns <= values_of(schedule)[objective]
        assert bound(uncached, objective, allows=allows).value_ns > values_of(schedule)[objective]
    horizon = values_of(schedule)["makespan"] / 1e9
    found = bulk_bound(instance, 0.0, horizon)
    assert found.done(schedule) == 20
    assert found.value >= 20
    assert bulk_bound(instance, 0.0, horizon, restarts=0).value < 20


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_with_hits_does_more_bulk_work(seed):
    """INV-27: by any moment."""
    instance = prefix_instance(seed).with_classes("interactive:ttft=0.00003,tpot=0.000004")
    schedule = served(instance, seed)
    end = int(schedule.steps.end_ns.max())
    restarts = int((schedule.work.stay > 0).sum())
    total = max(1, int((~instance.bulk).sum()))
    for measure in ("attained", "in_time"):
        met = attained(instance, schedule, measure)
        for horizon in (end // 3, end):
            found = bulk_bound(
                instance, met / total, horizon / 1e9, measure=measure, restarts=restarts
            )
            assert found.feasible
            assert found.done(schedule) <= found.value


def shared_prompts(prompts, shared, documents, size=4):
    requests = orsched.Requests(
        prompts, [3] * len(prompts), prefixes=Prefixes.from_documents(documents, shared, size)
    )
    memory = orsched.BlockMemory(100, size, "paged", PrefixCache("lru"))
    return Instance(requests, orsched.Worker(4, COSTS[0], memory=memory), first_token="prefill")


def test_what_a_cache_may_hold_is_cut():
    """Full blocks of two requests, and at least one token is computed."""
    instance = shared_prompts([9, 13, 8, 8, 20], [9, 9, 8, 8, 16], [0, 0, 1, 1, 2])
    assert cut_tokens(instance).tolist() == [8, 8, 4, 4, 0]
    assert relaxed(instance).requests.prompt_tokens.tolist() == [1, 5, 4, 4, 20]
    tree = Sharing.of(instance)
    assert [(s.parent, s.tokens, s.sharers, s.once) for s in tree.segments] == [
        (-1, 8, 2, 8),
        (-1, 4, 2, 4),
        (1, 4, 2, 0),  # both compute the last block of a prompt that is shared whole
    ]
    assert tree.last == [0, 0, 1, 1, -1]
    assert tree.shared == [0, 0, 2, 2, -1]


def test_nothing_is_cut_without_a_cache():
    instance = shared_prompts([9, 13], [9, 9], [0, 0])
    memory = orsched.BlockMemory(100, 4, "paged")
    instance = instance.replace(workers=replace(instance.worker, memory=memory))
    assert relaxed(instance) is instance
    assert "cut_tokens" not in bound(instance).certificate


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_certificate_says_what_is_cut(objective):
    instance = shared_prompts([9, 13, 20], [9, 9, 16], [0, 0, 2])
    document = bound(instance, objective).to_dict()
    assert document["certificate"]["cut_tokens"] == 16
    for other in (None, 0, 1, 15, 17, 16.0):
        broken = copy.deepcopy(document)
        if other is None:
            del broken["certificate"]["cut_tokens"]
        else:
            broken["certificate"]["cut_tokens"] = other
        assert bound_violations(instance, broken, objective)


def test_prefills_that_fall_prove_nothing_for_shorter_prompts():
    instance = with_cost(shared_prompts([9, 13], [9, 9], [0, 0]), FALLING)
    assert bound(instance).name == "last_arrival"
    assert bound(instance, "mean_jct").name == "arrivals"
