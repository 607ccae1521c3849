"""The linear relaxation of a program: its value, and what each row and variable is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from orsched.common.columns import frame
from orsched.common.errors import InputError, TimeLimitError
from orsched.common.scalars import require_one_of
from orsched.common.stop import MaxRuntime
from orsched.models.full_mip.mathopt_solvers import GRACE_S, Job, mathopt, name_of, parsed, run_job
from orsched.models.killable_call import run_in_child

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


@dataclass(frozen=True)
class Relaxation:
    """The optimum of a program whose variables need not be whole.

    Attributes:
        value: of the objective, in the model's units: no solution of whole numbers is better.
        values: value of each variable by its name.
        reduced_costs: by variable: how much the value changes with a unit of it, others re-chosen.
        duals: by row: how much the value changes with a unit of the row's side.
        activities: by row: its left side at these values.
    """

    value: float
    values: Mapping[str, float] = field(repr=False)
    reduced_costs: Mapping[str, float] = field(repr=False)
    duals: Mapping[str, float] = field(repr=False)
    activities: Mapping[str, float] = field(repr=False)

    def to_pandas(self, of: Literal["rows", "variables"] = "rows") -> pd.DataFrame:
        """Return a data frame with a line for each row (``row, activity, dual``) or each variable
        (``variable, value, reduced_cost``)."""
        require_one_of(of, "of", ("rows", "variables"))
        if of == "rows":
            columns = {"row": self.duals, "activity": self.activities.values()}
            return frame({**columns, "dual": self.duals.values()})
        columns = {"variable": self.values, "value": self.values.values()}
        return frame({**columns, "reduced_cost": self.reduced_costs.values()})


def relaxed(model: Any, time_limit: float | None = None) -> Relaxation:
    """Return the linear relaxation of a MathOpt model as it is now, solved by GLOP in a child.

    Raises ``InputError`` where it has no optimum, ``TimeLimitError`` where time ends before.
    """
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates
    mo = mathopt()
    proto = model.export_model()
    proto.variables.integers[:] = [False] * len(proto.variables.ids)
    parameters = mo.SolveParameters().to_proto().SerializeToString()
    job = Job("glop", proto.SerializeToString(), parameters, {}, (), time_limit)
    left = None if time_limit is None else time_limit + GRACE_S
    outcome = run_in_child(run_job, job, left, lambda message: False)
    if outcome.reason == "interrupted":
        raise KeyboardInterrupt
    if outcome.reason != "finished":
        raise TimeLimitError("the relaxation was not solved in time")
    found = parsed(model, outcome.value)
    reason = found.termination.reason.name
    if reason != "OPTIMAL":
        if found.termination.limit is not None:
            raise TimeLimitError("the relaxation was not solved in time")
        raise InputError(
            f"the relaxation has no optimum: {reason.lower().replace('_', ' ')}",
            field="model",
            remedy="take back changes of the model: rows that exclude each other, or no bound",
        )
    values, reduced = found.variable_values(), found.reduced_costs()
    duals, rows = found.dual_values(), list(model.linear_constraints())
    sums = {row: row.as_bounded_linear_expression().expression for row in rows}
    activities = {row: mo.evaluate_expression(sums[row], values) for row in rows}
    columns = {name_of(column): column for column in model.variables()}
    named = {name_of(row, "row"): row for row in rows}
    return Relaxation(
        float(found.objective_value()),
        {name: _plain(values[column]) for name, column in columns.items()},
        {name: _plain(reduced[column]) for name, column in columns.items()},
        {name: _plain(duals[row]) for name, row in named.items()},
        {name: _plain(activities[row]) for name, row in named.items()},
    )


def _plain(value: float) -> float:
    return value + 0.0 if math.isfinite(value) else math.nan
