"""Prefix caches in the simulator, and the block cache beside one that is written literally."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orsched import Instance, PolicyError, Prefixes, RooflineCost, Step, Worker, decode_rounds
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.requests import Requests
from orsched.data.schedule import DECODE, MIXED, PREFILL
from orsched.simulator import simulate_policy
from orsched.simulator.block_cache import BlockCache
from orsched.simulator.free_blocks import LeastRecent, PrefixChains
from tests.heuristics.building import same, solved
from tests.in_order import in_order
from tests.simulator.prefix_workloads import (
    COST,
    Whimsical,
    prefix_instance,
    prefix_params,
    prefix_policy,
)
from tests.simulator.scripted import Script

RULES = ("lru", "task_aware", "least_future_use")


def require_sound(cache):
    """Assert that each block is held or free, once, and that contents are where they are said."""
    held = np.zeros(cache.blocks, int)
    for table in cache.tables.values():
        assert len(set(table)) == len(table)
        for block in table:
            held[block] += 1
    assert held.tolist() == cache.counts
    free = [block for block, count in enumerate(cache.counts) if not count]
    assert len(free) == cache.free
    soon = {block for blocks in cache.soon for block in blocks}  # of evictions that wait
    assert soon <= {*free}
    blank = [block for block in free if cache.key_of[block] is None]
    assert sorted(cache.empty) == [block for block in blank if block not in soon]
    for key, block in cache.first.items():
        assert all(cache.key_of[each] == key for each in (block, *cache.others.get(key, ())))


def needed(instance, schedule):
    """Return what each stay has to have before it decodes, and what it hit and computed."""
    work, first = schedule.work, int(instance.first_token == "prefill")
    stays, yielded, steps = {}, np.zeros(len(instance), int), schedule.steps
    for row in range(len(work)):
        request, key = int(work.request[row]), (int(work.request[row]), int(work.stay[row]))
        if key not in stays:
            due = int(instance.requests.prompt_tokens[request] + yielded[request])
            stays[key] = [due, int(work.hit[row]), 0]
        if work.phase[row] == PREFILL:
            stays[key][2] += int(work.tokens[row])
            if sum(stays[key][1:]) == stays[key][0]:
                yielded[request] += first
        else:
            here = slice(work.first_step[row], work.last_step[row] + 1)
            mine = steps.worker[here] == steps.worker[work.first_step[row]]
            yielded[request] += steps.rounds[here][mine & (steps.phase[here] != PREFILL)].sum()
    return stays, yielded


@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from(RULES), st.booleans())
@settings(max_examples=30)
def test_blocks_are_conserved_at_every_step(seed, workers, rule, at_random):
    """INV-20, INV-21, INV-22: shared or free, computed and hit make up what is due, as checked."""
    instance = prefix_instance(seed, workers, rule)
    policy = prefix_policy(instance, prefix_params(seed, instance.workers[0].clients))
    if at_random:
        policy = Whimsical(seed)

    def look(view, step):
        cache = view._state.pages.cache
        cache.undo()  # what the policy tried, as the executor is about to
        require_sound(cache)
        assert view.blocks_unused == cache.free

    schedule = solved(instance, policy, observer=look)
    stays, yielded = needed(instance, schedule)
    assert yielded.tolist() == instance.requests.output_tokens.tolist()
    last = dict(sorted(stays))
    for (request, stay), (due, hit, computed) in stays.items():
        assert hit % instance.workers[0].memory.block_tokens == 0
        assert 0 < computed <= due - hit
        assert stay < last[request] or hit + computed == due


def test_without_a_cache_prefixes_change_nothing():
    """The same steps and bytes, whether requests share prefixes or not."""
    for seed in range(8):
        instance = prefix_instance(seed)
        worker = instance.worker
        plain = replace(worker, memory=replace(worker.memory, prefix_cache=None))
        schedules = []
        for requests in (instance.requests, instance.requests.replace(prefixes=None)):
            case = instance.replace(requests=requests, workers=(plain,))
            params = prefix_params(seed, worker.clients)
            schedules.append(simulate_policy(case, prefix_policy(case, params)).schedule)
        assert same(*schedules)
        assert not schedules[0].work.hit.any()


# -- by hand ------------------------------------------------------------------------------


def pair(blocks=8, prompts=(12, 14), arrivals=None):
    """Two requests whose first two blocks of 4 are the same."""
    prefixes = Prefixes([0, 2, 4], [7, 8, 7, 8], 4)
    memory = BlockMemory(blocks, 4, "paged", PrefixCache())
    requests = Requests(list(prompts), [3, 3], arrival_ns=arrivals, prefixes=prefixes)
    return Instance(requests, Worker(2, COST, memory=memory), first_token="decode")


def simulated(instance, *steps):
    return solved(instance, Script(*steps))


BOTH = Step([0, 1], None, None, ())


@pytest.mark.parametrize("tokens", [None, [12, 14]])
def test_a_request_finds_what_one_of_the_same_step_computes(tokens):
    """INV-20: the second computes 6 of its 14 tokens, also where all 14 are asked for."""
    work = simulated(pair(), Step([0, 1], tokens, None, ())).work
    assert work.hit.tolist() == [0, 0, 8, 0]
    assert work.turn.tolist() == [0, 0, 1, 0]
    assert work.tokens.tolist() == [12, 1, 6, 1]


def test_more_than_is_due_is_refused():
    with pytest.raises(PolicyError, match="15 tokens of request 1, which has 14 left"):
        simulated(pair(), Step([0, 1], [12, 15], None, ()))


def test_blocks_that_do_not_fit_are_refused():
    """They share 2 blocks of the first one's 4; of 5 the second finds one free and takes two."""
    with pytest.raises(PolicyError, match="request 1 takes 2 more memory blocks, where 1 of 5"):
        simulated(pair(5, (16, 14)), BOTH)


