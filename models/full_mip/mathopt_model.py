"""A program as a MathOpt model: named variables, rows to add, any solver, a schedule back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from orsched.common.columns import frame, whole_number
from orsched.common.errors import InputError, did_you_mean
from orsched.common.stop import MaxRuntime
from orsched.common.units import NS_PER_S
from orsched.data.schedule import as_schedule
from orsched.models.full_mip.formulation import relaxed
from orsched.models.full_mip.linear_solvers import CONTINUOUS, load_scip
from orsched.models.full_mip.mathopt_solvers import (
    GRACE_S,
    Job,
    changed_model,
    mathopt,
    name_of,
    parsed,
    require_solver,
    run_job,
)
from orsched.models.full_mip.model_files import write_model
from orsched.models.full_mip.programs import read_program
from orsched.models.killable_call import run_in_child

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import pandas as pd

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule, Scheduled
    from orsched.models.full_mip.formulation import Relaxation
    from orsched.models.full_mip.mathopt_solvers import Changed
    from orsched.models.full_mip.programs import Program
    from orsched.models.killable_call import ChildOutcome


MipStatus = Literal["optimal", "feasible", "infeasible", "unbounded", "unknown"]
MipTermination = Literal["finished", "limit", "stopped", "interrupted", "died"]


class MipStep(NamedTuple):
    """What is known at a moment of the search; a callback gets it, and the history keeps it.

    Attributes:
        elapsed_s: seconds since the call.
        objective: of the best solution so far, in the model's units, or None.
        bound: the solver's bound on the objective, or None.
    """

    elapsed_s: float
    objective: float | None
    bound: float | None


@dataclass(frozen=True)
class MipResult:
    """The answer of a solver.

    Attributes:
        status: ``optimal`` (within the solver's tolerance), ``feasible``, ``infeasible``,
            ``unbounded``, or ``unknown``: no solution yet.
        termination: ``finished``; ``limit`` of time or of the parameters; ``stopped`` by the
            callback; ``interrupted`` by Ctrl-C; ``died``: the solver's process ended.
        objective, bound: of the model as it was solved, in its units; None where there is none.
        values: value of each variable by its name, empty without a solution.
        schedule: what the values decide, carried out as early as possible and accepted by the
            checker; None without a solution.
        history: better objectives and bounds in time.
        seconds: of the call, building included.
        notes: remarks: rows that do not hold in the schedule, and the solver's own words.
        solver: its name.
        solver_result: MathOpt's own answer, where the solver came to one.
    """

    status: MipStatus
    termination: MipTermination
    objective: float | None
    bound: float | None
    values: Mapping[str, float]
    schedule: Schedule | None
    history: tuple[MipStep, ...]
    seconds: float = field(compare=False)
    solver: str = ""
    notes: tuple[str, ...] = ()
    solver_result: Any = field(default=None, compare=False)

    @property
    def gap(self) -> float | None:
        """``|objective - bound| / |objective|``, or None."""
        if self.objective is None or self.bound is None:
            return None
        difference = abs(self.objective - self.bound)
        return difference / abs(self.objective) if self.objective else (difference and None)

    @property
    def makespan(self) -> float | None:
        """Seconds of the schedule, None without one."""
        return None if self.schedule is None else self.schedule.makespan_ns / NS_PER_S

    def __repr__(self) -> str:
        end = "no schedule" if self.makespan is None else f"makespan {self.makespan:.4g} s"
        known = f"objective {self.objective}, bound {self.bound}"
        return f"MipResult of {self.solver}: {self.status} ({self.termination}), {end}, {known}"

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with a row for each variable: its name and its value."""
        return frame({"variable": self.values, "value": self.values.values()})


TOLERANCE = 1e-6  # how far a row may be from its side, relative to its size, as solvers have it


def build(instance: Instance, program: str = "full-mip", **options: Any) -> Mip:
    """Return a program as a model that can be changed and solved; options of ``read_program``.

    Raises as ``read_program`` does, and ``MissingDependencyError`` without OR-Tools.
    """
    return Mip(read_program(instance, program, **options))


def full_mip(instance: Instance, **options: Any) -> Mip:
    """Return Pang's full MIP, eq. (1)-(25), as a model to change, solve and write.

    >>> import orsched
    >>> mip = full_mip(orsched.load("two-by-two"))
    >>> mip.solve("cpsat").status
    'optimal'

    The page *The full MIP* has the rows and what was repaired; ``orsched.models.mip.build`` makes
    the other programs. Options are ``stages``, ``formulation``, ``symmetry_breaking`` and
    ``max_nonzeros`` of ``orsched.models.mip.read_program``, whose errors it raises.
    """
    return build(instance, "full-mip", **options)


class Mip:
    """A program in MathOpt.

    Attributes:
        model: ``ortools.math_opt.python.mathopt.Model``: add rows and variables, change bounds,
            replace the objective, with MathOpt's own methods.
        program: the program that it was built of, without later changes; ``program.legend`` has the
            names, ``program.to_ns`` makes nanoseconds of an objective.

    ``solve``, ``relax``, ``write`` and ``scip`` take the model as it is, with all changes.
    """

    def __init__(self, program: Program) -> None:
        mo = mathopt()
        self.program = replace(program, changed=self.changed)
        self.model = model = mo.Model(name=program.name)
        linear = program.model
        columns = zip(linear.names, linear.kinds, linear.lower, linear.upper, strict=True)
        self._columns = [
            model.add_variable(lb=low, ub=high, is_integer=kind != CONTINUOUS, name=name)
            for name, kind, low, high in columns
        ]
        for row in linear.rows:
            pairs = zip(row.columns, row.coefficients, strict=True)
            model.add_linear_constraint(
                lb=-math.inf if row.least is None else row.least,
                ub=math.inf if row.most is None else row.most,
                expr=mo.LinearSum(value * self._columns[column] for column, value in pairs),
                name=row.name,
            )
        self.own_objective = mo.LinearSum(v * self._columns[c] for c, v in linear.objective)
        model.minimize(self.own_objective)
        self._variables = {variable.name: variable for variable in self._columns}
        self._rows = {row.name: row for row in model.linear_constraints()}
        self._tracker = model.add_update_tracker()

    def variable(self, family: str, *indices: int) -> Any:
        """Return a variable by its name or its parts: ``p_3_0_1`` or ``"p", 3, 0, 1``."""
        return _of(self._variables, "variable", family, indices)

    def row(self, family: str, *indices: int) -> Any:
        """Return a row of the program by its name or its parts."""
        return _of(self._rows, "row", family, indices)

    def variables(self, family: str) -> dict[tuple[int, ...], Any]:
        """Return the variables of a family by their indices: ``variables("p")[3, 0, 1]``."""
        found = {}
        for name, variable in self._variables.items():
            head, *rest = name.split("_")
            if head == family and all(part.isdigit() for part in rest):
                found[tuple(map(int, rest))] = variable
        if not found:
            _of(self._variables, "family", family, ())
        return found

    def changed(self) -> Changed | None:
        """Return the model as it is now; None where nothing was changed since it was built."""
        if self._tracker.export_update() is None:
            return None
        return changed_model(self.model)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the model as it is now to a file ``.mps`` or ``.lp``; errors of ``write_model``."""
        write_model(self, path)

    def scip(self) -> Any:
        """Return the model as it is now as a ``pyscipopt.Model``, with the names of ``write``.

        >>> import orsched
        >>> len(orsched.full_mip(orsched.load("two-by-two")).scip().getVars())
        129

        Raises ``InputError`` where it is not linear, ``MissingDependencyError`` without SCIP.
        """
        found = changed_model(self.model)
        scip, _ = load_scip(found.model, self.program.name)
        total, sense = scip.getObjective() + found.constant, "minimize"
        if found.negated:
            total, sense = -1 * total, "maximize"
        scip.setObjective(total, sense)
        return scip

    def values_of(self, schedule: Scheduled) -> dict[Any, float]:
        """Return the values of the program's variables that stand for a valid schedule."""
        values = map(float, self.program.values_of(as_schedule(schedule)))
        return dict(zip(self._columns, values, strict=True))

    def solve(
        self,
        solver: str = "scip",
        *,
        time_limit: float | None = None,
        start: Scheduled | Mapping[Any, float] | None = None,
        seed: int = 0,
        parameters: Any = None,
        callback: Callable[[MipStep], object] | None = None,
    ) -> MipResult:
        """Solve the model as it is now, in a child process.

        Args:
            solver: ``scip``, ``highs``, ``cpsat``, or ``gurobi`` where it is licensed.
            time_limit: seconds for the solver.
            start: a schedule, or values by variable, for a warm start.
            seed: the solver's, unless the parameters have one.
            parameters: MathOpt's ``SolveParameters``; by default one thread.
            callback: called with each better objective or bound; returning True ends the search.

        The schedule of the result holds what the values decide, carried out as early as possible.

        Raises:
            InputError: an argument is wrong, or the solver refuses model or parameters.
            MissingDependencyError: the solver is not here.
        """
        begin = perf_counter()
        require_solver(solver)
        if time_limit is not None:
            MaxRuntime(time_limit)  # validates
        whole = tuple(
            variable.id
            for variable, kind in zip(self._columns, self.program.model.kinds, strict=True)
            if kind == CONTINUOUS and self.model.has_variable(variable.id)
        )
        job = Job(
            solver,
            self.model.export_model().SerializeToString(),
            _parameters(solver, parameters, whole_number(seed, "seed")).SerializeToString(),
            self._hint(start),
            whole,
            time_limit,
        )
        incumbent = Incumbent(self.model, callback, begin)
        left = None if time_limit is None else time_limit + GRACE_S
        outcome = run_in_child(run_job, job, left, incumbent.on_message)
        return answer_of(self, solver, outcome, incumbent)

    def relax(self, time_limit: float | None = None) -> Relaxation:
        """Solve the linear relaxation of the model as it is now: duals and reduced costs.

        >>> import orsched
        >>> mip = orsched.full_mip(orsched.load("two-by-two"))
        >>> mip.relax().value <= mip.solve("cpsat").objective
        True

        ``time_limit``: seconds; ``TimeLimitError`` where they end before. Raises ``InputError``
        where the relaxation has no optimum.
        """
        return relaxed(self.model, time_limit)

    def _hint(self, start: Scheduled | Mapping[Any, float] | None) -> dict[int, float]:
        if start is None:
            return {}
        values = start if isinstance(start, Mapping) else self.values_of(start)
        return {variable.id: value for variable, value in values.items()}

    def schedule_of(self, values: Mapping[str, float]) -> Schedule:
        """Return the checked schedule that values of the program's variables decide."""
        return self.program.schedule_of([values.get(v.name, 0.0) for v in self._columns])

    def __repr__(self) -> str:
        model = self.model
        return (
            f"Mip {self.program.name} of {self.program.instance.name!r}: "
            f"{model.get_num_variables():,} variables, {model.get_num_linear_constraints():,} rows"
        )


def _parameters(solver: str, given: Any, seed: int) -> Any:
    """Return the proto of the parameters, with one thread and the seed where none are given."""
    mo = mathopt()
    proto = (mo.SolveParameters() if given is None else given).to_proto()
    if not proto.HasField("threads") and solver != "highs":  # HiGHS is told by global settings
        proto.threads = 1
    if not proto.HasField("random_seed"):
        proto.random_seed = seed % 2**31
    return proto


def _of(known: dict[str, Any], what: str, family: str, indices: tuple[int, ...]) -> Any:
    name = "_".join([family, *map(str, indices)])
    if name not in known:
        raise InputError(
            f"unknown {what} {name!r}",
            field=what,
            remedy=did_you_mean(name, known) or "program.legend has the names",
        )
    return known[name]


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
        found = parsed(mip.model, outcome.value)
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
    values = {name_of(model.get_variable(place)): x for place, x in incumbent.values.items()}
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
    """Name rows that the schedule does not keep: it starts everything as early as it can. Only rows
    of the program's own variables are asked; others keep their values."""
    mo, model = mathopt(), mip.model
    carried = {variable: values[name_of(variable)] for variable in model.variables()}
    own = {v: x for v, x in mip.values_of(schedule).items() if model.has_variable(v.id)}
    carried |= own
    broken = []
    for row in model.linear_constraints():
        total = mo.evaluate_expression(row.as_bounded_linear_expression().expression, carried)
        slack = TOLERANCE * max(1.0, abs(total))
        if total < row.lower_bound - slack or total > row.upper_bound + slack:
            broken.append(name_of(row, "row"))
    if not broken:
        return []
    shown = ", ".join(broken[:5]) + (f" and {len(broken) - 5} more" if len(broken) > 5 else "")
    return [f"the schedule, carried out as early as possible, does not keep {shown}"]
