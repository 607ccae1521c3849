"""Over-sampling: aborts by hand, against the checker's rule, and bounds on what has to be done."""

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import orsched
from orsched import AffineCost, BlockMemory, PrefixCache, Worker, check
from orsched.costs.affine import LevelsCost
from orsched.planning.oversampling import keep_violations, least_of_groups, oversample
from tests.decoding import decoding
from tests.in_order import in_order
from tests.refusals import refusal

SECOND = 10**9


def worker(clients, round_s=2, **more):
    """Prefill stages of 1 s, rounds of two seconds, whatever is in them."""
    return Worker(clients, in_order(AffineCost, SECOND, 0, round_s * SECOND, 0), **more)


@pytest.mark.parametrize(("workers", "keep", "tokens", "end_s"), [
    ((worker(3),), 1, [2, 2, 2], 5),  # all prefilled by 1, the first is done at 1 + 2 x 2
    ((worker(3),), 2, [2, 5, 5], 11),
    ((worker(3),), 3, [2, 5, 9], 19),
    ((worker(2),), 1, [2, 2, 0], 5),  # the third still waits
    ((worker(1),), 1, [2, 0, 0], 5),
    ((worker(1, name="a"), worker(1, 3, name="b")), 1, [2, 2, 0], 7),  # b ends its second round
    ((worker(1, name="a"), worker(1, 9, name="b")), 1, [2, 1, 0], 10),  # and its first
])  # fmt: skip
def test_the_rest_of_a_group_leaves_when_enough_are_done(workers, keep, tokens, end_s):
    instance = decoding([1, 1, 1], [2, 5, 9], workers, group=[0, 0, 0])
    found = oversample(instance, "vllm+dispatch=round_robin", keep=keep)
    assert (found.tokens.tolist(), found.makespan_ns) == (tokens, end_s * SECOND)
    assert found.violations == ()
    assert found.aborted.tolist() == [r for r, t in enumerate(tokens) if t < [2, 5, 9][r]]
    assert found.bound.value_ns <= found.makespan_ns


def test_what_was_aborted_is_carried_over_with_its_tokens_as_prompt():
    instance = decoding([3, 3, 3], [2, 5, 9], worker(2), group=[4, 4, 4], predicted_tokens=[9] * 3)
    rest = oversample(instance, keep=1).carried()
    assert rest.prompt_tokens.tolist() == [5, 3]
    assert rest.output_tokens.tolist() == [3, 9]
    assert (rest.group.tolist(), rest.predicted_tokens) == ([4, 4], None)


def batch(seed, blocks=None):
    """A few groups of different sizes on one to three workers."""
    draw = random.Random(seed)
    group = [g for g in range(draw.randint(1, 5)) for _ in range(draw.randint(3, 5))]
    n = len(group)
    memory = None if blocks is None else BlockMemory(blocks, 4)
    cost = in_order(AffineCost, 5, draw.randint(0, 2), 7, 1)
    workers = tuple(
        Worker(draw.randint(1, 4), cost, memory=memory, name=f"w{k}")
        for k in range(draw.randint(1, 3))
    )
    rule = draw.choice(["prefill", "decode"])
    columns = [[draw.randint(1, high) for _ in range(n)] for high in (6, 20)]
    return decoding(*columns, workers, group=group).replace(first_token=rule)


@pytest.mark.parametrize("policy", ["vllm", "vllm+steal=true", "vllm+max_num_batched_tokens=8"])
def test_random_batches_keep_the_rules_and_end_above_the_bound(policy):
    restarts = aborted = 0
    for seed in range(40):
        instance = batch(seed, blocks=9 if seed % 2 else None)
        found = oversample(instance, policy, keep=1 + seed % 3)
        assert found.violations == ()
        assert found.bound.value_ns <= found.makespan_ns
        assert 0 <= found.tail_ns <= found.makespan_ns
        restarts += found.schedule.results["restarts"]
        aborted += len(found.aborted)
    assert aborted > 100
    assert restarts > 5


def test_the_least_of_each_group_is_below_whatever_is_kept():
    """The bound for it is at most that of every choice of two of each group, done alone."""
    for seed in range(3):
        instance = batch(seed)
        lower = orsched.bound(least_of_groups(instance, 2)).value_ns
        groups = np.array(instance.requests.group)
        first = [list(combinations(np.flatnonzero(groups == g), 2)) for g in np.unique(groups)]
        draw = random.Random(seed)
        for _ in range(20):
            rows = sorted(row for pairs in first for row in draw.choice(pairs))
            alone = instance.replace(requests=instance.requests.take(rows))
            assert lower <= orsched.simulate(alone, "vllm").makespan_ns


def test_a_schedule_that_serves_aborted_requests_on_is_found_out():
    instance = decoding([1, 1, 1], [2, 5, 9], worker(3), group=[0, 0, 0])
    found = oversample(instance, keep=2)
    faults = {keep: keep_violations(instance, keep, *parts(found)) for keep in (1, 2, 3)}
    assert faults[2] == []
    assert faults[1] == [f"request {row} is served after its group is full" for row in (2,)]
    assert "has 2 requests that are done, fewer than 3" in faults[3][0]
    for tokens in ([2, 5, 4], [2, 5, 10], [2, 5, 0]):
        assert keep_violations(instance, 2, np.array(tokens), *parts(found)[1:])
    slower = found.served.replace(workers=worker(3, 3))
    assert keep_violations(instance, 2, found.tokens, slower, found.schedule)
    assert check(found.served, replace(found.schedule, steps=found.schedule.steps)) == []


def parts(found):
    return found.tokens, found.served, found.schedule


CACHED = worker(2, memory=BlockMemory(9, 4, "paged", PrefixCache("lru")))
LEVELS = Worker(2, LevelsCost(levels=((8, 5),), round_fixed_ns=1))


@pytest.mark.parametrize(("columns", "where", "keep", "policy", "says"), [
    ({}, worker(2), 1, "vllm", "no groups"),
    ({"group": [0, 0], "arrival_ns": [0, 5]}, worker(2), 1, "vllm", "arrive over time"),
    ({"group": [0, 0]}, worker(2), 3, "vllm", "3 is above 2"),
    ({"group": [0, 1]}, worker(2), 2, "vllm", "2 is above 1"),
    ({"group": [0, 0]}, worker(2), 0, "vllm", "0 is below 1"),
    ({"group": [0, 0]}, CACHED, 1, "vllm", "prefix caches"),
    ({"group": [0, 0]}, LEVELS, 1, "vllm", "under levels costs"),
    ({"group": [0, 0]}, worker(2), 1, "fcfs", "policy fcfs cannot abort requests"),
    ({"group": [0, 0]}, worker(2), 1, "vtc", "cannot abort requests"),
    ({"group": [0, 0]}, worker(2), 1, "exact", "cannot abort requests"),
])  # fmt: skip
def test_what_cannot_be_oversampled_is_refused_by_name(columns, where, keep, policy, says):
    instance = decoding([1, 1], [2, 3], where, **columns)
    assert says in str(refusal(oversample, instance, policy, keep=keep))
