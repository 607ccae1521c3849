"""Prefix caches and transfers of caches: what simulators make is valid, what is changed is told."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from orsched import AffineCost, Instance, Prefixes, Requests, Worker, summarise
from orsched.checker import ViolationKind, check
from orsched.data.links import NAMES, Link, Transfers
from orsched.data.memory import RULES, BlockMemory, PrefixCache
from orsched.data.schedule import PREFILL, Schedule, Steps, Work
from orsched.heuristics.continuous import ContinuousBatching
from orsched.heuristics.continuous.async_scheduling import AsyncBatching
from orsched.metrics.timeline import Timeline
from orsched.simulator import simulate_policy
from tests.by_the_book import rule_broken_by
from tests.checker import valid
from tests.checker.test_by_the_book import agree_on
from tests.checker.valid import column_mutations, possible, row_mutations, with_value, with_work
from tests.in_order import in_order
from tests.pools import pool_instance, pool_policy
from tests.simulator.prefix_workloads import prefix_instance, prefix_params, prefix_policy

WAYS = (*RULES, "ahead")
"""The eviction rules, and the first one where each step is planned while the one before runs."""


@cache
def made(seed, workers=1, rule="lru"):
    ahead = rule == "ahead"
    instance = prefix_instance(seed, workers, "lru" if ahead else rule)
    kind = AsyncBatching if ahead else ContinuousBatching
    policy = prefix_policy(instance, prefix_params(seed, instance.workers[0].clients), kind)
    return instance, simulate_policy(instance, policy).schedule


def kinds(instance, schedule):
    return {violation.kind for violation in check(instance, schedule)}


def with_workers(instance, **fields):
    """The instance with each worker changed alike."""
    return instance.replace(workers=tuple(replace(each, **fields) for each in instance.workers))


@pytest.mark.parametrize("rule", WAYS)
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
        assert (used <= worker.memory.blocks).all()
        assert (used > 0).all()  # each step serves somebody


@pytest.mark.parametrize("rule", WAYS)
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
            for rule in WAYS:
                assert check(*made(seed, workers, rule)) == [], (seed, workers, rule)


def test_the_rules_differ():
    """INV-22: the same workload under another rule hits others; a schedule is valid under one."""
    apart = Counter()
    for seed in range(25):
        instance, schedule = made(seed)
        for rule in RULES[1:]:
            apart[rule] += check(instance, schedule.replace(eviction={"rule": rule})) != []
    for seed in range(25, 60):
        instance, schedule = made(seed, rule="ahead")
        apart["ahead"] += check(instance, schedule.replace(eviction=None)) != []
    assert min(apart[rule] for rule in WAYS[1:]) > 3, apart


def test_no_column_of_a_cache_can_be_wrong():
    """A block more or less hit, turns swapped, evictions at other times or in another order.

    When a request was evicted makes no difference where no step took time meanwhile, or the order
    where nothing was taken since.
    """
    counts, columns = Counter(), ("work.hit", "work.turn", "work.rested", "work.exit")
    for seed in range(30):
        instance, schedule = made(seed)
        if len(schedule.work) > 40:
            continue
        schedule = schedule.replace(results=summarise(instance, schedule))
        mutations = (each for each in column_mutations(schedule, "work") if each[0] in columns)
        for field, _, changed in possible(mutations):
            found = check(instance, changed)
            counts[field, bool(found)] += 1
            assert found or field in ("work.rested", "work.exit"), (seed, field)
    assert all(counts[field, True] > 100 * counts[field, False] for field in columns)


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
    worker = Worker(n, in_order(AffineCost, 0, 1, 0, 0), memory=memory)
    instance = Instance(requests, worker, "prefill")
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
    memory = BlockMemory(2, 4, "paged", PrefixCache())
    few = instance.replace(workers=Worker(2, instance.worker.cost, memory=memory))
    assert "memory" in kinds(few, schedule.replace(instance_sha256=few.sha256))


def test_rows_that_are_wrong_in_any_way_raise_nothing():
    counts = Counter()
    for seed in range(40):
        instance, schedule = made(seed, 3)
        if not 20 < len(schedule.work) < 50:
            continue
        mutations = list(valid.table_mutations(schedule))
        for _, _, changed in possible(mutations[:: max(1, len(mutations) // 40)]):
            counts[bool(check(instance, changed))] += 1
    assert counts[True] > 100


SEEDS = (1, 2, 5)
FIELDS = (
    "steps.worker", "steps.start_ns", "steps.end_ns", "work.request", "work.client", "work.stay",
    "work.tokens", "work.first_step", "work.last_step",
)  # fmt: skip


def sending(seed, rule="prefill"):
    instance = pool_instance(seed, rule)
    return instance, simulate_policy(instance, pool_policy(seed)).schedule


@pytest.mark.parametrize("rule", ["prefill", "decode"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_change_is_caught(seed, rule):
    """INV-33, INV-34: no number of a transfer can be another one."""
    instance, schedule = sending(seed, rule)
    assert check(instance, schedule) == []
    for field, what, wrong in possible(column_mutations(schedule, "transfers", every=4)):
        assert check(instance, wrong), (field, what)
        assert rule_broken_by(instance, wrong) is not None, (field, what)


@pytest.mark.parametrize("seed", SEEDS)
def test_missing_and_repeated_transfers_are_caught(seed):
    """A cache that comes from nowhere, one that came twice, and rows out of order."""
    instance, schedule = sending(seed)
    for _, what, wrong in possible(row_mutations(schedule, ["transfers"])):
        assert check(instance, wrong), what
        assert "swapped" in what or rule_broken_by(instance, wrong) is not None, what
    assert check(instance, schedule.replace(transfers=None))


def test_work_and_steps_that_do_not_suit_the_transfers():
    """Each value of the steps and rows is changed: checker and literal reading judge alike."""
    instance, schedule = sending(2)
    for table in ("steps", "work"):
        mutations = column_mutations(schedule, table, every=7)
        for field, what, wrong in possible(each for each in mutations if each[0] in FIELDS):
            rule = rule_broken_by(instance, wrong)
            assert bool(check(instance, wrong)) == (rule is not None), (field, what)


def test_roles_are_kept():
    """INV-33: who may not prefill or decode does not."""
    instance, schedule = sending(1)
    roles = ["decode", *["prefill"] * (len(instance.workers) - 1)]
    pairs = zip(instance.workers, roles, strict=True)
    workers = tuple(replace(worker, role=role) for worker, role in pairs)
    assert ViolationKind.ROLE in kinds(instance.replace(workers=workers), schedule)


def test_a_link_carries_one_cache_at_a_time():
    """INV-34: a transfer that waits for the link, moved ahead as a whole, meets the one before."""
    workers = (Worker(4, role="prefill"), Worker(4, role="decode"))
    link = Link(ns_per_token=7, latency_ns=50)
    instance = Instance(Requests([10, 20], [3, 2]), workers, first_token="prefill", link=link)
    schedule = simulate_policy(instance, pool_policy(0)).schedule
    assert check(instance, schedule) == []
    assert schedule.transfers.start_ns[1] == schedule.transfers.end_ns[0]
    ahead = schedule
    for name in ("start_ns", "end_ns"):
        sooner = int(getattr(schedule.transfers, name)[1]) - 1
        ahead = with_value(ahead, "transfers", name, 1, sooner)
    (violation,) = check(instance, ahead)
    assert "while its link is busy" in violation.message
    assert rule_broken_by(instance, ahead) == "one transfer at a time"


def test_a_transfer_needs_a_link():
    """Without a link a cache goes nowhere."""
    instance, schedule = sending(1)
    alone = with_workers(instance, role="both", device="").replace(link=None)
    assert ViolationKind.TRANSFER in kinds(alone, schedule)


def test_a_shared_device_does_one_thing_at_a_time():
    """INV-35: steps of two workers that share a device do not overlap."""
    instance, schedule = sending(1)
    together = with_workers(instance, device="gpu")
    assert ViolationKind.STAGE_EXCLUSIVITY in kinds(together, schedule)
    assert rule_broken_by(together, schedule) == "one device"


def test_memory_of_both_sides_counts_while_a_cache_is_on_its_way():
    """Workers that just hold what they hold are too small with a block less, on both sides."""
    caught = {"source": 0, "target": 0}
    for seed in (1, 11):
        instance, schedule = sending(seed)
        held = [0] * len(instance.workers)
        for index, worker in enumerate(instance.workers):
            for blocks in range(worker.memory.blocks, 0, -1):
                workers = [*instance.workers]
                workers[index] = replace(worker, memory=replace(worker.memory, blocks=blocks))
                other = instance.replace(workers=tuple(workers))
                wrong = kinds(other, schedule) - {ViolationKind.INSTANCE}
                assert bool(wrong) == (rule_broken_by(other, schedule) is not None)
                if wrong:
                    held[index] = blocks + 1
                    break
            caught["source" if worker.role == "prefill" else "target"] += held[index] > 0
    assert min(caught.values()) >= 2


def test_strange_transfers_never_raise():
    """The checker answers for every table that can be built."""
    instance, schedule = sending(2)
    draw = np.random.default_rng(0)
    for _ in range(100):
        n = int(draw.integers(1, 8))
        columns = {name: draw.integers(1, 2**31 - 1, n) for name in NAMES}
        for name in draw.choice(NAMES, 4):
            columns[name] = draw.integers(1, 4, n)
        assert check(instance, schedule.replace(transfers=Transfers(**columns)))


def test_an_instance_without_requests():
    workers = (Worker(1, role="prefill"), Worker(1, role="decode"))
    empty = pool_instance(1).requests.take([])
    instance = Instance(empty, workers, link=Link(), first_token="decode")
    assert check(instance, simulate_policy(instance, pool_policy(1)).schedule) == []
