"""What is in each step of a schedule: prompts, requests in the round, and their contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.costs.measurements import DECODE, MIXED, PREFILL, Measurements
from orsched.schedule import PREFILL as PREFILL_CODE
from orsched.timeline import Timeline

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.schedule import Schedule


class StepContents(NamedTuple):
    """Columns with one row a step, in the order of each worker's steps, worker by worker.

    Attributes:
        worker, phase, start_ns, end_ns, rounds: as in ``Steps``.
        active: requests in the round; those that yield invalid tokens count.
        context_sum, context_max: over their contexts in the first round.
        prompts: chunks of prompts.
        tokens: prompt tokens of all of them.
        longest: tokens of the longest.
        cached: tokens that earlier chunks of the same prompts left in the cache.
        attended: contexts of all prompt tokens, added up.
    """

    worker: IntColumn
    phase: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    rounds: IntColumn
    active: IntColumn
    context_sum: IntColumn
    context_max: IntColumn
    prompts: IntColumn
    tokens: IntColumn
    longest: IntColumn
    cached: IntColumn
    attended: IntColumn


def step_contents(instance: Instance, schedule: Schedule) -> StepContents:
    """Return what is in each step of a schedule, planned or measured."""
    line = Timeline(instance, schedule)
    n = len(line.order)
    places = np.flatnonzero(line.phase != PREFILL_CODE)
    active, total, most = (np.zeros(n, np.int64) for _ in range(3))
    active[places], total[places], most[places] = line.first_round_contexts(places)
    most[active == 0] = 0
    rows = np.flatnonzero(line.is_prefill)
    at, size, cached = line.first[rows], line.work.tokens[rows], line.cached[rows]
    longest = np.zeros(n, np.int64)
    np.maximum.at(longest, at, size)
    return StepContents(
        line.worker,
        line.phase,
        line.start_ns,
        line.end_ns,
        line.rounds,
        active,
        total,
        most,
        np.bincount(at, minlength=n),
        _summed(n, at, size),
        longest,
        _summed(n, at, cached),
        _summed(n, at, size * cached + size * (size + 1) // 2),
    )


def _summed(n: int, at: IntColumn, values: IntColumn) -> IntColumn:
    sums = np.zeros(n, np.int64)
    np.add.at(sums, at, values)
    return sums


def measurements_of(instance: Instance, trace: Schedule, gaps: bool = False) -> Measurements:
    """Return the steps of a trace as measurements; each run of rounds is one row, its mean round.

    Left out is what a row cannot say: mixed steps over several prompts, and chunks after a
    prompt's first.

    Args:
        instance: the trace's.
        trace: a schedule with measured times.
        gaps: whether the time since the worker's step before counts as part of a step; only for
            traces without waits for arrivals.
    """
    steps = step_contents(instance, trace)
    start = steps.start_ns.copy()
    if gaps:
        same = steps.worker[1:] == steps.worker[:-1]
        start[1:][same] = steps.end_ns[:-1][same]
    mixed = (steps.active > 0) & (steps.prompts > 0)
    kept = np.flatnonzero((steps.cached == 0) & ~(mixed & (steps.prompts > 1)))
    middle = np.where(steps.prompts > 0, 0, (steps.rounds - 1) // 2)
    phase = np.where(mixed, MIXED, np.where(steps.prompts > 0, PREFILL, DECODE))
    count = np.where(steps.active > 0, steps.active, steps.prompts)
    context_sum = steps.context_sum + steps.active * middle
    context_max = np.where(steps.active > 0, steps.context_max + middle, 0)
    duration = np.maximum(1, (steps.end_ns - start) // steps.rounds)
    return Measurements(
        phase=[str(name) for name in phase[kept]],
        **{
            name: column[kept]
            for name, column in (
                ("count", count),
                ("duration_ns", duration),
                ("tokens", steps.tokens),
                ("longest", steps.longest),
                ("context_sum", context_sum),
                ("context_max", context_max),
            )
        },
    )
