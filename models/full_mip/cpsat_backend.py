"""The CP-SAT back end: the same linear model in whole numbers throughout."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Any

from orsched.common.errors import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.models.full_mip.linear import LinearModel


def load(model: LinearModel) -> tuple[Any, list[Any]]:
    """Return a CP-SAT model and its variables in the order of the columns."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise unavailable(error, "CP-SAT is missing: pip install ortools") from None
    cp = cp_model.CpModel()
    columns = zip(model.names, model.lower, model.upper, strict=True)
    variables = [cp.new_int_var(low, high, name) for name, low, high in columns]
    for row in model.rows:
        inside = [variables[column] for column in row.columns]
        total = cp_model.LinearExpr.weighted_sum(inside, list(row.coefficients))
        low = cp_model.INT_MIN if row.least is None else row.least
        high = cp_model.INT_MAX if row.most is None else row.most
        cp.add_linear_constraint(total, low, high)
    aim = [variables[column] for column, _ in model.objective]
    weights = [value for _, value in model.objective]
    cp.minimize(cp_model.LinearExpr.weighted_sum(aim, weights))
    return cp, variables


def is_exact(model: LinearModel) -> bool:
    """Whether whole objectives are told apart: always, it counts in whole numbers."""
    return True


def solve(
    model: LinearModel,
    hint: list[int] | None,
    end: float | None,
    seed: int,
    on_solution: Callable[[Sequence[float], int], None],
    on_bound: Callable[[int], None],
) -> dict[str, Any]:
    """Solve a model on one thread; ``end`` is a time of the monotonic clock.

    The objective is a whole number and so is every bound: what CP-SAT reports as a float is
    rounded up from just below.
    """
    cp, variables = load(model)
    from ortools.sat.python import cp_model

    if hint is not None:
        for variable, value in zip(variables, hint, strict=True):
            cp.add_hint(variable, value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # it would leave the default handler behind
    solver.parameters.random_seed = seed % 2**31
    if end is not None:
        solver.parameters.max_time_in_seconds = max(0.0, end - monotonic())

    def report_bound(value: float) -> None:
        if math.isfinite(value):
            on_bound(math.ceil(value - 1e-6))

    class Incumbents(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            values = [self.value(variable) for variable in variables]
            on_solution(values, round(self.objective_value))

    solver.best_bound_callback = report_bound
    status = solver.solve(cp, Incumbents())
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        report_bound(solver.best_objective_bound)
    names = {cp_model.OPTIMAL: "optimal", cp_model.INFEASIBLE: "infeasible"}
    return {
        "status": names.get(status, "limit"),
        "exact": is_exact(model),
        "nodes": int(solver.num_branches),
        "presolve_s": 0.0,
    }
