"""Lower bounds on tardiness and lateness: a bound on some requests, less when these are due.

A schedule without some of its requests is a schedule of the others, in which no step takes longer
where none does for having less in it (docs/proofs.md, under due dates). So the last of those that
are due by D ends at their bound on the makespan or later, and is late by that bound less D. What
tardiness charges is at least weight times lateness, whose sum a bound on the weighted sum of times
of some requests proves; the others are late by what they would be alone.

Percentiles and attainment: if fewer than the k-th of all requests can have a latency below a value,
the k-th smallest is at least that, and those that cannot be in time miss their limits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.charges import any_shares, read_shares
from orsched.certificates.in_time import FIELDS, Jobs, least_late, most_in_time, needs_of
from orsched.certificates.one_machine import Workers
from orsched.certificates.pools import alone_ns
from orsched.certificates.rank_costs import WEIGHTED
from orsched.certificates.scope import FOR_ALL
from orsched.common.units import NEVER, NS_PER_S
from orsched.costs import floor_of
from orsched.metrics.class_metrics import request_limits
from orsched.metrics.objective_values import MAX_LATENESS, WEIGHTED_TARDINESS, DueDates
from orsched.solving.objectives import PERCENTILES

if TYPE_CHECKING:
    from orsched.certificates.context import Context
    from orsched.certificates.fields import Budget
    from orsched.certificates.in_time import Needs
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance

DUE = (MAX_LATENESS, WEIGHTED_TARDINESS)
"""The objectives that are bounded here."""

NEEDS_ARRIVALS = {"inner", "moments"}
"""Fields of certificates that hold only where arrivals do not follow from ends."""

_CHOSEN = ("late_ns", "released_ns", "due_ns", "inner", "moments", "held", "one")


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
    def alone(self) -> IntColumn:
        """The least time of each."""
        context = self.context
        if context.instance.link is not None:
            alone = alone_ns(context, until_first=False)
        else:
            workers = Workers.of(context, any_shares(context))
            alone = workers.machine([1] * len(workers.parts)).alone_ns
        return np.array(alone, np.int64)[self.dates.rows]

    @cached_property
    def late(self) -> IntColumn:
        """How late each would be alone, negative where it would be early."""
        late: IntColumn = self.alone - self.allowed
        return late

    def jobs(self) -> Jobs:
        """Return those with a weight, and what they hold; ``ValueError`` where a request may leave
        its client."""
        context, some = self.context, self.dates.weights > 0
        if context.scope.restarts or context.instance.link is not None:
            raise ValueError("a request may leave its client before it ends")
        clients = Workers.of(context, any_shares(context)).clients
        due, weights = self.dates.due_ns[some], self.dates.weights[some]
        return Jobs(self.arrivals[some], self.alone[some], due, weights, clients)

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

    def certificate(self, claim: dict[str, Any], budget: Budget | None = None) -> dict[str, Any]:
        """Return the certificate that follows from choices, the inner bound taken as proven."""
        kind, objective = claim["bound"], claim["objective"]
        found = {"bound": kind, "objective": objective}
        if kind not in FOR_ALL:
            found |= self.context.scope.stated()
        kept = [name for name in _CHOSEN if name in claim]
        found |= {name: claim[name] for name in kept}
        if objective == MAX_LATENESS:
            if kind == "arrivals":
                return {**found, "value_ns": -int(self.allowed.min())}
            if "inner" not in claim:
                return {**found, "value_ns": int(self.late.max())}
            last = int(self.dates.due_ns[self.places(claim)].max())
            return {**found, "value_ns": claim["inner"]["value_ns"] - last}
        if kind == "starts":
            total = least_late(self.jobs(), claim, budget)
        else:
            total = 0 if kind == "arrivals" else self.tardiness(claim)
        return {**found, "sum_ns": total, "value_ns": total // self.dates.weight}


def parts_hold(instance: Instance) -> bool:
    """Return whether no step takes longer for having less in it: a mean context may rise."""
    floors = (floor_of(worker.cost) for worker in instance.workers)
    return all(floor is not None and floor.stage.grows and not floor.round.mean for floor in floors)


def inner_objective(objective: str) -> str:
    """Return on what the inner bound of a certificate is."""
    return "makespan" if objective == MAX_LATENESS else WEIGHTED


ATTAINMENT = "slo_attainment"
IN_TIME = (*PERCENTILES, ATTAINMENT)
"""The objectives that are bounded here."""


def within(needs: Needs, objective: str, limit_ns: int) -> Needs:
    """Return needs with a limit on the latency of which an objective is a percentile."""
    limit = np.minimum(needs.arrivals + limit_ns, NEVER)
    of_first = objective.startswith("ttft")
    return replace(needs, **{"first_due" if of_first else "due": limit})


def judged(instance: Instance, needs: Needs) -> Needs:
    """Return the needs of the requests that have limits; ``ValueError`` where none has."""
    limits = request_limits(instance, None)
    rows = limits.judged
    if not len(rows):
        raise ValueError("no request has limits on its TTFT or TPOT")
    first, decode = limits.ttft_ns[rows], limits.decode_ns[rows]
    first_due = np.where(first < 0, NEVER, needs.arrivals[rows] + np.minimum(first, NEVER // 4))
    last = np.where((first < 0) | (decode < 0), NEVER, first_due + np.minimum(decode, NEVER // 4))
    taken = {name: column[rows] for name, column in vars(needs).items() if name != "clients"}
    return replace(needs, **{**taken, "first_due": first_due, "due": last})


def rank_of(objective: str, count: int) -> int:
    """Return which of so many latencies, from 1 for the smallest, a percentile is."""
    return -(-PERCENTILES[objective] * count // 100)


def in_time(
    context: Context, claim: dict[str, Any], budget: Budget | None = None
) -> dict[str, Any]:
    """Return the certificate that follows from what a claim chooses."""
    kind, objective = claim["bound"], claim["objective"]
    if kind == "arrivals":
        return {"bound": kind, "objective": objective, "value_ns": 0}
    workers = claim["workers"]
    shares, weights = read_shares(context, workers), [choice["weight"] for choice in workers]
    needs = needs_of(context, shares, weights)
    found = {"bound": kind, "objective": objective, **context.scope.stated(), "workers": workers}
    found |= {name: claim[name] for name in FIELDS}
    if objective == ATTAINMENT:
        needs = judged(context.instance, needs)
        count = len(needs.arrivals)
        missed = count - min(count, most_in_time(needs, claim, budget))
        share = {"requests": count, "missed": missed, "value_ns": missed * NS_PER_S // count}
        return {**found, **share}
    late = within(needs, objective, claim["value_ns"] - 1)
    few = most_in_time(late, claim, budget) < rank_of(objective, len(needs.arrivals))
    return {**found, "value_ns": claim["value_ns"] if few else 0}
