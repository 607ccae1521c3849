"""Random workloads for vLLM's scheduler and ours: bursts, overload, short of blocks."""

from __future__ import annotations

import random

import orsched
from orsched.costs import AffineCost
from orsched.heuristics.continuous import ContinuousParams
from orsched.memory import PrefixCache
from orsched.prefixes import Prefixes

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


def prefix_workload(seed):
    """Return the same where prompts share prefixes and the worker has a prefix cache.

    Prompts begin with a path in a small tree of segments; blocks are few, so that requests are
    preempted and contents are lost.
    """
    rng = random.Random(seed + 10**6)
    n = rng.choice((30, 80, 200))
    limit, size, clients = rng.choice((5, 40, 150)), rng.choice((4, 16)), rng.choice((4, 16))
    tree = [-1] * 3
    tree += [rng.randrange(len(tree) + k) for k in range(rng.choice((3, 12)))]
    tokens = [rng.randint(0, rng.choice((2, 6)) * size) for _ in tree]
    paths = [_path_tokens(tree, tokens, leaf) for leaf in range(len(tree))]
    leaves = [rng.randrange(-1, len(tree)) for _ in range(n)]
    prompts = [
        max(1, (paths[leaf] if leaf >= 0 else 0) + rng.choice((0, 1, rng.randint(0, 4 * size))))
        for leaf in leaves
    ]
    longest = max(prompts)
    least = -(-(longest + limit) // size)
    memory = orsched.BlockMemory(
        least + rng.choice((0, least // 2, 2 * least, 6 * least)), size, "paged", PrefixCache()
    )
    span = rng.choice((0, 1000 * limit * n // clients + 1, 5000 * limit * n // clients + 1))
    requests = orsched.Requests(
        prompts,
        [rng.randint(1, limit) for _ in range(n)],
        [rng.randint(0, span) for _ in range(n)],
        service_class=[rng.randint(0, 1) for _ in range(n)],
        prefixes=Prefixes.from_parents(tree, tokens, leaves, size),
    )
    worker = orsched.Worker(clients, COST, memory=memory)
    instance = orsched.Instance(requests, worker, "prefill", output_limit_tokens=limit)
    chunked = rng.random() < 0.8
    params = ContinuousParams(
        policy=rng.choice(("fcfs", "fcfs", "priority")),
        priority=rng.choice(("arrival", "service_class", "length")),
        max_num_batched_tokens=rng.choice((clients, clients + 7, 128, 2048))
        if chunked
        else max(clients, longest + limit) + rng.randint(0, 500),
        long_prefill_token_threshold=rng.choice((0, 0, 4)) if chunked else 0,
        chunked_prefill=chunked,
        reserve_full_prompt=rng.random() < 0.5,
    )
    return instance, params


def _path_tokens(tree, tokens, leaf):
    """Return the tokens of a path from the root."""
    total = 0
    while leaf >= 0:
        total, leaf = total + tokens[leaf], tree[leaf]
    return total


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
    shared = {}
    if instance.caches_prefixes:
        prefixes = requests.prefixes
        shared["prefixes"] = [prefixes.of(row).tolist() for row in range(len(instance))]
    return {
        **shared,
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