def test_a_view_shows_hits_and_tries_steps():
    """What a trial finds is what the step finds; afterwards nothing has happened."""
    seen = []

    def look(view):
        prefixes = view.prefixes
        assert prefixes.hit_tokens(0) == 0
        with prefixes.trial() as trial:
            assert trial.admit(0) == 0
            assert trial.free_blocks == 5
            assert trial.hit(1) == (8, 0)
            assert trial.admit(1, 2) == 8
            seen.append(trial.free_blocks)
        with pytest.raises(PolicyError, match="closed"):
            trial.hit(1)
        assert prefixes.hit_tokens(1) == 0
        assert view.blocks_unused == 8
        prefixes.trial().admit(0)  # left open: the executor closes it
        return Step([0, 1], [12, 2], None, ())

    def later(view):
        seen.append(view.blocks_unused)
        trial = view.prefixes.trial()
        trial.extend(1, 4)
        seen.append(trial.free_blocks)
        with pytest.raises(PolicyError, match="does not wait"):
            trial.admit(0)
        trial.release(0)
        seen.append(trial.free_blocks)
        with pytest.raises(PolicyError, match="cannot be evicted"):
            trial.release(0)
        with pytest.raises(PolicyError, match="not in its prefill"):
            trial.extend(0, 1)
        return Step([1], None, None, ())

    simulated(pair(), look, later)
    assert seen == [4, 4, 3, 4]


def test_what_has_not_arrived_is_not_seen():
    """Not by a policy that does not know the future (INV-8)."""

    def look(view):
        assert view.prefixes.hit_tokens(1) == 0
        with view.prefixes.trial() as trial:
            trial.admit(0)
            assert trial.hit(1) == (0, 0)
            with pytest.raises(PolicyError, match="has not arrived"):
                trial.admit(1)
        return Step([0], None, None, ())

    def then(view):
        assert view.prefixes.hit_tokens(1) == 8
        return Step([1])

    simulated(pair(arrivals=[0, 10]), look, then)


