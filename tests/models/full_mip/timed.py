"""Small instances with weights, and their least sums of times by brute force."""

from __future__ import annotations

import random

from orsched.metrics.objective_values import weighted_times
from tests.brute_force import least_total
from tests.models.full_mip.small import random_instance

TIMES = (
    "jct_mean",
    "ttft_mean",
    "weighted_jct_mean",
    "0.5*makespan+0.5*jct_mean",
    "0.3*ttft_mean+1.7*weighted_jct_mean",
)


def weighted(seed, most):
    """A small instance with weights, one of them above 0."""
    instance, rng = random_instance(seed, most), random.Random(seed)
    weights = [rng.randint(0, 5) for _ in range(len(instance) - 1)]
    return instance.replace(requests=instance.requests.replace(weights=[*weights, 1]))


def optimum(instance, objective, pauses=False):
    times = weighted_times(instance, objective)
    least = least_total(instance, times.makespan, times.finish, times.first, pauses)
    return times.value_ns(least)
