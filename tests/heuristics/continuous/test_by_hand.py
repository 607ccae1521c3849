"""Batching modes by hand: a step takes 10 ns, and 1 ns a prompt token and decoding request."""

import pytest

from orsched import (
    AffineCost,
    BlockMemory,
    InputError,
    Instance,
    PrefixCache,
    Requests,
    Worker,
    solve,
)
from orsched.heuristics.continuous import as_scheduled, engine_steps
from tests.heuristics.building import solved, starts_of
from tests.in_order import in_order

COST = in_order(AffineCost, 10, 1, 10, 1)


def run(name, requests, clients, memory=None, known="none", **params):
    """Iterations and schedule of a policy on one worker; token 1 comes from the prefill."""
    worker = Worker(clients, COST, None, memory)
    instance = Instance(in_order(Requests, *requests), worker, first_token="prefill")
    schedule = solved(instance, name, known, **params)
    return [step[1:] for step in engine_steps(schedule)], schedule


def tokens_of(name, requests, clients, memory=None, **params):
    return [tokens for tokens, _ in run(name, requests, clients, memory, **params)[0]]


CHUNKS = {"max_num_batched_tokens": 4, "long_prefill_token_threshold": 3}
AHEAD = {"async_scheduling": True}
THREE, LATE = ([2, 2, 3], [5, 2, 1]), ([2, 3], [4, 1], [0, 5])
CASES = {
    "chunks fill what decoding leaves of a budget of 4": (
        "vllm", ([2, 5, 2], [4, 2, 1]), 3, {"max_num_batched_tokens": 4},
        [{0: 2, 1: 2}, {0: 1, 1: 3}, {0: 1, 1: 1, 2: 2}, {0: 1}],
    ),
    "a threshold lets a short prompt overtake a long one": (
        "vllm", ([6, 2], [1, 2]), 2, CHUNKS | {"max_num_batched_tokens": 10},
        [{0: 3, 1: 2}, {0: 3, 1: 1}],
    ),
    "the threshold is at least an equal share of the budget": (
        "vllm", ([6, 2], [1, 2]), 2,
        CHUNKS | {"max_num_batched_tokens": 10, "long_prefill_token_threshold_adaptive": True},
        [{0: 5, 1: 2}, {0: 1, 1: 1}],
    ),
    "fewer tokens may be scheduled than batched": (
        "vllm", ([2, 5, 2], [4, 2, 1]), 3, {"max_num_scheduled_tokens": 4},
        [{0: 2, 1: 2}, {0: 1, 1: 3}, {0: 1, 1: 1, 2: 2}, {0: 1}],
    ),
    "without chunks a prompt waits for its budget": (
        "vllm", ([3, 4], [3, 1]), 2, {"max_num_batched_tokens": 4, "chunked_prefill": False},
        [{0: 3}, {0: 1}, {0: 1}, {1: 4}],
    ),
    "one at a time": ("one_at_a_time", ([1, 2], [2, 1]), 5, {}, [{0: 1}, {0: 1}, {1: 2}]),
    "a client is taken at once": (
        "vllm", THREE, 2, {}, [{0: 2, 1: 2}, {0: 1, 1: 1}, {2: 3, 0: 1}, {0: 1}, {0: 1}],
    ),
    "of three clients two may be active": (
        "vllm", THREE, 3, {"max_num_active_seqs": 2},
        [{0: 2, 1: 2}, {0: 1, 1: 1}, {2: 3, 0: 1}, {0: 1}, {0: 1}],
    ),
    "planned ahead it is free a step after the third was planned": (
        "vllm", THREE, 2, AHEAD, [{0: 2, 1: 2}, {0: 1, 1: 1}, {0: 1}, {2: 3, 0: 1}, {0: 1}],
    ),
    "an arrival joins the next step": (
        "vllm", LATE, 2, {}, [{0: 2}, {1: 3, 0: 1}, {0: 1}, {0: 1}],
    ),
    "prompts are three steps apart while a request decodes": (
        "vllm", LATE, 2, {"prefill_schedule_interval": 3},
        [{0: 2}, {0: 1}, {0: 1}, {1: 3, 0: 1}],
    ),
    "planned ahead it joins a step later": (
        "vllm", LATE, 2, AHEAD, [{0: 2}, {0: 1}, {1: 3, 0: 1}, {0: 1}],
    ),
    "planned ahead with nobody to serve all is known": (
        "vllm", ([2, 3], [1, 1], [0, 5]), 1, AHEAD, [{0: 2}, {1: 3}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_iteration_has_these_tokens(case):
    name, requests, clients, params, tokens = CASES[case]
    assert tokens_of(name, requests, clients, **params) == tokens


BY_LENGTH = {"policy": "priority", "priority": "length", "known": "clairvoyant"}


def test_what_workers_cannot_keep_is_refused():
    params = {"max_num_active_seqs": 3}
    with pytest.raises(InputError, match=r"give .*2") as caught:
        solve(Instance(in_order(Requests, *THREE), Worker(2, COST)), "vllm", parameters=params)
    assert caught.value.field == "max_num_active_seqs"


def test_the_last_admitted_is_preempted_and_recomputed():
    """Blocks of 2, 5 of them: both fill two, and both need a third for their second token. 0 takes
    the fifth block, 1 finds none and goes; nobody is admitted in that step, nor before its prompt
    and token (5 tokens, 3 blocks) fit."""
    steps, schedule = run("vllm", ([4, 4], [3, 3]), 2, BlockMemory(5, 2, "paged"))
    assert steps == [({0: 4, 1: 4}, []), ({0: 1}, [1]), ({0: 1}, []), ({1: 5}, []), ({1: 1}, [])]
    assert schedule.work.stay.tolist() == [0, 0, 0, 1, 1]


def test_priority_preempts_the_longest_wherever_it_is():
    """Blocks of 2, 5 of them. In the third step 1 needs a block: 0 gives back its own, and goes."""
    memory = BlockMemory(5, 2, "paged")
    steps, _ = run("vllm", ([4, 4], [4, 3], [0, 1]), 2, memory, **BY_LENGTH)
    tokens = [{0: 4}, {0: 1, 1: 4}, {1: 1}, {1: 1}, {0: 6}, {0: 1}]
    assert steps == [(each, [0] if place == 2 else []) for place, each in enumerate(tokens)]


def test_requests_that_decode_come_first_if_asked_for():
    """Budget 4, at most 2 of a prompt; 7 blocks of 2. In the fourth step 0 is amid its prefill, as
    is 2, and 1 decodes, for which no block is left. Where it comes first, its token is set aside
    before it is preempted: only 1 of the 4 tokens is left for 2."""
    requests, memory = ([8, 3, 5], [4, 4, 1], [0, 0, 12]), BlockMemory(7, 2, "paged")
    params = {**BY_LENGTH, "max_num_batched_tokens": 4, "long_prefill_token_threshold": 2}
    for mode, tokens in (("mixed", {0: 2, 2: 2}), ("decode_first", {0: 2, 2: 1})):
        steps, _ = run("vllm", requests, 3, memory, mode=mode, **params)
        assert steps[3] == (tokens, [1]), mode


def test_prefill_first_stops_all_that_decode():
    steps, schedule = run("vllm", ([3, 3], [3, 1], [0, 5]), 2, mode="prefill_first")
    assert [tokens for tokens, _ in steps] == [{0: 3}, {1: 3}, {0: 1}, {0: 1}]
    assert 2 not in schedule.steps.phase


def test_a_static_batch_is_returned_as_a_whole():
    """0 holds its client, with invalid tokens, until 1 is done; 2 waits for both."""
    steps, schedule = run("static", ([2, 2, 2], [1 + 1, 1 + 3, 1]), 2, batch_size=2)
    assert [tokens for tokens, _ in steps] == [{0: 2, 1: 2}, {0: 1, 1: 1}, {1: 1}, {1: 1}, {2: 2}]
    invalid = schedule.work.phase == 2
    assert schedule.work.request[invalid].tolist() == [0]
    assert schedule.steps.rounds[schedule.work.first_step[invalid][0]] == 2
    assert schedule.steps.start_ns[-1] == 14 + 3 * 12


@pytest.mark.parametrize(("size", "start"), [(2, 30), (3, 100)])
def test_dynamic_starts_when_full_or_when_the_oldest_waited_long_enough(size, start):
    """Arrivals at 0 and 30, timeout 100: full with two at 30, else at 100."""
    params = {"max_batch_size": size, "batch_wait_timeout_s": 100e-9}
    _, schedule = run("dynamic", ([1, 1], [1, 1], [0, 30]), 3, **params)
    assert schedule.steps.start_ns.tolist() == [start]


def test_a_padded_batch_ends_where_its_longest_prompt_exceeds_the_cap():
    worker = Worker(4, COST, 8, padding=True)
    work = solved(Instance(Requests([2, 3, 4], [1, 1, 1]), worker, "decode"), "static").work
    assert work.first_step[work.phase == 0].tolist() == [0, 0, 2]


def test_what_a_schedule_shows_of_an_engines_record():
    record = [({0: 3, 1: 2}, []), ({}, [1]), ({0: 1}, []), ({}, [0]), ({1: 5}, [])]
    shown = [({0: 3, 1: 2}, []), ({0: 1}, [1]), ({1: 5}, [0])]
    assert as_scheduled([*record, ({0: 4}, [])]) == [*shown, ({0: 4}, [])]
    done = [*shown[:2], ({1: 5}, [])]  # 0 is served no more: all its tokens were there or under way
    assert as_scheduled(record) == done


def stream(count, gap):
    """A long request among short ones that keep one client busy for ever."""
    long = [20] + [2] * count
    return [1] * (count + 1), long, [0, *(gap * i for i in range(count))]


def test_without_aging_a_long_request_waits_for_the_end_of_the_stream():
    steps = tokens_of("vllm", stream(200, 20), 1, **BY_LENGTH)
    assert next(i for i, tokens in enumerate(steps) if 0 in tokens) == len(steps) - 20


@pytest.mark.parametrize("aging_ns", [1, 10, 50])
def test_with_aging_only_requests_that_arrive_soon_enough_go_first(aging_ns):
    """A short request goes before the long one only if it arrives within 18 agings of it."""
    requests = stream(200, 20)
    order = list(starts_of(run("vllm", requests, 1, aging_s=aging_ns / 1e9, **BY_LENGTH)[1]))
    before = order[: order.index(0)]
    assert before
    assert all(requests[2][request] < 18 * aging_ns + 40 for request in before)


@pytest.mark.parametrize("name", ["dynamic", "static", "one_at_a_time"])
def test_aging_orders_batches_as_well(name):
    starved = tokens_of(name, stream(100, 20), 1, **BY_LENGTH)
    aged = tokens_of(name, stream(100, 20), 1, aging_s=1e-9, **BY_LENGTH)
    first = [next(i for i, tokens in enumerate(s) if 0 in tokens) for s in (starved, aged)]
    assert first[1] < first[0] // 10


def test_interactive_requests_go_before_batch_requests():
    requests = Requests([1] * 3, [1] * 3, arrival_ns=[0] * 3, service_class=[1, 0, 1])
    instance = Instance(requests, Worker(1, COST), first_token="prefill")
    schedule = solved(instance, "vllm", policy="priority", priority="service_class")
    assert starts_of(schedule) == {1: 0, 0: 11, 2: 22}


def test_planned_ahead_what_is_done_may_lose_its_blocks_and_nobody_joins():
    """8 blocks of 1. When 1 is done it holds 5, and 0, with 3, wants a fourth: 1 is preempted."""
    requests, memory = ([2, 4, 3], [4, 2, 1]), BlockMemory(8, 1, "paged")
    assert tokens_of("vllm", requests, 3, memory)[1:3] == [{0: 1, 1: 1}, {0: 1, 2: 3}]
    steps, _ = run("vllm", requests, 3, memory, async_scheduling=True)
    assert steps[1:4] == [({0: 1, 1: 1}, []), ({0: 1}, []), ({0: 1, 2: 3}, [])]


def test_planning_ahead_needs_a_cache_that_loses_what_was_used_least_recently():
    memory = BlockMemory(20, 2, "paged", PrefixCache("task_aware"))
    with pytest.raises(InputError, match=r"async_scheduling.*lru"):
        run("vllm", ([2], [2]), 1, memory, async_scheduling=True)
