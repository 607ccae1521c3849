"""Random workloads for vLLM's scheduler and ours: bursts, overload, short of blocks."""

from __future__ import annotations

import random

import orsched
from orsched.costs import AffineCost
from orsched.heuristics.continuous import ContinuousParams

COST = AffineCost(1000, 10, 1000, 10)


def workload(seed):
    """Return an instance with one worker and the parameters of the policy."""
    rng = random.Random(seed)
    n = rng.choice((10, 30, 80, 200))
    longest, limit = rng.choice((10, 60, 300)), rng.choice((5, 40, 150))
    block_tokens, clients = rng.choice((4, 16)), rng.choice((4, 16, 64))
    least = -(-(longest + limit) // block_tokens)
    memory = orsched.BlockMemory(
        least + rng.choice((0, least, 4 * least, 20 * least)), block_tokens, "paged"
    )
    span = rng.choice((0, 1, 1000 * limit * n // clients + 1, 5000 * limit * n // clients + 1))
    requests = orsched.Requests(
        [rng.randint(1, longest) for _ in range(n)],
        [rng.randint(1, limit) for _ in range(n)],
        [rng.randint(0, span) for _ in range(n)],
        service_class=[rng.randint(0, 1) for _ in range(n)],
    )
    worker = orsched.Worker(clients, COST, memory=memory)
    instance = orsched.Instance(requests, worker, "prefill", output_limit_tokens=limit)
    chunked = rng.random() < 0.8
    budgets = (clients, clients + 7, 128, 2048)
    params = ContinuousParams(
        policy=rng.choice(("fcfs", "priority")),
        priority=rng.choice(("arrival", "service_class", "length")),
        max_num_batched_tokens=rng.choice(budgets)
        if chunked
        else max(clients, longest + limit) + rng.randint(0, 500),
        long_prefill_token_threshold=rng.choice((0, 0, 4)) if chunked else 0,
        chunked_prefill=chunked,
        reserve_full_prompt=rng.random() < 0.7,
    )
    return instance, params


def level_of(instance, params, row):
    """Return the priority that vLLM is given for a request: lower goes first."""
    requests = instance.requests
    levels = {
        "arrival": 0,
        "service_class": int(requests.service_class[row]),
        "length": int(requests.output_tokens[row]),
    }
    return levels[params.priority]


def as_case(name, instance, params, starts):
    """Return a workload as plain values for the process that runs vLLM."""
    requests, worker = instance.requests, instance.worker
    return {
        "id": name,
        "policy": params.policy,
        "budget": params.max_num_batched_tokens,
        "threshold": params.long_prefill_token_threshold,
        "chunked": params.chunked_prefill,
        "reserve": params.reserve_full_prompt,
        "clients": worker.clients,
        "blocks": worker.memory.blocks,
        "block_tokens": worker.memory.block_tokens,
        "max_len": int(requests.prompt_tokens.max()) + instance.output_limit_tokens + 2,
        "starts": starts,
        "requests": [
            [
                int(requests.prompt_tokens[row]),
                int(requests.output_tokens[row]),
                int(requests.arrival_ns[row]),
                level_of(instance, params, row),
            ]
            for row in range(len(instance))
        ],
    }
