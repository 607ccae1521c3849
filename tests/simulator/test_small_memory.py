"""Tiny memories in which each request fits some worker alone: every policy serves all of them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import orsched
from orsched import AffineCost, BlockMemory, InputError, Instance, Link, Requests, Worker, check
from orsched.common.registry import names, resolve
from orsched.data.feasibility import fits_some_worker
from orsched.heuristics.dispatching import DISPATCHERS
from orsched.simulator import simulate_policy
from tests.in_order import in_order

COST = in_order(AffineCost, 25_000_000, 130_000, 29_000_000, 210_000)
MS = 1_000_000
LIVE = {
    name: method
    for name in names("methods")
    if getattr(method := resolve("methods", name), "live", False)
}


def drawn(rng: random.Random, workers: int) -> Instance:
    """Return two to four requests, each of which fits some worker whole and alone."""
    while True:
        n, size, blocks = rng.randint(2, 4), rng.choice([1, 2, 4]), rng.choice(["paged", "whole"])
        prompts, outputs, predicted = ([rng.randint(1, 6) for _ in range(n)] for _ in range(3))
        arrivals = sorted(rng.choice([0, rng.randint(0, 100) * MS]) for _ in range(n))
        fleet = []
        for index in range(workers):
            memory = BlockMemory(rng.randint(1, 12) // size + 1, size, blocks)
            cap = rng.choice([None, None, 3, 6])
            fleet.append(Worker(rng.randint(1, 3), COST, cap, memory, f"w{index}"))
        requests = Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted)
        rule, limit = rng.choice(["decode", "prefill"]), max(outputs) + rng.choice([0, 3])
        instance = Instance(requests, tuple(fleet), rule, output_limit_tokens=limit)
        if fits_some_worker(instance, chunks=False).all():
            return instance


def failing(instance: Instance, rng: random.Random) -> Instance:
    """Return the instance with a worker that is lost for a while."""
    workers, index = list(instance.workers), rng.randrange(len(instance.workers))
    down = rng.randint(1, 200) * MS
    there = ((0, down), (down + rng.randint(1, 200) * MS, 2**61))
    workers[index] = replace(workers[index], available_ns=there)
    return instance.replace(workers=tuple(workers))


def parted(instance: Instance, rng: random.Random) -> Instance:
    """Return the instance with one worker that prefills and one that decodes, if each fits both."""
    paged = [replace(w, memory=replace(w.memory, allocation="paged")) for w in instance.workers]
    workers = tuple(replace(w, role=r) for w, r in zip(paged, ("prefill", "decode"), strict=True))
    found = instance.replace(workers=workers, link=Link(ns_per_token=10, latency_ns=10))
    return found if fits_some_worker(found, chunks=False).all() else parted(drawn(rng, 2), rng)


FLEETS = {
    "one": lambda rng: drawn(rng, 1),
    "two": lambda rng: drawn(rng, 2),
    "one of two fails": lambda rng: failing(drawn(rng, 2), rng),
    "split": lambda rng: parted(drawn(rng, 2), rng),
}


CASES = [
    (name, fleet)
    for fleet in FLEETS
    for name in LIVE
    if fleet != "split" or name == "disaggregated"  # the one that knows links
]


@pytest.mark.parametrize(("name", "fleet"), CASES)
def test_every_policy_serves_what_fits(name, fleet):
    """It may say that it is not made for such workers; else its schedule is complete and valid."""
    rng, method = random.Random(24), LIVE[name]
    for _ in range(12):
        instance = FLEETS[fleet](rng)
        for information in method.information or (None,):
            given = {}
            if len(instance.workers) > 1 and not getattr(method, "many_workers", True):
                given["dispatch"] = rng.choice(list(DISPATCHERS))
            try:
                policy, _ = method.build(instance, information, given, 0)
                done = simulate_policy(instance, policy)
            except InputError:
                continue
            assert check(instance, done.schedule) == []


@pytest.mark.parametrize("allocation", ["paged", "whole"])
@pytest.mark.parametrize("method", ["fcfs", "online", "online@predicted", "hybrid@predicted"])
def test_a_request_whose_limit_exceeds_memory_runs_alone(method, allocation):
    """Blind policies set 7 + 9 blocks aside for request 1: all 15 that there are."""
    requests = Requests([5, 7, 6], [2, 3, 4], predicted_tokens=[9, 9, 9])
    worker = Worker(3, COST, memory=BlockMemory(15, 1, allocation))
    instance = Instance(requests, worker, output_limit_tokens=9, first_token="decode")
    result = orsched.solve(instance, method)
    times = result.schedule.request_times(instance)
    start, end = times["prefill_start_ns"], times["finish_ns"]
    assert all(end[other] <= start[1] or start[other] >= end[1] for other in (0, 2))


@pytest.mark.parametrize("method", ["fcfs", "online", "offline", "hybrid"])
def test_what_is_set_aside_never_exceeds_what_there_is(method):
    worker = Worker(1, memory=BlockMemory(3, 1, "paged"))
    instance = Instance(Requests([1, 2], [2, 1]), worker, first_token="decode")
    assert orsched.solve(instance, method).checked


@pytest.mark.parametrize("method", ["fcfs", "vllm", "gittins", "gittins@predicted", "mico"])
def test_a_last_token_that_no_cache_holds_needs_no_room(method):
    """The prompt of request 1 fills the memory, and its only token comes with the prefill."""
    requests = Requests([1, 2], [2, 1], predicted_tokens=[1, 1])
    instance = Instance(requests, Worker(1, COST, memory=BlockMemory(2, 1, "paged")))
    assert orsched.solve(instance, method).checked
