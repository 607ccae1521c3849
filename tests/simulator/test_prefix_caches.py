"""Prefix caches in the simulator: what holds at every step, is seen, refused and attended to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched import PolicyError, PrefixCache, Prefixes, RooflineCost, Step, check, decode_rounds
from orsched.data.schedule import DECODE, MIXED, PREFILL
from orsched.simulator import simulate_policy
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
    assert sorted(cache.empty) == [block for block in free if cache.key_of[block] is None]
    for key, block in cache.first.items():
        assert all(cache.key_of[each] == key for each in (block, *cache.others.get(key, ())))


def needed(instance, schedule):
    """Return what each stay has to have before it decodes, and what it hit and computed."""
    work, first = schedule.work, int(instance.first_token == "prefill")
    stays = {}
    yielded = np.zeros(len(instance), int)
    rounds = np.asarray(schedule.steps.rounds)
    decoding = np.asarray(schedule.steps.phase) != PREFILL
    worker = np.asarray(schedule.steps.worker)
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
            same = (worker[here] == worker[work.first_step[row]]) & decoding[here]
            yielded[request] += int(rounds[here][same].sum())
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

    schedule = simulate_policy(instance, policy, look).schedule
    stays, yielded = needed(instance, schedule)
    assert yielded.tolist() == instance.requests.output_tokens.tolist()
    last = dict(sorted(stays))
    for (request, stay), (due, hit, computed) in stays.items():
        assert hit % instance.workers[0].memory.block_tokens == 0
        assert 0 < computed <= due - hit
        assert stay < last[request] or hit + computed == due
    assert orsched.check(instance, schedule) == []


def test_without_a_cache_prefixes_change_nothing():
    """The same steps and bytes, whether requests share prefixes or not."""
    for seed in range(8):
        instance = prefix_instance(seed)
        worker = instance.worker
        memory = orsched.BlockMemory(worker.memory.blocks, worker.memory.block_tokens, "paged")
        plain = orsched.Worker(worker.clients, COST, memory=memory)
        schedules = []
        for requests in (instance.requests, instance.requests.replace(prefixes=None)):
            case = instance.replace(requests=requests, workers=(plain,))
            params = prefix_params(seed, worker.clients)
            schedules.append(simulate_policy(case, prefix_policy(case, params)).schedule)
        assert schedules[0].steps == schedules[1].steps
        assert schedules[0].work == schedules[1].work
        assert not schedules[0].work.hit.any()


# -- by hand ------------------------------------------------------------------------------


def pair(blocks=8, prompts=(12, 14), arrivals=None):
    """Two requests whose first two blocks of 4 are the same."""
    prefixes = Prefixes([0, 2, 4], [7, 8, 7, 8], 4)
    memory = orsched.BlockMemory(blocks, 4, "paged", PrefixCache())
    requests = orsched.Requests(list(prompts), [3, 3], arrival_ns=arrivals, prefixes=prefixes)
    return orsched.Instance(requests, orsched.Worker(2, COST, memory=memory), first_token="decode")


def test_a_request_finds_what_one_of_the_same_step_computes():
    """INV-20: the second computes 6 of its 14 tokens."""
    schedule = simulate_policy(pair(), Script(Step([0, 1], None, None, ()))).schedule
    assert schedule.work.hit.tolist() == [0, 0, 8, 0]
    assert schedule.work.turn.tolist() == [0, 0, 1, 0]
    assert schedule.work.tokens.tolist() == [12, 1, 6, 1]


def test_more_than_is_left_is_cut_and_more_than_is_due_refused():
    """A policy without an eye for caches asks for whole prompts; more than that is an error."""
    schedule = simulate_policy(pair(), Script(Step([0, 1], [12, 14], None, ()))).schedule
    assert schedule.work.tokens.tolist() == [12, 1, 6, 1]
    with pytest.raises(PolicyError, match="15 tokens of request 1, which has 14 left"):
        simulate_policy(pair(), Script(Step([0, 1], [12, 15], None, ())))


def test_blocks_that_do_not_fit_are_refused():
    """They share 2 blocks of the first one's 4; of 5 the second finds one free and takes two."""
    with pytest.raises(PolicyError, match="request 1 takes 2 more memory blocks, where 1 of 5"):
        simulate_policy(pair(5, (16, 14)), Script(Step([0, 1], None, None, ())))


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

    simulate_policy(pair(), Script(look, later))
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

    simulate_policy(pair(arrivals=[0, 10]), Script(look, then))


def test_a_preempted_request_finds_its_own_blocks():
    """All full blocks of what it has computed and yielded, if nobody took them."""
    evict = Step(preempt=[1], decode=())
    steps = (Step([0, 1], None, None, ()), decode_rounds(2), evict, Step([1]))
    schedule = simulate_policy(pair(), Script(*steps)).schedule
    assert orsched.check(pair(), schedule) == []
    second = schedule.work.stay == 1
    assert schedule.work.hit[second].tolist() == [12, 0]
    assert schedule.work.tokens[second].tolist() == [4, 1]  # 16 are due: at least one is computed


