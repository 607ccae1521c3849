"""Due dates: how late requests are, exactly.

A request with a deadline d and an arrival a is due at a + d. Its lateness is C - a - d for its last
token at C, its tardiness max(0, C - a - d) (Pinedo, *Scheduling*, section 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import exact_sum
from orsched.common.errors import InputError
from orsched.metrics.flat_figures import ratio
from orsched.metrics.timeline_rows import exact_product

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

WEIGHTED_TARDINESS, MAX_LATENESS = "weighted_tardiness_mean", "lateness_max"


@dataclass(frozen=True, eq=False)
class DueDates:
    """The requests of an instance that have a deadline.

    Attributes:
        rows: which they are.
        due_ns: when each is due, from time 0.
        weights: how much each counts; 1 each where the instance has no weights.
    """

    rows: IntColumn
    due_ns: IntColumn
    weights: IntColumn

    @classmethod
    def of(cls, instance: Instance) -> DueDates | None:
        """Return the due dates of an instance; None where no request has a deadline."""
        limits, requests = instance.deadlines_ns, instance.requests
        if limits is None or not (limits >= 0).any():
            return None
        rows = np.flatnonzero(limits >= 0)
        own = requests.weights
        weights = np.ones(len(rows), np.int64) if own is None else own[rows]
        return cls(rows, requests.arrival_ns[rows] + limits[rows], weights)

    @property
    def weight(self) -> int:
        """The sum of the weights."""
        return exact_sum(self.weights)

    def lateness(self, finish_ns: IntColumn) -> IntColumn:
        """Return by how much each is late, from when all requests are done."""
        late: IntColumn = finish_ns[self.rows] - self.due_ns
        return late

    def weighted_tardiness(self, finish_ns: IntColumn) -> int:
        """Return the sum of weights times tardiness."""
        return exact_product(self.weights, np.maximum(0, self.lateness(finish_ns)))

    def max_lateness(self, finish_ns: IntColumn) -> int:
        """Return the largest lateness; negative where all are early."""
        return int(self.lateness(finish_ns).max())


def required_due_dates(instance: Instance, objective: str) -> DueDates:
    """Return the due dates; ``InputError`` where there are none or none counts."""
    found = DueDates.of(instance)
    if found is None:
        raise InputError(
            f"{objective} without deadlines",
            field="objective",
            remedy="give requests a column deadline_s, or classes a deadline",
        )
    if objective == WEIGHTED_TARDINESS and found.weight == 0:
        raise InputError(
            "all weights of requests with a deadline are 0",
            field="weight",
            remedy="give at least one of them a weight above 0",
        )
    return found


def due_figures(instance: Instance, finish_ns: IntColumn) -> dict[str, Any]:
    """Return the figures of due dates, ``finish_ns`` by row; none where no request has one."""
    dates = DueDates.of(instance)
    if dates is None:
        return {}
    total = dates.weighted_tardiness(finish_ns)
    return {
        "due": {
            "requests": len(dates.rows),
            "weight": dates.weight,
            "weighted_tardiness_ns": ratio(total, dates.weight),
            "max_lateness_ns": dates.max_lateness(finish_ns),
        }
    }
