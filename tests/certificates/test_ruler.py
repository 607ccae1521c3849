"""The kinds for memory and fleets beside the best of all schedules, every method, and forgeries.

Tiny fleets and single workers: arrivals, unequal workers, whole and paged memory, prefix caches,
any allowances. Each bound is at most the least makespan (``FleetSearch``), which is at most that of
each schedule that does no more; no forged certificate is accepted with a value above it.
"""

import copy
import random
from contextlib import suppress
from dataclasses import replace

import pytest

import orsched
from orsched import BlockMemory, InputError, Instance, PrefixCache, Prefixes, Requests, Worker
from orsched.certificates.context import Context
from orsched.certificates.kv_volume import kv_volume
from orsched.checker.certificates import certificate_violations
from orsched.common.errors import PolicyError
from orsched.common.stop import MaxIterations
from orsched.data.schedule_classes import ALLOWANCES, allowances_of
from orsched.models.bounds.fleet_prices_search import price_certificates
from orsched.simulator import simulate_policy
from orsched.solving.method_choice import choose
from orsched.solving.methods import Run
from tests.forged import leaves, with_leaf
from tests.models.least_of_fleet import FleetSearch
from tests.models.test_bound_scope import COSTS
from tests.simulator.batching_policies import BATCHING
from tests.simulator.prefix_workloads import Whimsical

POLICIES = sorted(BATCHING.keys() - {"assigning", "static", "slices"})
"""Those whose schedules have no invalid rounds, and which end whatever the workers."""
METHODS = (
    ("vllm", {"max_num_batched_tokens": 3}), ("vllm", None), ("gittins", None), ("fcfs", None),
    ("fleet", None),
)  # fmt: skip
FORGED = 8
"""Changed certificates of each instance that has one: more than 20,000 of 3,000 and 3,000."""


def cost_of(rng):
    sizes = (0, 1, rng.randint(1, 30), rng.randint(1, 300))
    return rng.choice(COSTS)(lambda: rng.choice(sizes))


