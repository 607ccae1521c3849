"""Lower bounds on weighted mean tardiness and maximum lateness: those of some of the requests.

Which requests: for lateness, those due by a moment and released at or after another; for tardiness,
those that would be late by some amount alone, or early by less (``orsched.checker.due_bounds``).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.in_time import Jobs, costs_of, starts_of
from orsched.checker.due_bounds import Due, inner_objective, parts_hold
from orsched.common.units import NS_PER_S
from orsched.metrics.objective_values import MAX_LATENESS
from orsched.models.bounds.in_time_bound import glop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from orsched.certificates.context import Context
    from orsched.data.instance import Instance

PARTS = (1.0, 0.75, 0.5, 0.9, 0.3, 0.15, 0.05)
"""Shares of the requests that are tried: those with the least slack, or the first due dates."""


def due_certificates(
    context: Context,
    objective: str,
    prove: Callable[[Instance, str], dict[str, Any]],
    out_of_time: Callable[[], bool],
) -> Iterator[dict[str, Any]]:
    """Yield certificates of lower bounds on tardiness or lateness, each above the last.

    Args:
        context: of the instance, prompts without what a cache may hold.
        objective: ``weighted_tardiness_mean`` or ``lateness_max``.
        prove: returns a bound on an objective of a part of the instance, as in a schedule file.
        out_of_time: asked before each candidate but the first.
    """
    due = Due(context)
    best = due.certificate({"bound": "arrivals", "objective": objective})
    yield best
    if not context.has_floors:
        return
    choices = _late(due) if objective == MAX_LATENESS else _tardy(due)
    if not parts_hold(context.instance):
        choices = islice(choices, 1)  # each request alone
    for choice in choices:
        if out_of_time():
            return
        claim = {"objective": objective, **choice}
        places = due.places(claim)
        if len(places):
            claim["inner"] = prove(due.part(places), inner_objective(objective))
        found = due.certificate(claim)
        if found["value_ns"] > best["value_ns"]:
            best = found
            yield best
    if objective == MAX_LATENESS or out_of_time():
        return
    try:
        jobs = due.jobs()
    except ValueError:  # requests may leave their clients
        return
    claim = {"bound": "starts", "objective": objective, **start_prices(jobs, out_of_time)}
    found = due.certificate(claim)
    if found["value_ns"] > best["value_ns"]:
        yield found


WINDOWS, ROUNDS, ENOUGH = 64, 100, 0.002
"""Windows of time, times that starts are added, and the gap at which no more are."""

_ONE = 2**20


def start_prices(jobs: Jobs, out_of_time: Callable[[], bool]) -> dict[str, Any]:
    """Return moments, and prices of a client's time from each to the next that prove much: duals of
    a linear program over starts, of which the cheapest are added as long as there are new ones."""
    last = int(jobs.arrivals.max() + jobs.alone.sum() // jobs.clients + jobs.alone.max()) + 1
    moments = np.unique(np.linspace(0, last, WINDOWS).astype(np.int64))
    starts, lengths = starts_of(jobs, moments), np.diff(moments) / NS_PER_S
    program = _Starts(jobs, starts, moments)
    free = np.zeros(len(moments))

    def proven(prices: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        costs = costs_of(jobs, starts, moments, prices, 1.0) / NS_PER_S
        worth = jobs.clients * float(prices[:-1] @ lengths)
        return float(costs.min(axis=1).sum()) - worth, costs.argmin(axis=1)

    best, center = -1.0, free
    program.add(starts.argmax(axis=1))  # after all windows, where nothing is scarce
    for _ in range(ROUNDS):
        solved = program.solved()
        if solved is None or out_of_time() or solved[0] - best <= ENOUGH * solved[0]:
            break
        new = False
        for share in (0.4, 1.0):
            prices = center + share * (np.append(solved[1], 0.0) - center)
            value, at = proven(prices)
            new |= program.add(at)
            if value > best:
                best, center = value, prices
        if not new:
            break
    held = [round(price * _ONE) for price in center.tolist()]
    return {"moments": moments.tolist(), "held": held, "one": _ONE}


class _Starts:
    """The linear program of the starts that are known, in seconds."""

    def __init__(self, jobs: Jobs, starts: NDArray[Any], moments: NDArray[Any]) -> None:
        self.jobs, self.starts, self.moments = jobs, starts, moments
        self.solver, self.known = glop(), set[tuple[int, int]]()
        rooms = (jobs.clients * np.diff(moments) / NS_PER_S).tolist()
        self.once = [self.solver.Constraint(1.0, float("inf")) for _ in jobs.alone]
        self.rooms = [self.solver.Constraint(-float("inf"), room) for room in rooms]
        self.objective = self.solver.Objective()
        self.objective.SetMinimization()

    def add(self, places: NDArray[Any]) -> bool:
        """Add a start of each request by its place; return whether one is new."""
        before, jobs = len(self.known), self.jobs
        for row, place in enumerate(places.tolist()):
            start = int(self.starts[row, place])
            if (row, start) in self.known:
                continue
            self.known.add((row, start))
            end = start + int(jobs.alone[row])
            late = max(0, end - int(jobs.due[row])) * int(jobs.weights[row])
            column = self.solver.NumVar(0.0, float("inf"), "")
            self.objective.SetCoefficient(column, late / NS_PER_S)
            self.once[row].SetCoefficient(column, 1.0)
            inside = np.minimum(self.moments[1:], end) - np.maximum(self.moments[:-1], start)
            for window in np.flatnonzero(inside > 0).tolist():
                self.rooms[window].SetCoefficient(column, float(inside[window]) / NS_PER_S)
        return len(self.known) > before

    def solved(self) -> tuple[float, NDArray[Any]] | None:
        """Return the least lateness, and the duals; None where the solver fails."""
        if self.solver.Solve() != self.solver.OPTIMAL:
            return None
        prices = np.array([-row.dual_value() for row in self.rooms])
        return self.objective.Value(), np.maximum(0, prices)


def _tardy(due: Due) -> Iterator[dict[str, Any]]:
    """Yield choices for tardiness: nothing together, then those that are late the most."""
    yield {"bound": "tardy"}
    late = np.sort(due.late[due.dates.weights > 0])[::-1]
    for part in PARTS:
        yield {"bound": "tardy", "late_ns": int(late[max(0, round(part * len(late)) - 1)])}


def _late(due: Due) -> Iterator[dict[str, Any]]:
    """Yield choices for lateness: the one that is late the most alone, then the first due dates."""
    yield {"bound": "late"}
    first, dates = int(due.arrivals.min()), np.sort(due.dates.due_ns)
    for part in PARTS:
        moment = int(dates[max(0, round(part * len(dates)) - 1)])
        yield {"bound": "late", "released_ns": first, "due_ns": moment}