def test_a_preempted_request_finds_its_own_blocks():
    """All full blocks of what it has computed and yielded, if nobody took them."""
    steps = (BOTH, decode_rounds(2), Step(preempt=[1], decode=()), Step([1]))
    work = simulated(pair(), *steps).work
    assert work.hit[work.stay == 1].tolist() == [12, 0]
    assert work.tokens[work.stay == 1].tolist() == [4, 1]  # 16 are due: at least one is computed


def test_evictions_say_when_and_in_which_order():
    """A prefill that rests before it is evicted, and victims that are not the last admitted."""
    steps = (Step([0], None, None, ()), Step([1], [1], None, ()), decode_rounds(1))
    both = (Step(preempt=[0, 1], decode=()), Step([1, 0], None, None, ()))
    work = simulated(pair(), *steps, *both).work
    assert np.flatnonzero(work.rested).tolist() == np.flatnonzero(work.exit).tolist()
    (row,) = np.flatnonzero(work.exit)
    assert (work.request[row], work.stay[row], work.phase[row]) == (1, 0, PREFILL)
    assert (work.rested[row], work.exit[row]) == (1, 1)


@pytest.mark.parametrize(("seed", "rule"), [(38, "least_future_use"), (47, "task_aware")])
def test_a_wait_that_only_one_worker_saw_is_over(seed, rule):
    """A request is evicted here and begins there at one moment: here a block seemed worth more."""
    solved(prefix_instance(seed, 3, rule), Whimsical(seed))


ATTENTION = in_order(RooflineCost, 0, 0, 0, 0, attended_fs=10**6)
"""A step takes a nanosecond for each attended token of its chunks, and rounds take no time."""


def durations(schedule, *phases):
    steps = schedule.steps
    here = np.isin(steps.phase, phases)
    return (steps.end_ns - steps.start_ns)[here].tolist()


def triangle(tokens):
    return tokens * (tokens + 1) // 2


def attending(prompts, outputs, clients=2, memory=None, prefixes=None):
    worker = Worker(clients, ATTENTION, memory=memory)
    return Instance(Requests(prompts, outputs, prefixes=prefixes), worker, first_token="decode")


def attended_of_stays(instance, schedule):
    """Attended tokens of the stays by their rows: each token attends to what is before it."""
    work, found, before = schedule.work, 0, {}
    for row in range(len(work)):
        if work.phase[row] == PREFILL:
            stay = int(work.request[row]), int(work.stay[row])
            start = before.get(stay, int(work.hit[row]))
            before[stay] = start + int(work.tokens[row])
            found += triangle(before[stay]) - triangle(start)
    return found


def test_several_chunks_in_a_step_have_each_its_own():
    schedule = simulated(
        attending([10, 7], [1, 1]),
        Step([0], [4]),
        Step([0, 1], [3, 2]),  # 3 tokens behind 4, 2 behind none
        Step([1, 0], [5, 3]),  # 5 behind 2, 3 behind 7
    )
    assert durations(schedule, PREFILL) == [10, 6 + 3 * 4 + 3, 15 + 5 * 2 + 6 + 3 * 7]


def test_a_chunk_beside_a_round_is_behind_its_own_prompt_only():
    steps = Step([0]), Step([1], [6], decode=None), Step([1], [2], decode=None)
    schedule = simulated(attending([5, 8], [9, 1]), *steps)
    assert durations(schedule, MIXED) == [21, 3 + 2 * 6]


def test_an_evicted_request_begins_with_nothing():
    steps = Step([0], [4]), Step([0], [2], preempt=[0]), Step([0], [4])
    schedule = simulated(attending([6], [3], 1), *steps)
    assert durations(schedule, PREFILL) == [10, 3, 10 + 4 * 2]


