"""What is cached before chunks reaches the cost model: chunks, recomputed prefills, prefix hits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import orsched
from orsched.checker import check
from orsched.costs import RooflineCost
from orsched.data.memory import PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.data.schedule import DECODE, MIXED, PREFILL
from orsched.data.step import Step
from orsched.simulator import simulate_policy
from tests.in_order import in_order
from tests.simulator.prefix_workloads import prefix_instance, prefix_params, prefix_policy
from tests.simulator.scripted import Script

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
    schedule = simulated(
        instance,
        Step([0], [4]),
        Step([0], [2], preempt=[0]),
        Step([0], [4]),
    )
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
