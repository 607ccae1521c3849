"""Small instances that map into the full MIP and that exhaustive search can solve."""

import random

from hypothesis import strategies as st

from orsched import AffineCost, BlockMemory, Instance, LevelsCost, Requests, Worker
from orsched.metrics.objective_values import weighted_times
from tests.brute_force import least_total
from tests.in_order import in_order

COSTS = (
    in_order(AffineCost, 25, 1, 29, 2), in_order(AffineCost, 0, 0, 7, 0),
    in_order(AffineCost, 100, 3, 1, 1), in_order(AffineCost, 7, 2, 0, 3),
    in_order(AffineCost, 40, 0, 10, 0), in_order(AffineCost, 0, 0, 0, 0),
    LevelsCost(levels=((4, 10), (9, 16)), round_fixed_ns=5),
    LevelsCost(levels=((9, 30),), round_fixed_ns=1),
    LevelsCost(levels=((3, 0), (6, 5), (20, 50)), round_fixed_ns=8),
)  # fmt: skip


def random_instance(seed: int, most: int = 5) -> Instance:
    """Up to ``most`` requests on up to three clients; half with arrivals, some with memory."""
    rng = random.Random(seed)
    n = rng.randint(1, most)
    memory = BlockMemory(rng.randint(13, 30), 1, "whole") if rng.random() < 0.4 else None
    arrivals = [rng.randint(0, 100) for _ in range(n)] if rng.random() < 0.5 else [0] * n
    worker = Worker(rng.randint(1, 3), rng.choice(COSTS), rng.choice((None, 9, 12)), memory)
    prompts = [rng.randint(1, 9) for _ in range(n)]
    outputs = [rng.randint(1, 4) for _ in range(n)]
    rule = rng.choice(("decode", "prefill"))
    return Instance(Requests(prompts, outputs, arrival_ns=arrivals), worker, first_token=rule)


def instances(most: int = 5) -> st.SearchStrategy[Instance]:
    """The same for Hypothesis."""
    return st.integers(0, 2**32).map(lambda seed: random_instance(seed, most))


TIMES = (
    "jct_mean", "ttft_mean", "weighted_jct_mean", "0.5*makespan+0.5*jct_mean",
    "0.3*ttft_mean+1.7*weighted_jct_mean",
)  # fmt: skip


def weighted(seed, most):
    """A small instance with weights, one of them above 0."""
    instance, rng = random_instance(seed, most), random.Random(seed)
    weights = [rng.randint(0, 5) for _ in range(len(instance) - 1)]
    return instance.replace(requests=instance.requests.replace(weights=[*weights, 1]))


def optimum(instance, objective, pauses=False):
    times = weighted_times(instance, objective)
    least = least_total(instance, times.makespan, times.finish, times.first, pauses)
    return times.value_ns(least)
