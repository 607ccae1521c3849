"""Random workloads whose prompts share prefixes, on workers with few blocks."""

from __future__ import annotations

import random

import orsched
from orsched.costs import AffineCost
from orsched.heuristics.continuous import ContinuousBatching, ContinuousParams, make_queue
from orsched.heuristics.dispatching import DISPATCHERS, Dispatched
from orsched.memory import PrefixCache
from orsched.policy import Information
from orsched.prefixes import Prefixes

COST = AffineCost(1000, 10, 1000, 10)


def prefix_instance(seed, workers=1, eviction="lru"):
    """Return an instance whose requests begin with parts of a few documents."""
    rng = random.Random(seed)
    n, size = rng.choice((6, 15, 40)), rng.choice((2, 4, 16))
    longest, limit = rng.choice((10, 60, 200)), rng.choice((2, 5, 40))
    prompts = [rng.randint(1, longest) for _ in range(n)]
    documents = [rng.randint(-1, rng.randint(0, 3)) for _ in range(n)]
    shared = [rng.choice((0, prompt, rng.randint(0, prompt))) for prompt in prompts]
    least = -(-(longest + limit) // size)
    memory = orsched.BlockMemory(
        least + rng.choice((0, 1, least, 4 * least)), size, "paged", PrefixCache(eviction)
    )
    span = rng.choice((0, 1000 * limit, 4000 * limit * n // 4))
    requests = orsched.Requests(
        prompts,
        [rng.randint(1, limit) for _ in range(n)],
        [rng.randint(0, span) for _ in range(n)],
        service_class=[rng.randint(0, 1) for _ in range(n)],
        prefixes=Prefixes.from_documents(documents, shared, size),
    )
    clients = rng.choice((2, 4, 16))
    machines = tuple(
        orsched.Worker(clients, COST, memory=memory, name=f"w{index}") for index in range(workers)
    )
    rule = rng.choice(("prefill", "decode"))
    return orsched.Instance(requests, machines, rule, output_limit_tokens=limit)


def prefix_params(seed, clients):
    """Return parameters of ``vllm``, from chunks of a token upward."""
    rng = random.Random(seed + 10**6)
    return ContinuousParams(
        policy=rng.choice(("fcfs", "priority")),
        priority="service_class",
        max_num_batched_tokens=rng.choice((1, clients, clients + 7, 64, 2048)),
        long_prefill_token_threshold=rng.choice((0, 0, 4)),
        reserve_full_prompt=rng.random() < 0.7,
        mode=rng.choice(("mixed", "mixed", "decode_first")),
    )


def prefix_policy(instance, params):
    """Return ``vllm`` on one worker, or one a worker below the dispatcher ``prefix``."""

    def make():
        queue = make_queue(instance, params, Information.NONE)
        return ContinuousBatching(params, Information.NONE, queue)

    return make() if len(instance.workers) == 1 else Dispatched(make, DISPATCHERS["prefix"]())
