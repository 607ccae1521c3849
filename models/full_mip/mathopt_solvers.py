"""The solvers that MathOpt reaches, in a child process that streams; and its models read back."""

from __future__ import annotations

import math
import os
import re
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, MissingDependencyError, OrschedError, unavailable
from orsched.common.scalars import require_one_of
from orsched.models.full_mip.linear_solvers import BINARY, CONTINUOUS, INTEGER, LinearModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

SOLVERS = {"scip": "GSCIP", "highs": "HIGHS", "cpsat": "CP_SAT", "gurobi": "GUROBI"}
"""Our names of solvers, and MathOpt's."""

_RELAXED_BY = {"glop": "GLOP"}
"""Solvers of linear programs only."""

_EVENTS = {
    "scip": ("MIP_SOLUTION", "MIP_NODE"),
    "cpsat": ("MIP_SOLUTION", "MIP"),
    "gurobi": ("MIP_SOLUTION", "MIP"),
}
"""Events at which a solver calls back; HiGHS does not, and its log is read."""

_HIGHS_LINE = re.compile(r"^ ?[A-Za-z]? +\d+ +\d+ +\d+ +[\d.]+% +(\S+) +(\S+) +\S+ ")
_LARGEST_COLUMN = 2.0**53


def mathopt() -> Any:
    """Return the module, or say what to install."""
    try:
        from ortools.math_opt.python import mathopt as module
    except ImportError as error:
        raise unavailable(error, "MathOpt is missing: pip install ortools") from None
    return module


def available_solvers() -> tuple[str, ...]:
    """Return the solvers that solve here, by trying each on a model of one variable."""
    mo, found = mathopt(), []
    for name in SOLVERS:
        model = mo.Model()
        model.minimize(model.add_binary_variable(name="x"))
        try:
            _solve(name, model, mo.SolveParameters())
        except OrschedError:
            continue
        found.append(name)
    return tuple(found)


class Job(NamedTuple):
    """A model on its way to the child: ``model`` and ``parameters`` as serialized protos."""

    solver: str  # our name
    model: bytes
    parameters: bytes
    hint: dict[int, float]  # variable id -> value
    whole: tuple[int, ...]  # ids of variables that a solver of whole numbers takes as integer
    seconds: float | None  # the solver's time limit, or None


def run_job(job: Job, send: Callable[[tuple[str, Any]], None]) -> bytes:
    """Solve in this process and return MathOpt's result as bytes. Messages are ``("bound", value)``
    and ``("solution", (objective, {id: value}))``."""
    from ortools.math_opt import model_pb2, parameters_pb2

    mo = mathopt()
    model = mo.Model.from_model_proto(model_pb2.ModelProto.FromString(job.model))
    proto = parameters_pb2.SolveParametersProto.FromString(job.parameters)
    if job.solver == "cpsat":
        for place in job.whole:
            model.get_variable(place).integer = True
        if not proto.cp_sat.HasField("mip_max_bound"):
            proto.cp_sat.mip_max_bound = _LARGEST_COLUMN  # beyond its default it would cut bounds
    parameters = _parameters(mo, proto, job.seconds)
    hints = []
    if job.hint:
        start = {model.get_variable(place): value for place, value in job.hint.items()}
        hints.append(mo.SolutionHint(variable_values=start))
    asked = mo.ModelSolveParameters(solution_hints=hints)
    found = _solve(job.solver, model, parameters, model_params=asked, **_listening(job, mo, send))
    answer: bytes = found.to_proto().SerializeToString()
    return answer


def _parameters(mo: Any, proto: Any, seconds: float | None) -> Any:
    """Return parameters with the shorter of the two time limits."""
    if seconds is not None:
        given = proto.time_limit.ToTimedelta().total_seconds() or math.inf
        proto.time_limit.FromTimedelta(timedelta(seconds=max(1e-3, min(given, seconds))))
    return _Given(proto)


class _Given:
    """Parameters as a proto; MathOpt asks its own object for nothing else."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto

    def to_proto(self) -> Any:
        """Return the proto."""
        return self.proto


def _listening(job: Job, mo: Any, send: Callable[[tuple[str, Any]], None]) -> dict[str, Any]:
    """Return the arguments of ``solve`` that stream incumbents and bounds."""
    best = [-math.inf]

    def bound(value: float | None) -> None:
        if value is not None and math.isfinite(value) and value != best[0]:
            best[0] = value
            send(("bound", value))

    if job.solver not in _EVENTS:
        return {"msg_cb": _reader(bound, send)}

    def called(data: Any) -> Any:
        bound(data.mip_stats.dual_bound)
        if data.event == mo.Event.MIP_SOLUTION and data.solution is not None:
            send(("solution", {v.id: value for v, value in data.solution.items()}))
        return mo.CallbackResult()

    wanted = mo.CallbackRegistration(
        events={mo.Event[name] for name in _EVENTS[job.solver]},
        mip_node_filter=mo.VariableFilter(filtered_items=[]),
    )
    return {"callback_reg": wanted, "cb": called}


def _reader(
    bound: Callable[[float | None], None], send: Callable[[tuple[str, Any]], None]
) -> Callable[[Sequence[str]], None]:
    """Return what reads bounds and objectives from lines of HiGHS's log."""

    def read(lines: Sequence[str]) -> None:
        for line in lines:
            found = _HIGHS_LINE.match(line)
            if not found:
                continue
            low, best = (float(text) for text in found.groups())
            bound(low)
            if math.isfinite(best):
                send(("objective", best))

    return read


