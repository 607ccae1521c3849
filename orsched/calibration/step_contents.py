"""What is in each step of a schedule: prompts, requests in the round, and their contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


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
    n, caches, batches = len(line.order), line.caches, line.batches
    at, size = line.first[line.prefills], line.tokens[line.prefills]
    cached = line.cached[line.prefills]
    return StepContents(
        line.worker,
        line.phase,
        line.start_ns,
        line.end_ns,
        line.rounds,
        caches.active,
        caches.context_sum,
        caches.context_max,
        line.by_place(batches.size),
        line.by_place(batches.total),
        line.by_place(batches.longest),
        _summed(n, at, cached),
        _summed(n, at, size * cached + size * (size + 1) // 2),
    )


def _summed(n: int, at: IntColumn, values: IntColumn) -> IntColumn:
    sums = np.zeros(n, np.int64)
    np.add.at(sums, at, values)
    return sums