def memory_of(rng, kind, size, least):
    """A memory that holds each request, the largest perhaps only alone."""
    if kind is None:
        return None
    cache = PrefixCache("lru") if kind == "cache" else None
    blocks = -(-least // size) + rng.choice((0, 0, 1, 2))
    return BlockMemory(blocks, size, "whole" if kind == "whole" else "paged", cache)


def tiny(rng, several, allows):
    """An instance that can be searched with these allowances."""
    wide = len({"chunks", "restarts", "moves"}.intersection(allows))
    n = rng.choice((1, 2, 2, 3, 3 if several else 4) if wide < 2 else (1, 2, 2, 2))
    longest = 2 if n > 3 or (several and wide > 1 and n > 1) else 3
    prompts, outputs = ([rng.randint(1, longest) for _ in range(n)] for _ in range(2))
    arrivals = [rng.choice((0, 0, rng.randint(0, 60))) for _ in range(n)]
    caching, size = rng.random() < 0.4, rng.choice((1, 1, 2))
    kinds = ("cache",) if caching else (None, "whole", "paged", "paged")
    least = max(p + d for p, d in zip(prompts, outputs, strict=True))
    padding = not caching and rng.random() < 0.2

    def worker():
        memory = memory_of(rng, rng.choice(kinds), size, least)
        cap = rng.choice((None, None, rng.randint(least, least + 3)))
        return Worker(rng.choice((1, 2, 2, 3)), cost_of(rng), cap, memory, padding=padding)

    chosen = [worker()] * (rng.choice((2, 2, 2, 3)) if several else 1)
    if several and rng.random() < 0.5:
        other = worker() if rng.random() < 0.5 else replace(chosen[0], cost=cost_of(rng))
        chosen[-1] = other
    prefixes = None
    if caching:
        documents, shared = [rng.choice((0, 0, 1, -1)) for _ in range(n)], prompts
        if rng.random() < 0.5:
            documents, shared = [0] * n, [rng.randint(0, p) for p in prompts]
        prefixes = Prefixes.from_documents(documents, shared, size)
    named = tuple(replace(each, name=f"w{k}") for k, each in enumerate(chosen))
    requests = Requests(
        prompts, outputs, arrival_ns=arrivals, predicted_tokens=outputs, prefixes=prefixes
    )
    return Instance(requests, named, rng.choice(("decode", "prefill")))


def schedules(rng, instance):
    """Yield schedules of policies of all kinds."""
    seed = rng.randrange(10**6)
    if instance.caches_prefixes:
        yield simulate_policy(instance, Whimsical(seed)).schedule
    else:
        for name in rng.sample(POLICIES, 2):
            with suppress(PolicyError):  # it sees no way on
                yield simulate_policy(instance, BATCHING[name](seed)).schedule
    for name, parameters in METHODS:
        chosen = choose(name, None, parameters)
        with suppress(InputError):  # a policy that does not serve such instances
            run = Run(chosen.information, MaxIterations(1), seed, chosen.parameters)
            yield chosen.method(instance, run).schedule


def certificates(instance, allows):
    """Return the best certificate of each kind; all are verified."""
    context, found = Context.allowing(instance, allows), []
    if not context.has_floors:
        return found
    if context.equal:
        pairs = [(r, k) for r in {*context.arrivals} for k in range(len(instance))]
        found.append(max((kv_volume(context, *pair) for pair in pairs), key=value_of))
    if len(instance.workers) > 1:
        released = min(context.arrivals)
        *_, best = None, *price_certificates(context, released, released, lambda: False)
        found += [] if best is None else [best]
    for certificate in found:
        assert refusals(instance, certificate) == []
    return found


def value_of(certificate):
    return certificate["value_ns"]


def refusals(instance, certificate):
    """What the checker says of a certificate."""
    kind, value = certificate["bound"], certificate["value_ns"]
    document = {"name": kind, "value_ns": value, "certificate": certificate}
    return certificate_violations(instance, document)


def forged(rng, certificate, least):
    """Return a certificate that claims more, some of its choices changed."""
    other = copy.deepcopy(certificate)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        places = [(path, value) for path, value in leaves(other) if type(value) is int]
        path, value = rng.choice(places)
        changes = (0, 1, value - 1, value + 1, 2 * value, value // 2, rng.randint(0, 2**41))
        other = with_leaf(other, path, rng.choice(changes))
    if "workers" in other and rng.random() < 0.4:
        changed(rng, other)
    best = value_of(certificate)
    claims = (least + 1, least + 1, best + 1, 2 * best + 1, least + rng.randint(1, 50), 2**61)
    return {**other, "value_ns": rng.choice(claims)}


def changed(rng, other):
    """Change what prices hang together by: intervals, factors in proportion, entries."""
    entry, kind = rng.choice(other["workers"]), rng.randrange(5)
    intervals = entry["intervals"]
    if kind == 0:
        del intervals[rng.randrange(len(intervals))]
    elif kind == 1:
        entry["intervals"] = intervals[:1]
    elif kind == 2:
        other["workers"].remove(entry)
    elif kind == 3:
        other["prices"] = [price * 2 for price in other["prices"]]
    else:
        factor = rng.choice((0, 2, 3))
        for item in intervals:
            item[1] = [each * factor for each in item[1]]


@pytest.mark.parametrize(
    ("several", "seeds"),
    [
        (False, range(20)),
        (True, range(20)),
        pytest.param(False, range(20, 3_000), marks=pytest.mark.full),
        pytest.param(True, range(20, 3_000), marks=pytest.mark.full),
    ],
)
def test_bounds_are_below_the_best_and_the_best_below_every_method(several, seeds):
    count = {"bounds": 0, "methods": 0, "forged": 0, "prices": 0, "tight": 0}
    for seed in seeds:
        rng = random.Random(seed)
        allows = {name for name in ALLOWANCES if rng.random() < 0.4}
        allows |= {"restarts"} if "moves" in allows else set()
        instance = tiny(rng, several, allows)
        served = list(schedules(rng, instance))
        within = [each for each in served if allowances_of(instance, each) <= allows]
        below = min((each.makespan_ns for each in within), default=2**62)
        least = FleetSearch(instance, allows).least()
        assert least <= below, seed
        found = orsched.bound(instance, allows=allows)
        assert found.value_ns <= least, (seed, found.name)
        each_kind = certificates(instance, allows)
        for certificate in each_kind:
            assert value_of(certificate) <= least, (seed, certificate["bound"])
        for _ in range(FORGED if each_kind else 0):
            other = forged(rng, rng.choice(each_kind), least)
            assert refusals(instance, other) or value_of(other) <= least, (seed, other)
            count["forged"] += 1
            count["prices"] += other["bound"] == "fleet_prices"
        count["bounds"] += len(each_kind)
        count["methods"] += len(within)
        count["tight"] += found.value_ns >= 0.9 * least
    assert count["methods"] > len(seeds) // 4
    assert count["forged"] > 3 * len(seeds)
    assert count["prices"] >= several * len(seeds) // 4
    assert count["tight"] > len(seeds) // 20
