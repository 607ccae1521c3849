"""Where ``disaggregated`` prefills and decodes."""

import orsched
from orsched import AffineCost, BlockMemory, Instance, Link, Requests, Worker
from orsched.data.memory import PrefixCache
from tests.heuristics.building import built, solved
from tests.refusals import refusal

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


def test_prompts_in_time_come_first_on_the_last_worker_in_time():
    """10 ns a token. Due at 1,000: 60 and 30 tokens fill one worker to 900, 90 the other. The next
    30 would end at 1,200: it is late, and waits for the last one, whose limit is in time again."""
    cost = AffineCost(prefill_fixed_ns=0, prefill_token_ns=10, round_fixed_ns=1, round_client_ns=0)
    workers = [Worker(8, cost, role=role) for role in ("prefill", "prefill", "decode")]
    prompts, arrivals = [60, 30, 90, 30, 30], [0, 0, 0, 0, 850]
    instance = Instance(
        Requests(prompts, [5] * 5, arrival_ns=arrivals), workers, first_token="prefill", link=Link()
    )
    first = {}
    for limit in (1e-6, None):
        schedule = solved(instance, built(instance, "disaggregated", ttft_s=limit))
        first[limit] = schedule.request_times(instance)["first_token_ns"].tolist()
    assert first[1e-6] == [600, 900, 900, 1500, 1200]
    kept = {
        k: sum(t <= a + 1000 for t, a in zip(v, arrivals, strict=True)) for k, v in first.items()
    }
    assert kept[1e-6] == 4 > kept[None]


def test_prompts_in_time_do_not_go_with_prefix_caches():
    memory = BlockMemory(60, 16, "paged", PrefixCache())
    workers = (Worker(8, memory=memory, role="prefill"), Worker(8, role="decode"))
    instance = Instance(Requests([20], [5]), workers, first_token="prefill", link=Link())
    error = refusal(orsched.simulate, instance, "disaggregated", parameters={"ttft_s": 1})
    assert (error.field, "prefix cache" in str(error)) == ("ttft_s", True)
