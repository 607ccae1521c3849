"""Runs of a solver on a model of the full MIP, in a child process; what is known when it ends."""

from __future__ import annotations

from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import OrschedError
from orsched.models.full_mip.formulation import FullMip
from orsched.models.full_mip.latency_mip import LatencyMip
from orsched.models.full_mip.result import FullMipResult
from orsched.models.full_mip.search import Answer, Search
from orsched.models.full_mip.windows_mip import WindowsMip
from orsched.models.killable_call import ChildOutcome, run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from orsched.models.full_mip.aim import Terms
    from orsched.models.full_mip.plan import Plan
    from orsched.models.full_mip.problem import Problem
    from orsched.models.full_mip.result import Termination
    from orsched.models.full_mip.size import Size

_FOREVER_S = 1e9
"""Longer time limits are none: not every solver and clock takes them."""


def result_of(
    search: Search, model: ModelSpec, reason: str, size: Size, refusal: str, end: float | None
) -> FullMipResult:
    """Run the solver, unless the model is refused, and return what is known then."""
    started = perf_counter()
    answer = run(search, model, refusal, end)
    ended = perf_counter()
    return FullMipResult(
        search.schedule,
        search.proven_bound(answer),
        search.status(answer),
        answer.termination,
        model.stages,
        reason,
        size,
        search.start_accepted,
        {
            "start": started - search.begin,
            "solve": ended - started,
            "total": perf_counter() - search.begin,
        },
        answer.solver,
        (*search.notes, *answer.notes),
        history=tuple(search.history),
        schedules=search.schedules(answer),
    )


class ModelSpec(NamedTuple):
    """Which model to build and how to solve it; ``terms`` are those of ``LatencyMip``."""

    backend: str
    stages: int
    formulation: str
    symmetry_breaking: bool
    seed: int
    terms: Terms | None = None
    first_in_round: bool = False
    least: int | None = None


def end_of(begin: float, time_limit: float | None) -> float | None:
    """Return when a search ends that began at a time, or None where it has no limit."""
    return None if time_limit is None or time_limit > _FOREVER_S else begin + time_limit


def refusal_of(size: Size, max_nonzeros: int) -> str:
    """Return why a model is not built, with its estimated size, or "" where it is."""
    if size.nonzeros <= max_nonzeros:
        return ""
    return (
        f"the model would have {size.variables:,} variables, {size.rows:,} rows and "
        f"{size.nonzeros:,} nonzeros, more than the {max_nonzeros:,} that are built: the answer "
        "is the schedule that it would have started from"
    )


def run(search: Search, model: ModelSpec, refusal: str, end: float | None) -> Answer:
    """Solve in a child process, unless there is nothing left to solve."""
    value = search.value
    if value is not None and value == search.lower_ns:
        return Answer("finished", "", {}, ("the first schedule meets the bound",))
    if search.interrupted:
        return Answer("interrupted", "", {})
    if search.done:
        return Answer("stopped", "", {})
    if refusal:
        return Answer("too_large", "", {}, (refusal,))
    left = None if end is None else end - perf_counter()
    soft = None
    if left is not None:
        left = max(0.0, left - min(0.05, 0.1 * left))  # for the answer's way back
        soft = monotonic() + max(0.0, left - min(0.2, 0.1 * left))
    search.start_ns = value
    payload = (search.problem, model, search.plan, soft)
    outcome = run_in_child(solve_here, payload, left, search.on_message)
    return _answer(search, outcome)


def _answer(search: Search, outcome: ChildOutcome) -> Answer:
    if outcome.reason != "finished":
        termination: dict[str, Termination] = {
            "deadline": "time_limit",
            "interrupted": "interrupted",
            "died": "died",
            "stopped": "finished" if search.done else "stopped",
        }
        notes = (outcome.detail,) if outcome.detail else ()
        return Answer(termination[outcome.reason], "", {}, notes)
    figures = dict(outcome.value)
    solved, exact = figures.pop("status"), figures.pop("exact")
    if solved == "limit":
        return Answer("time_limit", solved, figures)
    if solved == "optimal" and exact and search.own_ns != search.objective_ns:
        raise OrschedError(
            f"the solver proved {search.objective_ns}, its schedule takes {search.own_ns}: a bug"
        )
    if solved == "infeasible" and search.proven:
        raise OrschedError("the solver found no schedule where there must be one: a bug")
    notes = ()
    if solved == "optimal" and not exact:
        notes = ("optimal within the solver's tolerance of a millionth; cpsat proves it exactly",)
    return Answer("finished", solved, figures, notes)


def solve_here(
    payload: tuple[Problem, ModelSpec, Plan | None, float | None],
    send: Callable[[tuple[str, Any]], None],
) -> dict[str, Any]:
    """Build and solve the model in this process; ``send`` gets solutions and bounds.

    Messages are ``("solution", (objective, plan, exact))`` and ``("bound", objective)``, in units.
    """
    problem, spec, start, end = payload
    model: FullMip | WindowsMip | LatencyMip
    if spec.terms is not None:
        model = LatencyMip(
            problem, spec.stages, spec.terms, spec.first_in_round, spec.symmetry_breaking
        )
        if spec.least is not None:
            model.at_least(spec.least)
    elif spec.formulation == "windows":
        model = WindowsMip(problem, spec.stages, spec.symmetry_breaking)
    else:
        model = FullMip(problem, spec.stages, spec.formulation, spec.symmetry_breaking)
    hint = None
    if start is not None:
        hint = model.values_of(start)
        wrong = model.model.violation(hint)
        if wrong is not None:
            raise OrschedError(f"the warm start violates the model, a bug in it: {wrong}")

    def on_solution(values: Sequence[float], objective: int) -> None:
        send(("solution", (objective, model.plan_of(values), backend.is_exact(model.model))))

    backend = load_backend(spec.backend)
    found: dict[str, Any] = backend.solve(
        model.model, hint, end, spec.seed, on_solution, lambda bound: send(("bound", bound))
    )
    return found


def load_backend(name: str) -> ModuleType:
    """Return the module of a back end: ``solve`` and ``is_exact``."""
    from importlib import import_module

    return import_module(f"orsched.models.full_mip.{name}_backend")
