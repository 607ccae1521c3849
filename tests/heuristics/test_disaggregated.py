"""Where ``disaggregated`` prefills and decodes."""

from orsched import BlockMemory, Instance, Link, Requests, Worker
from tests.heuristics.building import built, solved

N = 24


def served(workers, prompts, **parameters):
    requests = Requests(prompts, [5] * len(prompts), arrival_ns=range(len(prompts)))
    link = Link(ns_per_token=100, latency_ns=100)
    instance = Instance(requests, workers, first_token="prefill", link=link)
    policy = built(instance, "disaggregated", **parameters)
    return solved(instance, policy), policy.counted()


def run(roles, prompts, **parameters):
    return served([Worker(8, role=role) for role in roles], prompts, **parameters)


def test_the_pool_that_decodes_is_shared_evenly():
    schedule, counted = run(["prefill", "decode", "decode"], [50] * N)
    none, one, two = (int((schedule.transfers.target == index).sum()) for index in range(3))
    assert (none, one + two) == (0, N)
    assert abs(one - two) <= 2
    assert counted == {"prefilled_remotely": N, "prefilled_locally": 0}


def test_the_pool_that_prefills_is_shared_by_tokens():
    schedule, _ = run(["prefill", "prefill", "decode"], [100, *[10] * 9])
    assert sorted(schedule.transfers.source.tolist()) == [0] + [1] * 9


def test_unequal_pools_get_what_they_hold():
    """A small worker gets no request that might not fit."""
    workers = [
        Worker(8, role=role, memory=BlockMemory(blocks, 16, "paged"))
        for role in ("prefill", "decode")
        for blocks in (8, 60)
    ]
    schedule, _ = served(workers, [20, 300] * 8)
    large_ones = schedule.transfers.tokens >= 300
    assert set(schedule.transfers.target[large_ones].tolist()) == {3}
    assert set(schedule.transfers.source[large_ones].tolist()) == {1}
    assert 0 in schedule.transfers.source[~large_ones]


def test_short_prompts_are_prefilled_where_they_decode():
    """Dynamo's first condition."""
    schedule, counted = run(["prefill", "both"], [10, 200] * (N // 2), local_prompt_tokens=100)
    assert counted == {"prefilled_remotely": N // 2, "prefilled_locally": N // 2}
    assert set(schedule.transfers.tokens.tolist()) == {200}


def test_long_queues_send_prefills_elsewhere():
    """Dynamo's second condition, and Splitwise's mixed machines."""
    _, none = run(["prefill", "both"], [500] * N)
    _, some = run(["prefill", "both"], [500] * N, prefill_queue_tokens=2000)
    assert none["prefilled_locally"] == 0
    assert 0 < some["prefilled_locally"] < N


def test_workers_that_only_decode_prefill_nothing():
    _, counted = run(["prefill", "decode"], [10] * N, local_prompt_tokens=100)
    assert counted["prefilled_locally"] == 0
