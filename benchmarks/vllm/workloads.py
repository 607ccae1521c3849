"""Random workloads for vLLM's scheduler and ours: bursts, overload, short of blocks."""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import orsched
from orsched.costs import AffineCost
from orsched.data.memory import PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.heuristics.continuous import ContinuousParams

KNOBS = (
    "max_num_scheduled_tokens", "max_num_active_seqs", "long_prefill_token_threshold_adaptive",
    "prefill_schedule_interval",
)  # fmt: skip
"""Settings of the scheduler that are off by default, under vLLM's names."""

COST = AffineCost(
    prefill_fixed_ns=1000, prefill_token_ns=10, round_fixed_ns=1000, round_client_ns=10
)
SERVER = AffineCost(
    prefill_fixed_ns=8_000_000,
    prefill_token_ns=60_000,
    round_fixed_ns=8_000_000,
    round_client_ns=30_000,
)
"""An 8-billion model on one GPU, about: 8 ms a step, 60 us a prompt token."""
TRACES = ("azure_conv_2023.csv", "azure_code_2023.csv", "mooncake_conversation.jsonl")


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
        arrival_ns=[rng.randint(0, span) for _ in range(n)],
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
        arrival_ns=[rng.randint(0, span) for _ in range(n)],
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


def turn_workload(seed):
    """Return turns of conversations on such a worker: each arrives a while after its parent's end,
    with a prompt that goes on behind the parent's answer, or that has lost it; few at a time."""
    instance, params = prefix_workload(seed)
    rng, requests = random.Random(seed + 2 * 10**6), instance.requests
    prompts, outputs = requests.prompt_tokens.tolist(), requests.output_tokens.tolist()
    longest, parent, delay = max(prompts), [-1] * len(prompts), [-1] * len(prompts)
    first = []
    for row in range(len(prompts)):
        before = rng.choice(first[-8:]) if first and rng.random() < 0.8 else -1
        while before in parent[:row]:  # the last turn of the conversation so far
            before = parent.index(before)
        whole = prompts[before] + outputs[before]
        if before < 0 or whole >= longest:
            first.append(row)
            continue
        least = rng.choice((whole, whole, whole, prompts[before]))
        prompts[row], parent[row] = rng.randint(least, min(longest, least + 30)), before
        delay[row] = rng.choice((0, 1000, rng.randint(0, 100_000)))
    kept = [[] if each >= 0 else requests.prefixes.of(row) for row, each in enumerate(parent)]
    offsets = [0, *itertools.accumulate(map(len, kept))]
    ids = [int(number) for each in kept for number in each]
    turns = requests.replace(
        prompt_tokens=prompts, parent=parent, delay_ns=delay,
        prefixes=Prefixes(offsets, ids, requests.prefixes.block_tokens),
    )  # fmt: skip
    most = rng.choice((None, 2, 6))
    return instance.replace(requests=turns, concurrency=most), params


def with_knobs(make):
    """Return workloads of a kind with random settings of ``KNOBS``."""

    def made(seed):
        instance, params = make(seed)
        rng = random.Random(seed + 4 * 10**6)
        budget = params.max_num_batched_tokens
        settings = {
            "prefill_schedule_interval": rng.choice((1, 2, 3, 8, 40)),
            "max_num_active_seqs": rng.choice((None, rng.randint(1, instance.worker.clients))),
        }
        if params.chunked_prefill:
            settings |= {
                "max_num_scheduled_tokens": rng.choice((None, rng.randint(1, budget))),
                "long_prefill_token_threshold": rng.choice((0, 4, 16)),
                "long_prefill_token_threshold_adaptive": rng.random() < 0.6,
            }
        return instance, replace(params, **settings)

    return made


def long_workload(seed):
    """Return prompts of up to 60,000 tokens in chunks, and blocks for few of them."""
    rng = random.Random(seed + 2 * 10**6)
    n, limit = rng.choice((20, 60)), rng.choice((40, 300))
    prompts = [min(60_000, max(1, round(rng.lognormvariate(8, 1.5)))) for _ in range(n)]
    outputs = [rng.randint(1, limit) for _ in range(n)]
    span = SERVER.prefill_token_ns * sum(prompts)  # about what they take
    arrivals = [rng.randint(0, rng.choice((1, span // 2, span))) for _ in range(n)]
    return _served(rng, prompts, outputs, arrivals, limit)


def trace_workload(seed):
    """Return 150 requests in a row of a published trace, as fast as one worker can hardly serve."""
    rng = random.Random(seed + 3 * 10**6)
    requests = _trace(TRACES[seed % len(TRACES)])
    first = rng.randrange(len(requests) - 150)
    rows = slice(first, first + 150)
    prompts = requests.prompt_tokens[rows].tolist()
    outputs = requests.output_tokens[rows].tolist()
    arrivals = requests.arrival_ns[rows] - requests.arrival_ns[first]
    busy = SERVER.prefill_token_ns * sum(prompts)
    factor = rng.choice((0.5, 1.0, 2.0)) * busy / max(1, int(arrivals[-1]))
    limit = max(outputs)
    return _served(rng, prompts, outputs, [round(factor * t) for t in arrivals.tolist()], limit)


def _served(rng, prompts, outputs, arrivals, limit):
    """Return requests on a worker that holds few more than the longest, and parameters."""
    size, clients = 16, rng.choice((8, 32, 128))
    least = -(-(max(prompts) + limit) // size)
    memory = orsched.BlockMemory(least + rng.choice((least // 4, least, 4 * least)), size, "paged")
    classes = [rng.randint(0, 1) for _ in prompts]
    requests = orsched.Requests(prompts, outputs, arrival_ns=arrivals, service_class=classes)
    worker = orsched.Worker(clients, SERVER, memory=memory)
    instance = orsched.Instance(requests, worker, "prefill", output_limit_tokens=limit)
    params = ContinuousParams(
        policy=rng.choice(("fcfs", "fcfs", "priority")),
        priority=rng.choice(("service_class", "length")),
        max_num_batched_tokens=rng.choice((512, 2048, 8192)),
        long_prefill_token_threshold=rng.choice((0, 0, 256)),
        reserve_full_prompt=rng.random() < 0.5,
    )
    return instance, params


@cache
def _trace(name):
    """Return the requests of a trace in ``ORSCHED_DATA``."""
    path = Path(os.environ["ORSCHED_DATA"]) / name
    return orsched.load(path, clients=1, drop_empty=True, spread="mooncake" in name).requests


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
    if requests.parent is not None:
        shared["parents"] = requests.parent.tolist()
    return {
        **shared,
        "id": name,
        "policy": params.policy,
        "knobs": {name: getattr(params, name) for name in KNOBS},
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
