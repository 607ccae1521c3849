"""A linear model in whole numbers, the one form that writers load, and SCIP and CP-SAT solve."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

BINARY, INTEGER, CONTINUOUS = "B", "I", "C"


class Row(NamedTuple):
    """``least <= sum of coefficient * variable <= most``; None without a limit."""

    name: str
    columns: tuple[int, ...]
    coefficients: tuple[int, ...]
    least: int | None
    most: int | None


class LinearModel:
    """Variables with bounds, rows, and a sum to minimise. A variable of kind C may be fractional
    where some best solution has it whole; a back end of whole numbers takes it as integer."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.kinds: list[str] = []
        self.lower: list[int] = []
        self.upper: list[int] = []
        self.rows: list[Row] = []
        self.objective: tuple[tuple[int, int], ...] = ()  # pairs (column, coefficient)

    def add(self, name: str, kind: str, upper: int, lower: int = 0) -> int:
        """Add a variable and return its column."""
        self.names.append(name)
        self.kinds.append(kind)
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.names) - 1

    def row(
        self,
        name: str,
        terms: Iterable[tuple[int, int]],
        least: int | None = None,
        most: int | None = None,
    ) -> None:
        """Add a row from pairs (column, coefficient); coefficients of 0 are dropped."""
        kept = [(column, value) for column, value in terms if value]
        columns = tuple(column for column, _ in kept)
        self.rows.append(Row(name, columns, tuple(value for _, value in kept), least, most))

    def minimise(self, terms: Iterable[tuple[int, int]]) -> None:
        """Set the objective from pairs (column, coefficient); coefficients of 0 are dropped."""
        self.objective = tuple((column, value) for column, value in terms if value)

    def value(self, values: Sequence[int]) -> int:
        """Return the objective of whole values."""
        return sum(values[column] * coefficient for column, coefficient in self.objective)

    @property
    def objective_upper(self) -> int:
        """The largest value that the objective's coefficients and bounds of variables allow."""
        return sum(
            coefficient * (self.upper[column] if coefficient > 0 else self.lower[column])
            for column, coefficient in self.objective
        )

    @property
    def nonzeros(self) -> int:
        """Coefficients in all rows."""
        return sum(len(row.columns) for row in self.rows)

    def violation(self, values: list[int]) -> str | None:
        """Return what whole values violate, in exact arithmetic, or None."""
        for name, value, low, high in zip(self.names, values, self.lower, self.upper, strict=True):
            if not low <= value <= high:
                return f"{name} = {value} is outside {low}..{high}"
        for row in self.rows:
            total = sum(values[c] * a for c, a in zip(row.columns, row.coefficients, strict=True))
            if row.least is not None and total < row.least:
                return f"{row.name}: {total} < {row.least}"
            if row.most is not None and total > row.most:
                return f"{row.name}: {total} > {row.most}"
        return None


FEASIBILITY_TOLERANCE = 1e-6
"""SCIP's default: how far a variable may be from a whole number, and a row from its side."""


def load_scip(model: LinearModel, name: str) -> tuple[Any, list[Any]]:
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
    """Return how far, in units, the objective of a solution that SCIP accepts may be off. Times are
    sums of coefficients times 0-1 and integer variables, each of which may be off by
    ``FEASIBILITY_TOLERANCE``; the coefficients that count add up to at most the horizon."""
    return FEASIBILITY_TOLERANCE * max(1, horizon)


def _scip_is_exact(model: LinearModel) -> bool:
    """Whether the tolerance is below a unit, so that whole objectives are told apart."""
    return tolerance(model.objective_upper) < 1


def _solve_scip(
    model: LinearModel,
    hint: list[int] | None,
    end: float | None,
    seed: int,
    on_solution: Callable[[Sequence[float], int], None],
    on_bound: Callable[[int], None],
) -> dict[str, Any]:
    """Solve a model on one thread; ``end`` is a time of the monotonic clock. The objective is whole
    in every schedule, so a bound is rounded up after SCIP's tolerance is taken off."""
    scip, variables = load_scip(model, "full-mip")
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
        "exact": _scip_is_exact(model),
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


