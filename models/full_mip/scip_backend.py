"""The SCIP back end: loads a linear model, solves it, streams incumbents and bounds."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Any

from orsched.common.errors import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.models.full_mip.linear import LinearModel

FEASIBILITY_TOLERANCE = 1e-6
"""SCIP's default: how far a variable may be from a whole number, and a row from its side."""


def load(model: LinearModel, name: str) -> tuple[Any, list[Any]]:
    """Return a SCIP model and its variables in the order of the columns."""
    try:
        from pyscipopt import Model, quicksum
    except ImportError as error:
        raise unavailable(error, "SCIP is missing: pip install pyscipopt") from None
    scip = Model(name)
    scip.hideOutput()
    columns = zip(model.names, model.kinds, model.lower, model.upper, strict=True)
    variables = [scip.addVar(n, vtype=kind, lb=low, ub=high) for n, kind, low, high in columns]
    for row in model.rows:
        terms = zip(row.columns, row.coefficients, strict=True)
        total = quicksum(value * variables[column] for column, value in terms)
        low = -scip.infinity() if row.least is None else row.least
        high = scip.infinity() if row.most is None else row.most
        scip.addCons((total <= high) >= low, name=row.name)
    aim = quicksum(value * variables[column] for column, value in model.objective)
    scip.setObjective(aim, "minimize")
    return scip, variables


def tolerance(horizon: int) -> float:
    """Return how far, in units, the objective of a solution that SCIP accepts may be off.

    Times are sums of coefficients times 0-1 and integer variables, each of which may be off by
    ``FEASIBILITY_TOLERANCE``; the coefficients that count add up to at most the horizon.
    """
    return FEASIBILITY_TOLERANCE * max(1, horizon)


def is_exact(model: LinearModel) -> bool:
    """Whether the tolerance is below a unit, so that whole objectives are told apart."""
    return tolerance(model.objective_upper) < 1


def solve(
    model: LinearModel,
    hint: list[int] | None,
    end: float | None,
    seed: int,
    on_solution: Callable[[Sequence[float], int], None],
    on_bound: Callable[[int], None],
) -> dict[str, Any]:
    """Solve a model on one thread; ``end`` is a time of the monotonic clock.

    The objective is whole in every schedule, so a bound is rounded up after SCIP's tolerance is
    taken off.
    """
    scip, variables = load(model, "full-mip")
    off = tolerance(model.objective_upper)
    if hint is not None:
        start = scip.createSol()
        for variable, value in zip(variables, hint, strict=True):
            scip.setSolVal(start, variable, value)
        scip.addSol(start)
    if end is not None:
        scip.setParam("limits/time", max(0.0, end - monotonic()))
    scip.setParam("randomization/randomseedshift", seed % 2**31)
    scip.setParam("parallel/maxnthreads", 1)
    scip.setParam("misc/catchctrlc", False)
    best = [math.inf, -math.inf]

    def on_incumbent(of: Any) -> None:
        found = of.getBestSol()
        value = of.getSolObjVal(found)
        if value < best[0]:
            best[0] = value
            whole = math.ceil(value - off)
            on_solution([of.getSolVal(found, variable) for variable in variables], whole)

    def on_dual(of: Any) -> None:
        value = of.getDualbound()
        if abs(value) < of.infinity() and value > best[1]:
            best[1] = value
            on_bound(math.ceil(value - off))

    _watch(scip, on_incumbent, on_dual)
    scip.optimizeNogil()
    if scip.getNSols():
        on_incumbent(scip)
    if scip.getStatus() != "infeasible":
        on_dual(scip)
    status = {"optimal": "optimal", "infeasible": "infeasible"}.get(scip.getStatus(), "limit")
    nodes, presolved = int(scip.getNTotalNodes()), float(scip.getPresolvingTime())
    return {
        "status": status,
        "exact": is_exact(model),
        "nodes": nodes,
        "presolve_s": presolved,
    }


def _watch(scip: Any, on_incumbent: Callable[[Any], None], on_dual: Callable[[Any], None]) -> None:
    """Have SCIP call back on new incumbents and better bounds."""
    from pyscipopt import Eventhdlr
    from pyscipopt.scip import PY_SCIP_EVENTTYPE as EventType

    incumbent, dual = EventType.BESTSOLFOUND, EventType.DUALBOUNDIMPROVED

    class Watcher(Eventhdlr):
        def eventinit(self) -> None:
            self.model.catchEvent(incumbent, self)
            self.model.catchEvent(dual, self)

        def eventexit(self) -> None:
            self.model.dropEvent(incumbent, self)
            self.model.dropEvent(dual, self)

        def eventexec(self, event: Any) -> None:
            if event.getType() == incumbent:
                on_incumbent(self.model)
            else:
                on_dual(self.model)

    scip.includeEventhdlr(Watcher(), "progress", "streams incumbents and bounds")