def test_evictions_say_when_and_in_which_order():
    """A prefill that rests before it is evicted, and victims that are not the last admitted."""
    instance = pair()
    rest = (Step([0], None, None, ()), Step([1], [1], None, ()), decode_rounds(1))
    schedule = simulate_policy(
        instance, Script(*rest, Step(preempt=[0, 1], decode=()), Step([1, 0], None, None, ()))
    ).schedule
    assert orsched.check(instance, schedule) == []
    work = schedule.work
    assert np.flatnonzero(work.rested).tolist() == np.flatnonzero(work.exit).tolist()
    (row,) = np.flatnonzero(work.exit)
    assert (work.request[row], work.stay[row], work.phase[row]) == (1, 0, PREFILL)
    assert (work.rested[row], work.exit[row]) == (1, 1)


@pytest.mark.parametrize(("seed", "rule"), [(38, "least_future_use"), (47, "task_aware")])
def test_a_wait_that_only_one_worker_saw_is_over(seed, rule):
    """A request is evicted here and begins there at one moment: here a block seemed worth more."""
    instance = prefix_instance(seed, 3, rule)
    schedule = simulate_policy(instance, Whimsical(seed)).schedule
    assert orsched.check(instance, schedule) == []


ATTENTION = in_order(RooflineCost, 0, 0, 0, 0, attended_fs=10**6)
"""A step takes a nanosecond for each attended token of its chunks, and rounds take no time."""


def durations(schedule, *phases):
    steps = schedule.steps
    here = np.isin(steps.phase, phases)
    return (steps.end_ns - steps.start_ns)[here].tolist()


def triangle(tokens):
    return tokens * (tokens + 1) // 2


def simulated(instance, *steps):
    schedule = simulate_policy(instance, Script(*steps)).schedule
    assert check(instance, schedule) == []
    return schedule


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
    instance = orsched.Instance(
        orsched.Requests([10, 7], [1, 1]), orsched.Worker(2, ATTENTION), first_token="decode"
    )
    schedule = simulated(
        instance,
        Step([0], [4]),
        Step([0, 1], [3, 2]),  # 3 tokens behind 4, 2 behind none
        Step([1, 0], [5, 3]),  # 5 behind 2, 3 behind 7
    )
    assert durations(schedule, PREFILL) == [10, 6 + 3 * 4 + 3, 15 + 5 * 2 + 6 + 3 * 7]


def test_a_chunk_beside_a_round_is_behind_its_own_prompt_only():
    instance = orsched.Instance(
        orsched.Requests([5, 8], [9, 1]), orsched.Worker(2, ATTENTION), first_token="decode"
    )
    schedule = simulated(
        instance, Step([0]), Step([1], [6], decode=None), Step([1], [2], decode=None)
    )
    assert durations(schedule, MIXED) == [21, 3 + 2 * 6]


def test_an_evicted_request_begins_with_nothing():
    instance = orsched.Instance(
        orsched.Requests([6], [3]), orsched.Worker(1, ATTENTION), first_token="decode"
    )
    schedule = simulated(instance, Step([0], [4]), Step([0], [2], preempt=[0]), Step([0], [4]))
    assert durations(schedule, PREFILL) == [10, 3, 10 + 4 * 2]


def test_a_hit_is_attended_to():
    memory = orsched.BlockMemory(64, 4, "paged", PrefixCache("lru"))
    requests = orsched.Requests(
        [12, 14], [1, 1], prefixes=Prefixes.from_documents([0, 0], [12, 12], 4)
    )
    instance = orsched.Instance(
        requests, orsched.Worker(2, ATTENTION, memory=memory), first_token="decode"
    )
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
    worker = orsched.Worker(3, ATTENTION)
    requests = orsched.Requests(prompts, [3] * len(prompts))
    instance = orsched.Instance(requests, worker, first_token=rule)
    result = orsched.solve(instance, "vllm", parameters={"max_num_batched_tokens": max(3, budget)})
    took = sum(durations(result.schedule, PREFILL, MIXED))
    assert took == sum(map(triangle, prompts)) == attended_of_stays(instance, result.schedule)
    assert sum(durations(result.schedule, DECODE)) == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_attended_tokens_are_conserved_behind_hits(seed):
    """INV-28: with prefix caches, preemption and chunks."""
    instance = prefix_instance(seed)
    worker = replace(instance.worker, cost=replace(ATTENTION, fixed_fs=10**9))
    instance = instance.replace(workers=worker)
    params = prefix_params(seed, instance.worker.clients)
    schedule = simulate_policy(instance, prefix_policy(instance, params)).schedule
    assert check(instance, schedule) == []
    took = durations(schedule, PREFILL, MIXED)
    assert sum(took) - 1_000 * len(took) == attended_of_stays(instance, schedule)
