"""The one reading of a schedule: steps by worker, rows of work, and stays."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.metrics.caches import Caches
from orsched.metrics.prefill_batches import PrefillBatches
from orsched.metrics.prefix_replay import PrefixReplay
from orsched.metrics.timeline_stays import Stays

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


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