def test_a_hit_is_attended_to():
    memory = BlockMemory(64, 4, "paged", PrefixCache("lru"))
    prefixes = Prefixes.from_documents([0, 0], [12, 12], 4)
    instance = attending([12, 14], [1, 1], 2, memory, prefixes)
    schedule = simulated(instance, Step([0]), Step([1], [1]), Step([1], [1]))
    assert schedule.work.hit.max() == 12
    assert durations(schedule, PREFILL, MIXED) == [triangle(12), 1 + 12, 1 + 13]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6),
    st.integers(1, 40),
    st.sampled_from(("prefill", "decode")),
)
def test_attended_tokens_are_conserved(prompts, budget, rule):
    """INV-28: in chunks as at once, with the policy that cuts prompts to a budget."""
    instance = attending(prompts, [3] * len(prompts), 3).replace(first_token=rule)
    schedule = solved(instance, "vllm", max_num_batched_tokens=max(3, budget))
    took = sum(durations(schedule, PREFILL, MIXED))
    assert took == sum(map(triangle, prompts)) == attended_of_stays(instance, schedule)
    assert sum(durations(schedule, DECODE)) == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_attended_tokens_are_conserved_behind_hits(seed):
    """INV-28: with prefix caches, preemption and chunks."""
    instance = prefix_instance(seed)
    worker = replace(instance.worker, cost=replace(ATTENTION, fixed_fs=10**9))
    instance = instance.replace(workers=worker)
    params = prefix_params(seed, instance.worker.clients)
    schedule = solved(instance, prefix_policy(instance, params))
    took = durations(schedule, PREFILL, MIXED)
    assert sum(took) - 1_000 * len(took) == attended_of_stays(instance, schedule)


SIZE = 4
CHAINS = [[0, 1, 2], [0, 1, 3], [0, 4], [], [0, 1, 2]]
PROMPTS = [12, 14, 8, 9, 13]
DRAWN = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 11)), max_size=60)