def cp_model() -> Any:
    """Return CP-SAT's module; ``MissingDependencyError`` without OR-Tools."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise unavailable(error, "CP-SAT is missing: pip install ortools") from None
    return cp_model


def load_cpsat(model: LinearModel) -> tuple[Any, list[Any]]:
    """Return a CP-SAT model and its variables in the order of the columns."""
    module = cp_model()
    cp = module.CpModel()
    columns = zip(model.names, model.lower, model.upper, strict=True)
    variables = [cp.new_int_var(low, high, name) for name, low, high in columns]
    for row in model.rows:
        inside = [variables[column] for column in row.columns]
        total = module.LinearExpr.weighted_sum(inside, list(row.coefficients))
        low = module.INT_MIN if row.least is None else row.least
        high = module.INT_MAX if row.most is None else row.most
        cp.add_linear_constraint(total, low, high)
    aim = [variables[column] for column, _ in model.objective]
    weights = [value for _, value in model.objective]
    cp.minimize(module.LinearExpr.weighted_sum(aim, weights))
    return cp, variables


def _solve_cpsat(
    model: LinearModel,
    hint: list[int] | None,
    end: float | None,
    seed: int,
    on_solution: Callable[[Sequence[float], int], None],
    on_bound: Callable[[int], None],
) -> dict[str, Any]:
    """Solve a model on one thread; ``end`` is a time of the monotonic clock."""
    cp, variables = load_cpsat(model)
    if hint is not None:
        for variable, value in zip(variables, hint, strict=True):
            cp.add_hint(variable, value)

    def read(value: Callable[[Any], int], objective: int) -> None:
        on_solution([value(variable) for variable in variables], objective)

    return search_cpsat(cp, end, seed, read, on_bound)


def search_cpsat(
    cp: Any,
    end: float | None,
    seed: int,
    on_solution: Callable[[Callable[[Any], int], int], None],
    on_bound: Callable[[int], None],
    **parameters: Any,
) -> dict[str, Any]:
    """Solve a model of CP-SAT's own; ``on_solution`` gets what reads a variable's value. Objective
    and bounds are whole: what CP-SAT reports as a float is rounded up from just below."""
    module = cp_model()
    solver = module.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # it would leave the default handler behind
    solver.parameters.random_seed = seed % 2**31
    if end is not None:
        solver.parameters.max_time_in_seconds = max(0.0, end - monotonic())
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)

    def report_bound(value: float) -> None:
        if math.isfinite(value):
            on_bound(math.ceil(value - 1e-6))

    class Incumbents(module.CpSolverSolutionCallback):  # type: ignore[misc,name-defined]
        def on_solution_callback(self) -> None:
            on_solution(self.value, round(self.objective_value))

    solver.best_bound_callback = report_bound
    status = solver.solve(cp, Incumbents())
    if status in (module.OPTIMAL, module.FEASIBLE):
        report_bound(solver.best_objective_bound)
    names = {module.OPTIMAL: "optimal", module.INFEASIBLE: "infeasible"}
    return {
        "status": names.get(status, "limit"),
        "exact": True,
        "nodes": int(solver.num_branches),
        "presolve_s": 0.0,
    }


class Backend(NamedTuple):
    """A solver of linear models. ``solve``: takes a model, a hint or None, when to end on the
    monotonic clock or None, a seed, and what hears of solutions and bounds; returns figures."""

    is_exact: Callable[[LinearModel], bool]  # whether whole objectives are told apart
    solve: Callable[..., dict[str, Any]]


BACKENDS = {
    "scip": Backend(_scip_is_exact, _solve_scip),
    "cpsat": Backend(lambda _: True, _solve_cpsat),
}
