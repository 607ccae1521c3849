"""The policy does, step for step, what vLLM's rules read literally do."""

import random

import pytest

import orsched
from orsched import AffineCost, Information
from orsched.heuristics.continuous import ContinuousBatching, ContinuousParams
from orsched.heuristics.continuous.async_scheduling import AsyncBatching, as_scheduled, engine_steps
from orsched.heuristics.continuous.params import make_queue
from tests.heuristics.building import solved
from tests.heuristics.continuous.naive_vllm import Naive, NaiveAsync
from tests.in_order import in_order
from tests.random_instances import random_batching_instance
from tests.seeds import seeds


def random_params(rng, instance):
    """Parameters under which every request can be served."""
    req = instance.requests
    longest = int(req.prompt_tokens.max()) + instance.output_limit_tokens
    chunked = rng.random() < 0.8
    budget = rng.choice((1, 2, 3, 5, 8, 20, 100)) if chunked else longest + rng.randint(0, 20)
    return ContinuousParams(
        policy=rng.choice(("fcfs", "priority")),
        priority=rng.choice(("arrival", "service_class", "length")),
        aging_s=rng.choice((None, 0.0, 1e-9, 1e-8)),
        max_num_batched_tokens=budget,
        long_prefill_token_threshold=rng.choice((0, 0, 1, 2, 7)) if chunked else 0,
        long_prefill_token_threshold_adaptive=rng.random() < 0.3,
        max_num_scheduled_tokens=rng.choice((None, None, 1, 4, 200)) if chunked else None,
        max_num_active_seqs=rng.choice((None, None, None, rng.randint(1, instance.worker.clients))),
        prefill_schedule_interval=rng.choice((1, 1, 2, 3, 6)),
        chunked_prefill=chunked,
        reserve_full_prompt=rng.random() < 0.5,
        watermark_blocks=rng.choice((0, 0, 1)),
    )


def random_case(seed):
    """One worker without padding, without a prefill cap: what vLLM knows."""
    rng = random.Random(seed)
    if seed % 4:
        return rng, crowded(rng)
    while True:
        instance = random_batching_instance(rng, most=rng.choice((4, 8, 12)))
        worker = instance.workers[0]
        if worker.memory is not None and not worker.memory.is_paged:
            continue
        worker = orsched.Worker(worker.clients, worker.cost, None, worker.memory)
        if worker.cost.prefill_limit is None:
            return rng, instance.replace(workers=(worker,))


def crowded(rng):
    """Many requests on few blocks: preemptions in most steps, of those served before too."""
    n, prompt, output = rng.randint(5, 14), rng.randint(1, 15), rng.randint(2, 15)
    size = rng.randint(1, 4)
    blocks = -(-(prompt + output) // size) + rng.randint(0, 8)
    worker = orsched.Worker(
        rng.randint(2, 7), in_order(AffineCost, rng.randint(1, 9), 1, 3, 1), None,
        orsched.BlockMemory(blocks, size, "paged"),
    )  # fmt: skip
    requests = orsched.Requests(
        [rng.randint(1, prompt) for _ in range(n)],
        [rng.randint(1, output) for _ in range(n)],
        arrival_ns=[rng.choice((0, rng.randint(0, 60))) for _ in range(n)],
        service_class=[rng.randint(0, 1) for _ in range(n)],
    )
    rule = rng.choice(("decode", "prefill"))
    return orsched.Instance(requests, worker, rule, output_limit_tokens=output)


def key_of(instance, params):
    req = instance.requests

    def key(row):
        classes, lengths = req.service_class, req.output_tokens
        level = {"arrival": 0, "service_class": classes[row], "length": lengths[row]}
        level = int(level[params.priority])
        arrival = int(req.arrival_ns[row])
        if params.aging_ns is not None:
            level = level * params.aging_ns + arrival
        return level, arrival, row

    return key


def compare(seed, kind, naive_kind):
    rng, instance = random_case(seed)
    params = random_params(rng, instance)
    information = Information.CLAIRVOYANT
    policy = kind(params, information, make_queue(instance, params, information))
    ours = list(engine_steps(solved(instance, policy)))
    naive = naive_kind(instance, params, key_of(instance, params))
    naive.run([step.start_ns for step in ours])
    assert [step[1:] for step in ours] == as_scheduled(naive.log), (seed, params)
    return sum(len(step.preempted) for step in ours)


KINDS = {"synchronous": (ContinuousBatching, Naive), "asynchronous": (AsyncBatching, NaiveAsync)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", seeds(1, 40))
def test_step_for_step(kind, block):
    cases = range(250 * block, 250 * (block + 1))
    assert sum(compare(seed, *KINDS[kind]) for seed in cases) > 200
