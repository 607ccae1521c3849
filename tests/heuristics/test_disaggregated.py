"""Where ``disaggregated`` prefills and decodes."""

from __future__ import annotations

import pytest

from orsched import BlockMemory, Information, InputError, Instance, Link, Requests, Worker, check
from orsched.heuristics.disaggregated import DISAGGREGATED
from orsched.simulator import simulate_policy

N = 24


def run(roles, prompts, **parameters):
    workers = tuple(Worker(8, role=role) for role in roles)
    requests = Requests(prompts, [5] * len(prompts), arrival_ns=range(len(prompts)))
    instance = Instance(
        requests, workers, first_token="prefill", link=Link(ns_per_token=100, latency_ns=100)
    )
    policy, _ = DISAGGREGATED.build(instance, Information.NONE, parameters, 0)
    return simulate_policy(instance, policy).schedule, policy.counted()


def by_worker(schedule, many):
    sent = schedule.transfers
    return [int((sent.target == index).sum()) for index in range(many)]


def test_the_pool_that_decodes_is_shared_evenly():
    schedule, counted = run(["prefill", "decode", "decode"], [50] * N)
    none, one, two = by_worker(schedule, 3)
    assert (none, one + two) == (0, N)
    assert abs(one - two) <= 2
    assert counted == {"prefilled_remotely": N, "prefilled_locally": 0}


def test_the_pool_that_prefills_is_shared_by_tokens():
    schedule, _ = run(["prefill", "prefill", "decode"], [100, 10, 10, 10, 10, 10, 10, 10, 10, 10])
    assert sorted(schedule.transfers.source.tolist()) == [0] + [1] * 9


def test_unequal_pools_get_what_they_hold():
    """A small worker gets no request that might not fit."""
    small, large = BlockMemory(8, 16, "paged"), BlockMemory(60, 16, "paged")
    workers = tuple(
        Worker(8, role=role, memory=memory)
        for role in ("prefill", "decode")
        for memory in (small, large)
    )
    instance = Instance(
        Requests([20, 300] * 8, [5] * 16),
        workers,
        first_token="prefill",
        link=Link(ns_per_token=1, latency_ns=1),
    )
    policy, _ = DISAGGREGATED.build(instance, Information.NONE, {}, 0)
    schedule = simulate_policy(instance, policy).schedule
    assert check(instance, schedule) == []
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "fast"),
        ("decode_place", "nowhere"),
        ("local_prompt_tokens", -1),
        ("prefill_queue_tokens", 1.5),
        ("chunked_prefill", 3),
    ],
)
def test_wrong_parameters_are_located(name, value):
    with pytest.raises(InputError) as caught:
        DISAGGREGATED.check_parameters({name: value})
    assert caught.value.field == name
