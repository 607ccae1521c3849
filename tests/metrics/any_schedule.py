"""Random valid schedules of every kind: workers, stays, chunks, mixed steps, paused and held."""

import random

from orsched import AffineCost, BlockMemory, Instance, Requests, Worker
from tests.checker.any_mode import Dice
from tests.in_order import in_order
from tests.simulator.instances import ContextCost

COSTS = (in_order(AffineCost, 30, 2, 17, 5), ContextCost(), in_order(AffineCost, 0, 0, 3, 0))


def any_instance(seed, requests=None):
    """A small instance whose workers differ in everything; perhaps without a request."""
    draw = random.Random(seed)
    n = draw.randint(0, 9) if requests is None else requests
    workers = []
    for k in range(draw.randint(1, 3)):
        whole, paged = draw.randint(1, 5), draw.randint(1, 9)
        memories = (None, BlockMemory(10**6, whole, "whole"), BlockMemory(10**6, paged, "paged"))
        memory, padding = draw.choice(memories), draw.random() < 0.4
        worker = Worker(
            draw.randint(1, 4), draw.choice(COSTS), None, memory, f"worker-{k}", padding=padding
        )
        workers.append(worker)
    table = Requests(
        [draw.randint(1, 9) for _ in range(n)],
        [draw.randint(1, 8) for _ in range(n)],
        arrival_ns=[draw.choice([0, draw.randint(0, 900)]) for _ in range(n)],
    )
    return Instance(table, tuple(workers), first_token=draw.choice(["decode", "prefill"]))


def any_schedule(seed, requests=None):
    """Return a random instance and a random valid schedule for it."""
    return Dice(seed, instance=any_instance(seed, requests)).run()
