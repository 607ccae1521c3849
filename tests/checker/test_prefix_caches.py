"""Prefix caches: what the simulator makes is valid, and every way to cheat is found."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from orsched.checker import check
from orsched.common.errors import InputError
from orsched.costs import AffineCost
from orsched.data.eviction import RULES
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.data.requests import Requests
from orsched.data.schedule import PREFILL, Schedule, Steps, Work
from orsched.data.workers import Worker
from orsched.metrics.summary import summarise
from orsched.metrics.timeline import Timeline
from orsched.simulator import simulate_policy
from tests.checker.mutations import column_mutations, row_mutations
from tests.checker.test_by_the_book import agree_on
from tests.checker.valid import with_step, with_work
from tests.in_order import in_order
from tests.simulator.prefix_workloads import prefix_instance, prefix_params, prefix_policy


@cache
def made(seed, workers=1, rule="lru"):
    instance = prefix_instance(seed, workers, rule)
    policy = prefix_policy(instance, prefix_params(seed, instance.workers[0].clients))
    return instance, simulate_policy(instance, policy).schedule


def kinds(instance, schedule):
    return {violation.kind.value for violation in check(instance, schedule)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("workers", [1, 3])
def test_what_the_simulator_makes_is_valid(workers, rule):
    """INV-20, INV-21, INV-22: both replays of the caches agree, written apart."""
    seen = Counter()
    for seed in range(25):
        instance, schedule = made(seed, workers, rule)
        results = summarise(instance, schedule)
        assert check(instance, schedule.replace(results=results)) == [], seed
        line = Timeline(instance, schedule)
        require_conserved(line)
        seen["hits"] += line.has_hits
        seen["evictions"] += line.prefix_replay.evicted.sum() > 0
        seen["restarts"] += (schedule.work.stay > 0).any()
        seen["full"] += (line.caches.blocks == instance.workers[0].memory.blocks).any()
    assert len(seen) == 4
    assert min(seen.values()) >= (3 if workers == 1 else 1), seen


def require_conserved(line):
    """Computed and hit tokens are those needed, and no more blocks are used than there are."""
    needed = line.prefilled + line.stay_hit
    assert (needed[line.complete] == line.due[line.complete]).all()
    assert (line.stay_hit < line.due).all()
    for index, worker in enumerate(line.instance.workers):
        used = line.caches.blocks[line.worker == index]
        assert (used >= 0).all()
        assert (used <= worker.memory.blocks).all()
        assert (used > 0).all()  # each step serves somebody


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_literal_reading_agrees(workers, rule):
    """INV-20, INV-21, INV-22: of schedules and of changed ones, with blocks as objects."""
    counts, dice = Counter(), np.random.default_rng(workers)
    for seed in range(70 if workers == 3 or rule == "lru" else 36):
        instance, schedule = made(seed, workers, rule)
        if len(schedule.work) > 40 or instance.workers[0].memory.blocks > 60:
            continue
        assert agree_on(instance, schedule), seed
        counts["hits"] += schedule.work.hit.any()
        for _ in range(3):
            name = dice.choice(["hit", "turn", "rested", "exit"])
            row = dice.integers(len(schedule.work))
            more = dice.choice([1, instance.workers[0].memory.block_tokens])
            changed = with_work(schedule, name, row, getattr(schedule.work, name)[row] + more)
            counts[agree_on(instance, changed)] += 1
    assert counts["hits"] > 1
    assert counts[False] > 20


@pytest.mark.full
def test_many_simulated_schedules_are_valid():
    for seed in range(25, 300):
        for workers in (1, 3):
            for rule in RULES:
                assert check(*made(seed, workers, rule)) == [], (seed, workers, rule)


def test_the_rules_differ():
    """INV-22: the same workload under another rule hits others; a schedule is valid under one."""
    apart = Counter()
    for seed in range(25):
        instance, schedule = made(seed)
        for rule in RULES[1:]:
            apart[rule] += check(instance, schedule.replace(eviction={"rule": rule})) != []
    assert min(apart[rule] for rule in RULES[1:]) > 3


def test_no_column_of_a_cache_can_be_wrong():
    """A block more or less hit, turns swapped, evictions at other times or in another order.

    When a request was evicted makes no difference where no step took time meanwhile, or the order
    where nothing was taken since.
    """
    counts = Counter()
    for seed in range(30):
        instance, schedule = made(seed)
        if len(schedule.work) > 40:
            continue
        schedule = schedule.replace(results=summarise(instance, schedule))
        for field, _, make in column_mutations(schedule, "work", with_work):
            name = field.removeprefix("work.")
            if name not in ("hit", "turn", "rested", "exit"):
                continue
            try:
                changed = make()
            except InputError:
                continue
            found = check(instance, changed)
            counts[name, bool(found)] += 1
            assert found or name in ("rested", "exit"), (seed, field)
    for name in ("hit", "turn", "rested", "exit"):
        assert counts[name, True] > 100 * counts[name, False]


def test_turns_that_are_swapped_are_caught():
    """The second of two requests that begin together finds what the first computes."""
    instance, schedule = by_hand([[7, 8], [7, 8]], [10, 11], [0, 8], turns=[0, 1], together=True)
    assert check(instance, schedule) == []
    swapped = with_work(with_work(schedule, "turn", 0, 1), "turn", 1, 0)
    assert [v.request for v in check(instance, swapped) if v.kind == "prefix_cache"] == [0, 1]


def by_hand(chains, prompts, hits, *, blocks=6, turns=None, together=False, eviction=None):
    """Requests with blocks of 4 tokens that are prefilled one after the other, or together."""
    n = len(prompts)
    prefixes = Prefixes(np.cumsum([0, *map(len, chains)]), [key for c in chains for key in c], 4)
    memory = BlockMemory(blocks, 4, "paged", PrefixCache())
    requests = Requests(prompts, [1] * n, arrival_ns=[0] * n, prefixes=prefixes)
    instance = Instance(
        requests, Worker(n, in_order(AffineCost, 0, 1, 0, 0), memory=memory), "prefill"
    )
    computed = np.subtract(prompts, hits)
    lengths = [computed.sum()] if together else computed
    ends, many = np.cumsum(lengths), len(lengths)
    steps = in_order(Steps, [0] * many, [PREFILL] * many, ends - lengths, ends, [1] * many)
    place = [0] * n if together else range(n)
    clients = range(n) if together else [0] * n
    extra = {} if turns is None else {"turn": turns}
    work = Work(range(n), clients, [PREFILL] * n, place, place, computed, hit=hits, **extra)
    return instance, Schedule(instance.sha256, steps, work, "by hand", "none", eviction=eviction)


SHARED = ([7, 8], [], [7, 8])
"""Two requests share two blocks, and one comes in between."""


def test_a_schedule_by_hand():
    """INV-20, INV-21: the third finds both blocks of the first; 9 are held, 3 at a time."""
    instance, schedule = by_hand(SHARED, [10, 9, 11], [0, 0, 8])
    assert check(instance, schedule) == []
    line = Timeline(instance, schedule)
    assert line.caches.blocks.tolist() == [3, 3, 3]
    assert line.cached_after.tolist() == [10, 9, 11]
    assert line.prefix_replay.evicted.tolist() == [0]


@pytest.mark.parametrize("hit", [0, 4])
def test_a_block_less_than_was_there_is_caught(hit):
    """INV-22: what is in the cache is found."""
    (violation,) = check(*by_hand(SHARED, [10, 9, 11], [0, 0, hit]))
    assert (violation.kind, violation.request) == ("prefix_cache", 2)
    assert (violation.expected, violation.found) == (8, hit)


def test_with_fewer_blocks_less_is_left_to_find():
    """INV-21, INV-22: of four blocks the second request takes one of the two; hits are stored."""
    (violation,) = check(*by_hand(SHARED, [10, 9, 11], [0, 0, 8], blocks=4))
    assert (violation.kind, violation.expected, violation.found) == ("prefix_cache", 4, 8)
    instance, schedule = by_hand(SHARED, [10, 9, 11], [0, 0, 4], blocks=4)
    assert check(instance, schedule) == []
    assert Timeline(instance, schedule).prefix_replay.evicted.tolist() == [2]


def test_one_token_is_computed_at_least():
    """INV-20: of a prompt that is there as a whole its last block is computed again."""
    assert check(*by_hand([[7, 8], [7, 8]], [8, 8], [0, 4])) == []
    found = check(*by_hand([[7, 8], [7, 8]], [8, 9], [0, 4]))
    assert [violation.expected for violation in found] == [8]


def test_another_rule_is_another_schedule():
    """INV-22: with a block too few, what is evicted depends on the rule."""
    chains, prompts = [[7, 8], [], [], [7, 8]], [8, 8, 8, 9]
    least = {"rule": "least_future_use"}
    assert check(*by_hand(chains, prompts, [0, 0, 0, 8], blocks=5, eviction=least)) == []
    assert check(*by_hand(chains, prompts, [0, 0, 0, 4], blocks=5)) == []
    for hit, rule in ((8, None), (4, least)):
        hits = [0, 0, 0, hit]
        (violation,) = check(*by_hand(chains, prompts, hits, blocks=5, eviction=rule))
        assert violation.kind == "prefix_cache"


def test_where_no_cache_is_nothing_is_said_of_one():
    instance, schedule = by_hand(SHARED, [10, 9, 11], [0, 0, 8])
    plain = instance.replace(workers=Worker(2, in_order(AffineCost, 0, 1, 0, 0)))
    schedule = schedule.replace(instance_sha256=plain.sha256)
    found = check(plain, schedule)
    assert {violation.field for violation in found} >= {"work.hit"}
    ruled = schedule.replace(eviction={"rule": "lru"})
    assert "eviction" in {violation.field for violation in check(plain, ruled)}


def test_more_blocks_than_there_are_are_seen():
    """INV-3: shared blocks count once, and those that are not shared all count."""
    instance, schedule = by_hand(SHARED, [10, 9, 11], [0, 0, 8])
    few = instance.replace(
        workers=Worker(
            2, in_order(AffineCost, 0, 1, 0, 0), memory=BlockMemory(2, 4, "paged", PrefixCache())
        )
    )
    found = check(few, schedule.replace(instance_sha256=few.sha256))
    assert "memory" in {violation.kind.value for violation in found}


def test_rows_that_are_wrong_in_any_way_raise_nothing():
    counts = Counter()
    for seed in range(40):
        instance, schedule = made(seed, 3)
        if not 20 < len(schedule.work) < 50:
            continue
        mutations = [
            *column_mutations(schedule, "steps", with_step),
            *column_mutations(schedule, "work", with_work),
            *row_mutations(schedule),
        ]
        for _, _, make in mutations[:: max(1, len(mutations) // 40)]:
            try:
                changed = make()
            except InputError:
                continue
            counts[bool(check(instance, changed))] += 1
    assert counts[True] > 100
