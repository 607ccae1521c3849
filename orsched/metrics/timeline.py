"""The one reading of a schedule: steps by worker, rows of work, and stays."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.metrics.caches import Caches
from orsched.metrics.prefix_replay import PrefixReplay
from orsched.metrics.timeline_stays import Stays

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


class PrefillBatches:
    """Prefill rows by step, in order of place.

    Attributes:
        place: steps with prefill rows.
        begin, size: their rows in ``tokens``.
        rows: these rows in the timeline.
        tokens: tokens of the rows.
        total: tokens of each step.
        longest: tokens of its largest row.
        padded: tokens of each step with what its worker pads.
    """

    def __init__(self, line: Stays) -> None:
        rows = line.prefills
        self.line = line
        place = line.first[rows]
        order = np.argsort(place, kind="stable")
        place = place[order]
        self.rows: IntColumn = rows[order]
        self.tokens: IntColumn = line.tokens[self.rows]
        opens = np.ones(len(rows), bool)
        np.not_equal(place[1:], place[:-1], out=opens[1:])
        self.begin = np.flatnonzero(opens)
        self.size: IntColumn = np.diff(self.begin, append=len(rows))
        self.place: IntColumn = place[self.begin]
        self.total: IntColumn = np.add.reduceat(self.tokens, self.begin)
        self.longest: IntColumn = np.maximum.reduceat(self.tokens, self.begin)
        pads = np.array([worker.padding for worker in line.instance.workers], bool)
        padding = pads[line.worker[self.place]]
        self.padded: IntColumn = np.where(padding, self.longest * self.size, self.total)

    @cached_property
    def cached(self) -> IntColumn:
        """Tokens of its request in the cache before each row, hits in a prefix cache included."""
        before: IntColumn = self.line.cached_after[self.rows] - self.tokens
        return before

    @cached_property
    def as_list(self) -> list[int]:
        """The tokens of the rows, as Python numbers."""
        tokens: list[int] = self.tokens.tolist()
        return tokens


class Timeline(Stays):
    """The steps of a schedule worker by worker, and what each row of work takes part in.

    The *place* of a step is its number when the steps of worker 0 are counted first, then those of
    worker 1, and so on: the steps between two places of a worker are that worker's. A *stay* is a
    run of rows of one request and stay.

    Metrics, pictures, reports, runner and checker read schedules here, and nowhere else. The
    checker also reads faulty ones (``strict=False``): rows that point to nothing, or to steps of
    another phase, are left out, the others are sorted by request, stay and place, and nothing
    raises. All others read ``strict``, the rows as they are.

    Attributes: those of ``Rows``; the properties of ``Stays``.

    Raises:
        InputError: ``strict``, and work names requests, workers, clients or steps that cannot be;
            all other faults are for the checker to find.
    """

    @cached_property
    def prefix_replay(self) -> PrefixReplay:
        """What the prefix caches of the workers found and held."""
        return PrefixReplay(self)

    @cached_property
    def batches(self) -> PrefillBatches:
        """The prefill rows by step."""
        return PrefillBatches(self)

    @cached_property
    def caches(self) -> Caches:
        """Active requests, contexts and memory blocks by step."""
        return Caches(self, lambda: self.prefix_replay.used)

    def by_place(self, of_batches: IntColumn) -> IntColumn:
        """Return a column of ``batches`` with one entry a place, 0 where nothing is prefilled."""
        found = np.zeros(len(self.worker), np.int64)
        found[self.batches.place] = of_batches
        return found


def yielded_tokens(instance: Instance, trace: Schedule) -> IntColumn:
    """Return how many tokens each request has yielded in a schedule, complete or not."""
    return Timeline(instance, trace).yielded


def finished_requests(instance: Instance, schedule: Schedule) -> int:
    """Return how many requests have yielded all their tokens in a schedule, complete or not."""
    return int((yielded_tokens(instance, schedule) >= instance.requests.output_tokens).sum())
