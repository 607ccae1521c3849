"""Batching modes whose timelines are worked out by hand, for the simulator and the naive one."""

import pytest

from orsched import AffineCost, BlockMemory, Instance, Requests, Step, Worker
from orsched.data.step import Wait, batch_rounds, decode_rounds, evict, mixed_step, prefill_stage
from orsched.simulator import simulate_policy
from tests.heuristics.building import rows_of, steps_of
from tests.in_order import in_order
from tests.oracle import oracle
from tests.simulator.instances import ContextCost
from tests.simulator.scripted import COST, Script, small

CONTEXT = ContextCost(fixed=0, client=0, total=1, most=100)  # a stage: 7 + squares


def simulated(instance, policy):
    return simulate_policy(instance, policy).schedule


executors = pytest.mark.parametrize("execute", [simulated, oracle], ids=["simulator", "oracle"])


def steps(schedule):
    return steps_of(schedule, "worker", "phase", "start_ns", "end_ns", "rounds")


def work(schedule):
    return rows_of(schedule.work, "request", "phase", "first_step", "last_step", "tokens", "stay")


@executors
def test_a_static_batch_yields_invalid_tokens_until_its_longest_is_done(execute):
    instance = small([2, 3], [1, 3], cost=CONTEXT)
    policy = Script(prefill_stage([0, 1]), batch_rounds())
    schedule = execute(instance, policy)
    ends = (7 + 4 + 9, (3 + 4) + 400, (4 + 5) + 500 + (5 + 6) + 600)
    assert steps(schedule) == [
        (0, 0, 0, ends[0], 1),
        (0, 1, ends[0], ends[0] + ends[1], 1),
        (0, 1, ends[0] + ends[1], sum(ends), 2),
    ]
    assert work(schedule) == [
        (0, 0, 0, 0, 2, 0), (0, 1, 1, 1, 1, 0), (0, 2, 2, 2, 1, 0), (1, 0, 0, 0, 3, 0),
        (1, 1, 1, 2, 1, 0),
    ]  # fmt: skip
    finishes = [call for call in policy.told if call[0] == "finish"]
    assert finishes == [("finish", 0, 0, sum(ends)), ("finish", 1, 0, sum(ends))]


@executors
def test_a_slice_ends_with_those_that_are_done(execute):
    """After 2 rounds request 0 leaves with 1 invalid token, request 1 is evicted and restarts."""
    instance = small([2, 3], [1, 3])
    policy = Script(prefill_stage([0, 1]), batch_rounds(2), evict([1]), prefill_stage([1]))
    schedule = execute(instance, policy)
    assert steps(schedule) == [
        (0, 0, 0, 5, 1), (0, 1, 5, 15, 1), (0, 1, 15, 25, 1), (0, 0, 25, 30, 1), (0, 1, 30, 40, 1),
    ]  # fmt: skip
    assert work(schedule)[3:] == [
        (1, 0, 0, 0, 3, 0), (1, 1, 1, 2, 1, 0), (1, 0, 3, 3, 3 + 2, 1), (1, 1, 4, 4, 1, 1),
    ]  # fmt: skip
    assert policy.told[2:] == [("finish", 0, 0, 25), ("preempt", 1, 0, 25), ("finish", 1, 0, 40)]


@executors
def test_a_restart_under_the_prefill_rule_yields_a_token(execute):
    """Token 1 by the prefill, token 2 by a round, token 3 by the prefill after the eviction."""
    instance = small([4], [3], rule="prefill")
    again = Step(preempt=[0], prefill=[0], decode=())
    schedule = execute(instance, Script(prefill_stage([0]), decode_rounds(1), again))
    assert steps(schedule) == [(0, 0, 0, 4, 1), (0, 1, 4, 14, 1), (0, 0, 14, 20, 1)]
    assert work(schedule) == [(0, 0, 0, 0, 4, 0), (0, 1, 1, 1, 1, 0), (0, 0, 2, 2, 6, 1)]


@executors
def test_a_last_token_by_a_mixed_step_is_told_once(execute):
    """The eviction leaves request 1 to finish where it would have finished without it."""
    instance = small([1, 1], [3, 2], rule="prefill")
    again = Step(preempt=[1], prefill=[1])
    policy = Script(prefill_stage([0, 1]), again)
    schedule = execute(instance, policy)
    assert steps(schedule) == [(0, 0, 0, 2, 1), (0, 2, 2, 14, 1), (0, 1, 14, 24, 1)]
    assert policy.told[3:] == [("finish", 1, 0, 14), ("finish", 0, 0, 24)]


@executors
def test_chunks_beside_rounds_share_the_fixed_part(execute):
    """A mixed step takes max(5, 10) + tokens + 2 a client, and chunks make up the prompt."""
    instance = small([1, 5], [4, 1], cost=in_order(AffineCost, 5, 1, 10, 2))
    policy = Script(prefill_stage([0]), mixed_step([1], [3]), mixed_step([1], [2]))
    schedule = execute(instance, policy)
    assert steps(schedule) == [
        (0, 0, 0, 6, 1), (0, 2, 6, 6 + 10 + 3 + 2, 1), (0, 2, 21, 21 + 10 + 2 + 2, 1),
        (0, 1, 35, 35 + 10 + 4, 1), (0, 1, 49, 49 + 10 + 2, 1),
    ]  # fmt: skip
    assert work(schedule) == [
        (0, 0, 0, 0, 1, 0), (0, 1, 1, 4, 1, 0), (1, 0, 1, 1, 3, 0), (1, 0, 2, 2, 2, 0),
        (1, 1, 3, 3, 1, 0),
    ]  # fmt: skip


