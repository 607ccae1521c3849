"""Workers by what their steps cost, each kind with its steps."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.costs.equal import numbers_of_equal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.workers import Worker
    from orsched.metrics.timeline import Timeline


class Kind(NamedTuple):
    """Workers whose steps are priced alike.

    Attributes:
        worker: one of them.
        steps: the places of their steps.
        batches: the numbers of their steps with prefill rows, among ``Timeline.batches``.
    """

    worker: Worker
    steps: IntColumn
    batches: IntColumn


def kinds_of_workers(line: Timeline) -> list[Kind]:
    """Return the kinds of an instance's workers with their places, by one sort for all workers."""
    workers, numbers = _kinds_of(line.instance.workers)
    kind_of = np.array([*numbers, len(workers)], np.int64)  # the last one: no such worker
    of_steps = kind_of[np.minimum(line.worker, len(numbers))]
    steps = _split(of_steps, len(workers))
    batches = _split(of_steps[line.batches.place], len(workers))
    return [Kind(*each) for each in zip(workers, steps, batches, strict=True)]


def _kinds_of(workers: Sequence[Worker]) -> tuple[list[Worker], list[int]]:
    """Return one worker of each kind, and the kind of each worker.

    Those of a kind have the same clients, limit, padding and an equal cost model.
    """
    found: dict[object, int] = {}
    first: list[Worker] = []
    numbers: list[int] = []
    costs = numbers_of_equal([worker.cost for worker in workers])
    for worker, cost in zip(workers, costs, strict=True):
        key = (cost, worker.clients, worker.prefill_limit, worker.padding)
        number = found.setdefault(key, len(found))
        if number == len(first):
            first.append(worker)
        numbers.append(number)
    return first, numbers


def _split(kind: IntColumn, count: int) -> list[IntColumn]:
    """Return the places of each of some kinds, in order."""
    order = np.argsort(kind, kind="stable")
    borders = np.searchsorted(kind[order], np.arange(count + 1)).tolist()
    return [order[begin:end] for begin, end in pairwise(borders)]
