"""Spans of a measured run, and what a simulation says of the steps that lie in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.calibration.families import StepWork
from orsched.data.schedule import PREFILL
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.calibration.families import Family
    from orsched.calibration.least_squares import FloatArray
    from orsched.calibration.runs import Times
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


def spans(times: Times, requests: int) -> NDArray[np.int64]:
    """Return the (from, to) of what is fitted to, over the first requests, in nanoseconds.

    From each request's first to its last token, then from each one's arrival to its first token.
    """
    arrival, first, last = (
        column[:requests] for column in (times.arrival, times.first, times.last)
    )
    own, waits = np.stack([first, last], axis=1), np.stack([arrival, first], axis=1)
    return np.concatenate([own, waits])


def owners(requests: int) -> NDArray[np.int64]:
    """Return the request that each of the spans is of."""
    return np.tile(np.arange(requests), 2)


def design_of(
    instance: Instance, schedule: Schedule, family: Family, found: NDArray[np.int64]
) -> FloatArray:
    """Return a row a span: what each constant counts for in the steps, or parts of them, in it."""
    steps = schedule.steps
    rows = np.array([family.row(work) for work in step_works(instance, schedule)], np.float64)
    total = np.concatenate([np.zeros((1, len(family.names))), np.cumsum(rows, axis=0)])
    moments = np.stack([steps.start_ns, steps.end_ns], axis=1).ravel().astype(np.float64)
    values = np.stack([total[:-1], total[1:]], axis=1).reshape(-1, total.shape[1])
    ends = [
        np.stack([np.interp(found[:, end], moments, column) for column in values.T], axis=1)
        for end in (0, 1)
    ]
    difference: FloatArray = ends[1] - ends[0]
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