def _solve(solver: str, model: Any, parameters: Any, **options: Any) -> Any:
    """Call MathOpt; what it refuses is an error in our words."""
    mo = mathopt()
    kind = mo.SolverType[(SOLVERS | _RELAXED_BY)[solver]]
    try:
        with _quiet(solver == "scip" and "cb" in options):
            return mo.solve(model, kind, params=parameters, **options)
    except AttributeError as error:  # ortools 9.15 has no exception of its own for some statuses
        why = str(error.__context__ or error)
    except (RuntimeError, ValueError) as error:
        why = str(error)
    if solver == "gurobi":
        raise MissingDependencyError(
            f"Gurobi cannot be used here: {why}; it needs its library (GUROBI_HOME) and a licence"
        )
    raise InputError(
        f"{solver} refused the model: {why}", field="solver", remedy="change it, or the parameters"
    )


@contextmanager
def _quiet(wanted: bool) -> Iterator[None]:
    """Send what C code writes on standard error away, in the child: SCIP in ortools 9.15 says there
    at each callback that an event of variables is not caught; yet solutions and nodes arrive."""
    if not wanted:
        yield
        return
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


GRACE_S = 2.0  # what a solver may take beyond its time limit until its process is ended


def parsed(model: Any, answer: bytes) -> Any:
    """Return MathOpt's result of a model from what ``run_job`` returns."""
    from ortools.math_opt import result_pb2

    return mathopt().parse_solve_result(result_pb2.SolveResultProto.FromString(answer), model)


def name_of(part: Any, what: str = "variable") -> str:
    """Return the name of a variable, or of a row, or what stands for it."""
    return part.name or f"{what} {part.id}"


def require_solver(name: str) -> None:
    """Raise ``InputError`` unless the name is one of ``SOLVERS``."""
    require_one_of(name, "solver", SOLVERS)


_ELSEWHERE = (
    "quadratic_constraints", "second_order_cone_constraints", "sos1_constraints",
    "sos2_constraints", "indicator_constraints", "auxiliary_objectives",
)  # fmt: skip


_OTHERWISE_READ = re.compile(
    "([0-9].*|e[0-9]+|constant|objective|min(imi[sz]e|imum)?|max(imi[sz]e|imum)?|st|subject|such|to|"
    "that|bounds?|free|inf(inity)?|nan|gen(erals?)?|int(egers?)?|bin(ar(y|ies))?|semis?|sos[12]?|"
    "end|name|rows|columns|rhs|ranges?|marker|endata)",
    re.IGNORECASE,
)
"""Names that a reader of files takes for a number, a keyword, or a name that each file has."""


class Changed(NamedTuple):
    """A changed model."""

    model: LinearModel  # columns, rows and objective; what is not whole is a float
    constant: float  # what the objective has beside its terms
    negated: bool  # whether the model maximises, and ``model`` minimises the negative


def changed_model(model: Any) -> Changed:
    """Return a MathOpt model as a linear model. A variable or row without a name, or with one that
    files cannot have, gets one that they can. Raises ``InputError`` for what is not linear."""
    proto = model.export_model()
    curved = len(proto.objective.quadratic_coefficients.coefficients) > 0
    if curved or any(len(getattr(proto, name, ())) for name in _ELSEWHERE):
        raise InputError(
            "the model has more than linear rows and one linear objective",
            field="model",
            remedy="write it with mip.model.export_model(), or take those parts out",
        )
    found, columns = LinearModel(), proto.variables
    names = _usable(columns.names, columns.ids, "variable")
    for place, name in enumerate(names):
        low, high = columns.lower_bounds[place], columns.upper_bounds[place]
        kind = CONTINUOUS if not columns.integers[place] else INTEGER
        kind = BINARY if kind == INTEGER and (low, high) == (0, 1) else kind
        found.add(name, kind, _number(high), _number(low))
    place_of = {column: place for place, column in enumerate(columns.ids)}
    rows, matrix = proto.linear_constraints, proto.linear_constraint_matrix
    terms: dict[int, list[tuple[int, int]]] = {row: [] for row in rows.ids}
    entries = zip(matrix.row_ids, matrix.column_ids, matrix.coefficients, strict=True)
    for row, column, value in entries:
        terms[row].append((place_of[column], _number(value)))
    names = _usable(rows.names, rows.ids, "row")
    for name, row, low, high in zip(
        names, rows.ids, rows.lower_bounds, rows.upper_bounds, strict=True
    ):
        sides = [None if math.isinf(side) else _number(side) for side in (low, high)]
        found.row(name, terms[row], *sides)
    aim = proto.objective
    sign = -1 if aim.maximize else 1
    pairs = zip(aim.linear_coefficients.ids, aim.linear_coefficients.values, strict=True)
    found.minimise((place_of[column], _number(sign * value)) for column, value in pairs)
    return Changed(found, _number(sign * aim.offset), aim.maximize)


def _number(value: float) -> Any:
    """Return a number as an int if it is whole, so that files print it as one."""
    if math.isnan(value):
        raise InputError(
            "a bound or coefficient of the model is not a number",
            field="model",
            remedy="find the variable or row that holds nan, and give it a number",
        )
    return int(value) if value.is_integer() else value


def _usable(names: Iterable[str], ids: Iterable[int], what: str) -> list[str]:
    """Return names as files can have them, all different."""
    found: dict[str, None] = {}
    for name, number in zip(list(names) or [""] * len(list(ids)), ids, strict=True):
        plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)[:200]
        if not plain or _OTHERWISE_READ.fullmatch(plain):
            plain = f"{what}_{plain or number}"
        while plain in found:
            plain = f"{plain}_{number}"
        found[plain] = None
    return list(found)