@executors
def test_a_request_that_is_left_out_keeps_its_cache(execute):
    """Rounds of 0 alone, of 1 alone, then of both: contexts 3 and 5, and no second prefill."""
    instance = small([1, 3], [2, 2], cost=CONTEXT)
    alone = [Step(decode=[0], rounds=1), Step(decode=[1], rounds=1)]
    schedule = execute(instance, Script(prefill_stage([0, 1]), *alone))
    durations = [7 + 1 + 9, 2 + 200, 4 + 400, 3 + 5 + 500]
    assert [end - start for _, _, start, end, _ in steps(schedule)] == durations
    assert work(schedule) == [
        (0, 0, 0, 0, 1, 0), (0, 1, 1, 1, 1, 0), (0, 1, 3, 3, 1, 0), (1, 0, 0, 0, 3, 0),
        (1, 1, 2, 3, 1, 0),
    ]  # fmt: skip


@executors
def test_padding_counts_everyone_as_the_longest(execute):
    instance = small([2, 5], [2, 2], cost=CONTEXT, padding=True)
    schedule = execute(instance, Script(prefill_stage([0, 1])))
    durations = [7 + 25 + 25, (6 + 6) + 600 + (7 + 7) + 700]
    assert [end - start for _, _, start, end, _ in steps(schedule)] == durations


@executors
@pytest.mark.parametrize(
    ("padding", "blocks", "rounds"),
    [
        (False, 4, 1),  # caches of 2 + 4 tokens take 1 + 2 blocks, of 3 + 5 then 2 + 3
        (False, 5, 3),
        (False, 6, 3),  # caches of 5 + 7 tokens would take 3 + 4
        (True, 4, 1),  # twice the longest: 2 blocks each with 4 tokens, 3 with 5 and 6, 4 with 7
        (True, 6, 3),
        (True, 7, 3),
        (True, 8, 4),
    ],
)
def test_rounds_end_before_pages_run_out(execute, padding, blocks, rounds):
    """Blocks of 2 tokens; what does not fit waits until the other one has left."""
    memory = BlockMemory(blocks, 2, "paged")
    instance = small([1, 3], [4, 4], memory=memory, padding=padding)
    then = [evict([0]), decode_rounds(until=0), prefill_stage([0])]
    policy = Script(prefill_stage([0, 1]), decode_rounds(until=0), *(then if rounds < 4 else []))
    schedule = execute(instance, policy)
    counts = [count for _, phase, _, _, count in steps(schedule) if phase == 1]
    first = 2 * 3 if padding else 1 + 3
    if rounds == 4:
        assert counts == [4]
        assert schedule.makespan_ns == first + 40
    else:
        assert counts == [rounds, 4 - rounds, 4 - rounds]
        assert schedule.makespan_ns == first + 10 * sum(counts) + (1 + rounds)


@executors
def test_two_workers_share_the_requests_and_a_restart_may_move(execute):
    """Worker 1 is slower; it sleeps until an eviction on worker 0 lets it have request 1."""
    requests = Requests([2, 2], [2, 2], arrival_ns=[0, 3])
    slow = Worker(1, in_order(AffineCost, 0, 10, 100, 0), name="slow")
    instance = Instance(requests, (Worker(1, COST), slow), first_token="decode")
    own = prefill_stage([0]), decode_rounds(1), Step(preempt=[0], prefill=[1], decode=())
    policy = Script(*own, others=[[None, None, prefill_stage([0])]])
    schedule = execute(instance, policy)
    assert steps(schedule) == [
        (0, 0, 0, 2, 1), (0, 1, 2, 12, 1), (0, 0, 12, 14, 1), (1, 0, 12, 42, 1), (0, 1, 14, 34, 2),
        (1, 1, 42, 142, 1),
    ]  # fmt: skip
    assert policy.told == [
        ("arrival", 0, 0, 0), ("arrival", 1, 1, 3), ("preempt", 0, 0, 12), ("finish", 1, 0, 34),
        ("finish", 0, 1, 142),
    ]  # fmt: skip


@executors
def test_a_wait_ends_at_its_moment_or_at_an_arrival(execute):
    instance = small([1, 1], [1, 1], arrivals=[0, 50])
    policy = Script(Wait(20), prefill_stage([0]), decode_rounds(), Wait(90), prefill_stage([1]))
    schedule = execute(instance, policy)
    assert steps(schedule) == [
        (0, 0, 20, 21, 1), (0, 1, 21, 31, 1), (0, 0, 50, 51, 1), (0, 1, 51, 61, 1),
    ]  # fmt: skip
