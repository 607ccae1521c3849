"""The incumbent of a researcher's model as it comes in, and the answer that is made of it."""

from __future__ import annotations

import math
from time import perf_counter
from typing import TYPE_CHECKING, Any

from orsched.models.mip.result import MipResult, MipStep
from orsched.models.mip.solvers import mathopt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orsched.models.killable_call import ChildOutcome
    from orsched.models.mip.build import Mip
    from orsched.models.mip.result import MipStatus, MipTermination
    from orsched.schedule import Schedule

TOLERANCE = 1e-6
"""How far a row may be from its side, relative to its size, as solvers have it."""


class Incumbent:
    """Values, objective and bound so far, and the history."""

    def __init__(
        self, model: Any, callback: Callable[[MipStep], object] | None, begin: float
    ) -> None:
        self.model, self.callback, self.begin = model, callback, begin
        self.largest = bool(model.objective.is_maximize)
        self.values: dict[int, float] = {}
        self.objective: float | None = None
        self.bound: float | None = None
        self.history: list[MipStep] = []

    def on_message(self, message: tuple[str, Any]) -> bool:
        """Take in a solution, an objective or a bound; True ends the search."""
        kind, value = message
        if kind == "bound":
            if not self.is_better_bound(value):
                return False
            self.bound = value
        else:
            objective = self.value(value) if kind == "solution" else value
            if not self.is_better(objective):
                return False
            self.objective = objective
            self.values = value if kind == "solution" else self.values
        step = MipStep(perf_counter() - self.begin, self.objective, self.bound)
        self.history.append(step)
        return self.callback is not None and self.callback(step) is True

    def value(self, values: dict[int, float]) -> float:
        """Return the objective of values by the ids of variables."""
        mo, model = mathopt(), self.model
        by_variable = {model.get_variable(place): value for place, value in values.items()}
        value: float = mo.evaluate_expression(model.objective.as_linear_expression(), by_variable)
        return value

    def is_better(self, objective: float) -> bool:
        """Return whether an objective is better than the best so far."""
        known = self.objective
        return known is None or (objective > known if self.largest else objective < known)

    def is_better_bound(self, bound: float) -> bool:
        """Return whether a bound is tighter than the best so far."""
        known = self.bound
        return known is None or (bound < known if self.largest else bound > known)


def answer_of(mip: Mip, solver: str, outcome: ChildOutcome, incumbent: Incumbent) -> MipResult:
    """Return the result of a solve, however it ended."""
    status: MipStatus = "unknown"
    termination: MipTermination = "finished"
    found, notes = None, []
    if outcome.reason == "finished":
        found = _parsed(mip.model, outcome.value)
        status, termination = _verdict(found)
        _take_last(incumbent, found)
        if found.termination.detail:
            notes.append(f"{solver}: {found.termination.detail}")
    else:
        ends: dict[str, MipTermination] = {
            "deadline": "limit",
            "stopped": "stopped",
            "interrupted": "interrupted",
            "died": "died",
        }
        termination = ends[outcome.reason]
        notes += [outcome.detail] if outcome.detail else []
    if status == "unknown" and incumbent.values:
        status = "feasible"
    model = mip.model
    values = {_name(model.get_variable(place)): x for place, x in incumbent.values.items()}
    schedule = mip.schedule_of(values) if values else None
    if schedule is not None:
        notes += _broken(mip, values, schedule)
    return MipResult(
        status,
        termination,
        incumbent.objective if values else None,
        incumbent.bound,
        values,
        schedule,
        tuple(incumbent.history),
        perf_counter() - incumbent.begin,
        solver,
        tuple(notes),
        found,
    )


def _name(variable: Any) -> str:
    """Return the name of a variable, or what stands for it."""
    return variable.name or f"variable {variable.id}"


def _parsed(model: Any, answer: bytes) -> Any:
    from ortools.math_opt import result_pb2

    return mathopt().parse_solve_result(result_pb2.SolveResultProto.FromString(answer), model)


def _verdict(found: Any) -> tuple[MipStatus, MipTermination]:
    reason = found.termination.reason.name
    if reason == "OPTIMAL":
        return "optimal", "finished"
    if reason == "INFEASIBLE":
        return "infeasible", "finished"
    if reason == "UNBOUNDED":
        return "unbounded", "finished"
    return "unknown", "limit" if found.termination.limit is not None else "finished"


def _take_last(incumbent: Incumbent, found: Any) -> None:
    """Take the last solution and bound: HiGHS sends no solutions before."""
    if found.has_primal_feasible_solution():
        values = {variable.id: value for variable, value in found.variable_values().items()}
        objective = incumbent.value(values)
        if not incumbent.values or not incumbent.on_message(("solution", values)):
            incumbent.values = values
            if incumbent.objective is None or incumbent.is_better(objective):
                incumbent.objective = objective  # the log's may differ from it in the last digit
    bound = found.termination.objective_bounds.dual_bound
    if math.isfinite(bound):
        incumbent.on_message(("bound", bound))


def _broken(mip: Mip, values: Mapping[str, float], schedule: Schedule) -> list[str]:
    """Name rows that the schedule does not keep: it starts everything as early as it can.

    Only rows of the program's own variables are asked; others keep their values.
    """
    mo, model = mathopt(), mip.model
    carried = {variable: values[_name(variable)] for variable in model.variables()}
    own = {v: x for v, x in mip.values_of(schedule).items() if model.has_variable(v.id)}
    carried |= own
    broken = []
    for row in model.linear_constraints():
        total = mo.evaluate_expression(row.as_bounded_linear_expression().expression, carried)
        slack = TOLERANCE * max(1.0, abs(total))
        if total < row.lower_bound - slack or total > row.upper_bound + slack:
            broken.append(row.name or f"row {row.id}")
    if not broken:
        return []
    shown = ", ".join(broken[:5]) + (f" and {len(broken) - 5} more" if len(broken) > 5 else "")
    return [f"the schedule, carried out as early as possible, does not keep {shown}"]
