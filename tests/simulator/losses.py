"""Random instances whose workers start late, fail and are repaired."""

import random
from dataclasses import replace

import orsched
from orsched.costs import AffineCost
from orsched.instances import predict
from tests.in_order import in_order

FAST, SLOW = in_order(AffineCost, 1000, 10, 1000, 10), in_order(AffineCost, 1000, 20, 2000, 10)


def losing(seed, workers=3, *, repaired=True):
    """Return an instance; with ``repaired`` the last interval of each worker has no end."""
    rng = random.Random(seed)
    many, span = rng.choice((5, 20, 60)), rng.choice((0, 20_000, 200_000))
    requests = orsched.Requests(
        [rng.randint(1, 60) for _ in range(many)],
        [rng.randint(1, 40) for _ in range(many)],
        arrival_ns=[rng.randint(0, span) for _ in range(many)],
    )
    fleet = tuple(_worker(rng, index, repaired) for index in range(workers))
    instance = orsched.Instance(requests, fleet, rng.choice(("decode", "prefill")))
    return predict(instance, "noise:sigma=0.3", seed)


def _worker(rng, index, repaired):
    start, intervals = rng.choice((0, 0, rng.randint(1, 5000))), []
    for _ in range(rng.randint(0, 5)):
        end = start + rng.randint(1, 30_000)
        intervals.append((start, end))
        start = end + rng.randint(1, 20_000)
    if repaired or not index:
        intervals.append((start, None))
    memory = orsched.BlockMemory(rng.choice((40, 100)), 4, rng.choice(("paged", "whole")))
    return orsched.Worker(
        rng.choice((1, 4, 16)), rng.choice((FAST, SLOW)), None, rng.choice((None, memory)),
        f"worker-{index}", available_ns=tuple(intervals) or ((0, 5000),),
    )  # fmt: skip


def steady(instance):
    """Return the same workers, there all the time."""
    return instance.replace(
        workers=tuple(replace(worker, available_ns=()) for worker in instance.workers)
    )
