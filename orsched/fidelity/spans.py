"""Spans of a measured run, and what a simulation says of the steps that lie in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.fidelity.families import StepWork
from orsched.schedule import PREFILL
from orsched.timeline import Timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.costs.least_squares import FloatArray
    from orsched.fidelity.families import Family
    from orsched.fidelity.runs import Times
    from orsched.instance import Instance
    from orsched.schedule import Schedule


def spans(times: Times, requests: int) -> NDArray[np.int64]:
    """Return the (from, to) of what is fitted to, over the first requests, in nanoseconds.

    From each request's first to its last token, and from the first request's first token to each
    other's.
    """
    first, last = times.first[:requests], times.last[:requests]
    own = np.stack([first, last], axis=1)
    starts = np.stack([np.full(requests - 1, first[0]), first[1:]], axis=1)
    return np.concatenate([own, starts])


def owners(requests: int) -> NDArray[np.int64]:
    """Return the request that each of the spans is of."""
    return np.concatenate([np.arange(requests), np.arange(1, requests)])


def design_of(
    instance: Instance, schedule: Schedule, family: Family, found: NDArray[np.int64]
) -> FloatArray:
    """Return a row a span: what each constant counts for in the steps that end in it."""
    rows = np.array([family.row(work) for work in step_works(instance, schedule)], np.float64)
    total = np.concatenate([np.zeros((1, len(family.names))), np.cumsum(rows, axis=0)])
    at = np.searchsorted(schedule.steps.end_ns, found, side="right")
    difference: FloatArray = total[at[:, 1]] - total[at[:, 0]]
    return difference


def step_works(instance: Instance, schedule: Schedule) -> list[StepWork]:
    """Return what is in each step of a schedule of one worker."""
    steps, work = schedule.steps, schedule.work
    line = Timeline(instance, schedule)
    prompts: list[list[int]] = [[] for _ in range(len(steps))]
    cached: list[list[int]] = [[] for _ in range(len(steps))]
    for row in np.flatnonzero(work.phase == PREFILL).tolist():
        step = int(work.first_step[row])
        prompts[step].append(int(work.tokens[row]))
        cached[step].append(int(line.cached[row]))
    caches = line.caches
    decodes = (steps.phase != PREFILL).tolist()
    columns = (steps.rounds.tolist(), caches.active.tolist(), caches.context_sum.tolist())
    return [
        StepWork(
            prompts[i], cached[i], rounds if on else 1, active if on else 0, total if on else 0
        )
        for i, (rounds, active, total, on) in enumerate(zip(*columns, decodes, strict=True))
    ]
