"""Lower bounds on tardiness and lateness: a bound on some requests, less when these are due.

A schedule without some of its requests is a schedule of the others, in which no step takes longer
where none does for having less in it (docs/proofs.md, under due dates). So the last of those that
are due by D ends at their bound on the makespan or later, and is late by that bound less D. What
tardiness charges is at least weight times lateness, whose sum a bound on the weighted sum of times
of some requests proves; the others are late by what they would be alone.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.charges import any_shares
from orsched.certificates.one_machine import Workers
from orsched.certificates.pools import alone_ns
from orsched.certificates.rank_costs import WEIGHTED
from orsched.certificates.scope import FOR_ALL
from orsched.costs import floor_of
from orsched.metrics.objective_values import MAX_LATENESS, WEIGHTED_TARDINESS, DueDates

if TYPE_CHECKING:
    from orsched.certificates.context import Context
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

DUE = (MAX_LATENESS, WEIGHTED_TARDINESS)
"""The objectives that are bounded here."""


class Due:
    """The requests of a context that have a due date, and what is proven of them.

    ``dates`` are their rows, due dates and weights, ``allowed`` the times from arrival by which
    they are due. Raises ``ValueError`` where no request with a weight is due.
    """

    def __init__(self, context: Context) -> None:
        dates = DueDates.of(context.instance)
        if dates is None or dates.weight == 0:
            raise ValueError("no request with a weight is due")
        self.context, self.dates = context, dates
        self.arrivals: IntColumn = context.instance.requests.arrival_ns[dates.rows]
        self.allowed: IntColumn = dates.due_ns - self.arrivals

    @cached_property
    def late(self) -> IntColumn:
        """How late each would be alone, negative where it would be early."""
        context = self.context
        if context.instance.link is not None:
            alone = alone_ns(context, until_first=False)
        else:
            workers = Workers.of(context, any_shares(context))
            alone = workers.machine([1] * len(workers.parts)).alone_ns
        late: IntColumn = np.array(alone, np.int64)[self.dates.rows] - self.allowed
        return late

    def places(self, claim: dict[str, Any]) -> IntColumn:
        """Return which of the requests a certificate bounds together."""
        if "due_ns" in claim:
            return np.flatnonzero(
                (self.arrivals >= claim["released_ns"]) & (self.dates.due_ns <= claim["due_ns"])
            )
        if "late_ns" in claim:
            return np.flatnonzero((self.late >= claim["late_ns"]) & (self.dates.weights > 0))
        return np.zeros(0, np.int64)

    def part(self, places: IntColumn) -> Instance:
        """Return the instance of some requests alone; ``ValueError`` where it proves nothing."""
        instance = self.context.instance
        if not len(places):
            raise ValueError("no request is bounded")
        if not parts_hold(instance):
            raise ValueError("what is left of a schedule may take longer")
        taken = instance.requests.take(self.dates.rows[places])
        return instance.replace(requests=taken.replace(weights=self.dates.weights[places]))

    def tardiness(self, claim: dict[str, Any]) -> int:
        """Return the least sum of weights times tardiness; the inner bound is proven elsewhere."""
        places = self.places(claim)
        weights, allowed = self.dates.weights.tolist(), self.allowed.tolist()
        alone = np.maximum(0, self.late)
        alone[places] = 0
        total: int = sum(w * late for w, late in zip(weights, alone.tolist(), strict=True))
        if len(places):
            total += claim["inner"]["certificate"]["sum_ns"]
            total -= sum(weights[at] * allowed[at] for at in places.tolist())
        return max(0, total)

    def certificate(self, claim: dict[str, Any]) -> dict[str, Any]:
        """Return the certificate that follows from choices, the inner bound taken as proven."""
        kind, objective = claim["bound"], claim["objective"]
        found = {"bound": kind, "objective": objective}
        if kind not in FOR_ALL:
            found |= self.context.scope.stated()
        kept = [n for n in ("late_ns", "released_ns", "due_ns", "inner") if n in claim]
        found |= {name: claim[name] for name in kept}
        if objective == MAX_LATENESS:
            if kind == "arrivals":
                return {**found, "value_ns": -int(self.allowed.min())}
            if "inner" not in claim:
                return {**found, "value_ns": int(self.late.max())}
            last = int(self.dates.due_ns[self.places(claim)].max())
            return {**found, "value_ns": claim["inner"]["value_ns"] - last}
        total = 0 if kind == "arrivals" else self.tardiness(claim)
        return {**found, "sum_ns": total, "value_ns": total // self.dates.weight}


def parts_hold(instance: Instance) -> bool:
    """Return whether no step takes longer for having less in it: a mean context may rise."""
    floors = (floor_of(worker.cost) for worker in instance.workers)
    return all(floor is not None and floor.stage.grows and not floor.round.mean for floor in floors)


def inner_objective(objective: str) -> str:
    """Return on what the inner bound of a certificate is."""
    return "makespan" if objective == MAX_LATENESS else WEIGHTED
