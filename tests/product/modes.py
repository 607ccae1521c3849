"""The modes and workloads of the product, by name, and the instance that a cell stands for."""

import math
import random
from functools import cache

from orsched.costs import (
    AffineCost,
    BilinearCost,
    LevelsCost,
    LinearCost,
    PoolingCost,
    RooflineCost,
)
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from tests.in_order import in_order

MS = 1_000_000
BLOCK_TOKENS = 4

WORKERS = {
    # clients of each worker; those of unequal ones are also slower and have other memories
    "one": (3,),
    "two_equal": (2, 2),
    "two_unequal": (1, 4),
    "four_equal": (2, 2, 2, 2),
    "four_unequal": (1, 2, 3, 5),
}
MEMORY = {
    # allocation, and how often the largest request with the output limit fits
    "none": None,
    "whole": ("whole", 2.5),
    "whole_tight": ("whole", 1),
    "paged": ("paged", 2.5),
    "paged_tight": ("paged", 1),
}
PADDING = {"off": False, "on": True}
FIRST_TOKEN = ("decode", "prefill")
COST = ("affine", "levels", "bilinear", "pooling", "roofline", "linear")
WORKLOAD = (
    "all_at_0", "poisson", "bursts", "trace_like", "one_request", "equal_lengths",
    "long_and_short", "classes",
)  # fmt: skip

FACTORS = {
    "workers": tuple(WORKERS), "memory": tuple(MEMORY), "padding": tuple(PADDING),
    "first_token": FIRST_TOKEN, "cost": COST, "workload": WORKLOAD,
}  # fmt: skip


@cache
def instance_of(workers, memory, padding, first_token, cost, workload, n, limit):
    """Return the instance of at most n requests of at most ``limit`` tokens. Every worker can hold
    every request, in a tight memory the largest of them only alone."""
    requests = _requests(workload, n, limit)
    most = int(requests.prompt_tokens.max()) + limit
    unequal = workers.endswith("unequal")
    owners = tuple(
        Worker(
            clients,
            _cost(cost, most, 1 + unequal * (k % 2)),
            memory=_memory(memory, most, unequal * k),
            name=f"worker-{k}",
            padding=PADDING[padding],
        )
        for k, clients in enumerate(WORKERS[workers])
    )
    name = "-".join((workers, memory, padding, first_token, cost, workload))
    return Instance(requests, owners, first_token, limit, name)


def _cost(model, most, factor):
    cost = {
        "affine": AffineCost(),
        # A stage holds little more than the largest request.
        "levels": LevelsCost(
            levels=((most // 2, 27 * MS), (most + 3, 31 * MS)), round_fixed_ns=30 * MS
        ),
        "bilinear": BilinearCost.from_ms((0.12, 1.7, 0.4, 31.5), (0.061, 0.9, 0.21, 29.3)),
        "pooling": PoolingCost.from_ms(
            alpha=0.01, beta=0.4, c=21.5, gamma=0.7, delta=0.3, lambda_=1.2
        ),
        "roofline": RooflineCost.from_s(
            fixed=2e-3, weights=29.5e-3, token=4.1e-3, context=0.31e-3, attended=0.07e-3
        ),
        "linear": in_order(
            LinearCost, *(x * 10**9 for x in (21_500, 400, 70, 31_500, 900, 310, 4_300, 90))
        ),
    }[model]
    return cost.scaled(factor)


def _memory(name, most, more):
    if MEMORY[name] is None:
        return None
    allocation, times = MEMORY[name]
    blocks = math.ceil(times * math.ceil(most / BLOCK_TOKENS))
    return BlockMemory(blocks + more, BLOCK_TOKENS, allocation)


def _requests(workload, n, limit):
    rng = random.Random(f"{workload} {n} {limit}")
    n = 1 if workload == "one_request" else n
    prompts = [rng.randint(1, 12) for _ in range(n)]
    outputs = [rng.randint(1, limit) for _ in range(n)]
    arrivals = [0] * n
    classes = None
    if workload == "poisson":
        arrivals = _sums(rng.expovariate(1 / 60) for _ in range(n))
    elif workload == "bursts":
        # Ties within a burst, and none of them at 0.
        arrivals = [(130 + 170 * (k // 4)) * MS for k in range(n)]
    elif workload == "trace_like":
        prompts = [min(40, 1 + int(rng.lognormvariate(2, 1))) for _ in range(n)]
        outputs = [min(limit, 1 + int(rng.lognormvariate(1, 0.8))) for _ in range(n)]
        arrivals = _sums(rng.gammavariate(0.3, 250) for _ in range(n))
    elif workload == "equal_lengths":
        prompts, outputs = [5] * n, [max(1, limit - 2)] * n
    elif workload == "long_and_short":
        prompts = [60 if k % 4 == 1 else 1 for k in range(n)]
        outputs = [limit if k % 3 == 2 else 1 for k in range(n)]
        arrivals = [20 * MS * (k % 2) for k in range(n)]
    elif workload == "classes":
        classes = [k % 2 for k in range(n)]
        arrivals = _sums(rng.expovariate(1 / 30) for _ in range(n))
    # Predictions as they are: some right, some far off, one perhaps beyond the limit.
    predicted = [rng.choice((out, rng.randint(1, 2 * limit))) for out in outputs]
    return Requests(
        prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted, service_class=classes
    )


def _sums(gaps_ms):
    """Return arrival times, the first 0, from gaps in milliseconds."""
    times, now = [], 0
    for gap in gaps_ms:
        times.append(now)
        now += int(gap * MS)
    return times
