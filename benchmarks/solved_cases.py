"""The least sum of JCTs of a few requests on one worker or several equal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.models.best_first_times import solve_best_first_times

if TYPE_CHECKING:
    from orsched.data.instance import Instance


def least_jct_sum(instance: Instance, seconds: float = 60.0) -> int | None:
    """Return the least sum of JCTs of all plain schedules, in nanoseconds.

    On several workers, which must be equal, each request is prefilled and decoded on one of them;
    all ways to divide the requests are tried. None where a search of one worker was not through
    after so many seconds.
    """
    workers = len(instance.workers)
    if workers == 1:
        return _alone(instance, seconds)
    if any(worker.cost != instance.workers[0].cost for worker in instance.workers):
        raise ValueError("the workers differ")
    n, least = len(instance), [0]
    for chosen in range(1, 1 << len(instance)):
        rows = np.array([i for i in range(n) if chosen >> i & 1])
        part = instance.requests.take(rows)
        found = _alone(instance.replace(requests=part, workers=instance.workers[:1]), seconds)
        if found is None:
            return None
        least.append(found)
    return _divided(least, workers)


def _alone(instance: Instance, seconds: float) -> int | None:
    found = solve_best_first_times(instance, "jct_mean", seconds, alone=True)
    if found.status != "optimal" or found.value is None:
        return None
    return int(found.value * len(instance))


def _divided(least: list[int], workers: int) -> int:
    """Return the least sum over all ways to divide a set, from that of each part."""
    every, best = len(least) - 1, least
    for _ in range(workers - 1):
        then = []
        for chosen in range(len(least)):
            part = chosen
            found = best[chosen]
            while part:
                found = min(found, least[part] + best[chosen ^ part])
                part = (part - 1) & chosen
            then.append(found)
        best = then
    return best[every]