class NaiveBlockCache:
    """A prefix cache as its rules say it: least recent use, all free blocks in one list."""

    def __init__(self, blocks, size, chains):
        self.size, self.chains = size, chains
        self.key = [None] * blocks
        self.got = [0] * blocks  # when each block got its key
        self.users = [[] for _ in range(blocks)]
        self.queue = list(range(blocks))
        self.tables = {}
        self.clock = 0

    def name(self, request, place):
        known = self.chains[request]
        return known[place] if place < len(known) else (request, place)

    def lookup(self, request, due):
        found = []
        for place in range((due - 1) // self.size):
            holders = [b for b, key in enumerate(self.key) if key == self.name(request, place)]
            if not holders:
                break
            found.append(min(holders, key=lambda block: self.got[block]))
        return found

    def admit(self, request, due):
        """Let a request start; return the tokens hit."""
        blocks = self.lookup(request, due)
        for block in blocks:
            self.users[block].append(request)
            if block in self.queue:
                self.queue.remove(block)
        self.tables[request] = list(blocks)
        return len(blocks) * self.size

    def extend(self, request, cached, tokens):
        """Let a cache grow, and give keys to all blocks that are full."""
        table = self.tables[request]
        while len(table) * self.size < cached + tokens:
            block = self.queue.pop(0)
            self.key[block] = None
            self.users[block] = [request]
            table.append(block)
        for place in range((cached + tokens) // self.size):
            if self.key[table[place]] is None:
                self.clock += 1
                self.key[table[place]] = self.name(request, place)
                self.got[table[place]] = self.clock

    def release(self, request):
        """Free a request's blocks, the last first; those without content go to the front."""
        for block in reversed(self.tables.pop(request)):
            self.users[block].remove(request)
            if not self.users[block]:
                if self.key[block] is None:
                    self.queue.insert(0, block)
                else:
                    self.queue.append(block)

    def contents(self):
        """Return what free blocks hold in the order in which they are taken, and what is held."""
        free = [self.key[block] for block in self.queue]
        held = sorted(map(str, (self.key[b] for b, users in enumerate(self.users) if users)))
        return free, held


class Both:
    """Does the same to both caches, if there is room for it."""

    def __init__(self, blocks):
        chains = PrefixChains.__new__(PrefixChains)
        chains.shared = chains.of_prompt = [len(chain) for chain in CHAINS]
        chains.keys = lambda request, most: CHAINS[request][:most]
        self.cache = BlockCache(blocks, SIZE, chains, LeastRecent(blocks))
        self.naive = NaiveBlockCache(blocks, SIZE, CHAINS)
        self.cached = {}
        self.due = dict(enumerate(PROMPTS))

    def act(self, request, choice, naive=True):
        """Let a request start, grow, be evicted or be done."""
        cache, done = self.cache, self.cached.get(request)
        if done is None:
            if -(-self.due[request] // SIZE) > cache.free:
                return
            self.cached[request] = cache.admit(request, self.due[request])
            if naive:
                assert self.naive.admit(request, self.due[request]) == self.cached[request]
            self.grow(request, 1 + choice % (self.due[request] - self.cached[request]), naive)
        elif choice < 7:
            self.grow(request, 1 + choice, naive)
        else:
            # What was yielded is due again; once it is done a request does not come back.
            returns = choice < 11
            self.due[request] = max(done, PROMPTS[request]) if returns else 10**6
            del self.cached[request]
            cache.release(request, done, self.due[request] if returns else None)
            if naive:
                self.naive.release(request)

    def grow(self, request, tokens, naive):
        done = self.cached[request]
        if -(-(done + tokens) // SIZE) - -(-done // SIZE) > self.cache.free:
            return
        self.cache.extend(request, done, tokens)
        self.cached[request] = done + tokens
        if naive:
            self.naive.extend(request, done, tokens)

    def state(self):
        """Return all of the cache that can matter."""
        cache, order = self.cache, self.cache.order
        entries = [e for e in order.queue if order.entry[e & (2**32 - 1)] == e]
        held = SimpleNamespace(**{name: deepcopy(getattr(cache, name)) for name in (
            "counts", "key_of", "empty", "first", "others", "tables", "free", "evictions"
        )})  # fmt: skip
        return held, [entry & (2**32 - 1) for entry in entries]


@given(st.integers(6, 14), DRAWN)
@settings(max_examples=150)
def test_the_cache_does_what_the_rules_say(blocks, drawn):
    """INV-20, INV-21, INV-22: equal hits throughout, and equal contents that are lost."""
    both = Both(blocks)
    for request, choice in drawn:
        both.act(request, choice)
        cache = both.cache
        assert {r: len(t) for r, t in cache.tables.items()} == {
            r: len(t) for r, t in both.naive.tables.items()
        }
        assert cache.free == len(both.naive.queue)
        for other, due in both.due.items():
            if other not in both.cached and due < 10**6:
                assert len(cache.lookup(other, due)) == len(both.naive.lookup(other, due))


@given(st.integers(6, 14), DRAWN, st.integers(0, 59))
@settings(max_examples=150)
def test_what_is_tried_is_undone(blocks, drawn, split):
    """INV-22: after a trial all is as before: blocks, keys, counts and the order of the free."""
    both = Both(blocks)
    for request, choice in drawn[:split]:
        both.act(request, choice, naive=False)
    before, cached, due = both.state(), dict(both.cached), dict(both.due)
    both.cache.log = []
    for request, choice in drawn[split:]:
        both.act(request, choice, naive=False)
    both.cache.undo()
    assert both.state() == before
    both.cached, both.due = cached, due
    for request, choice in drawn[split:]:
        both.act(request, choice, naive=False)


def test_blocks_that_are_missing_are_named():
    """More blocks than are free are refused."""
    both = Both(3)
    both.cache.admit(0, 16)
    with pytest.raises(PolicyError, match=r"request 0 takes 4 more .* 3 of 3 are free"):
        both.cache.extend(0, 0, 16)
