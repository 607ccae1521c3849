"""The exact search: the full MIP in a child process, with incumbent and bound whatever stops it."""

from __future__ import annotations

from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.columns import whole_number
from orsched.errors import OrschedError, TimeLimitError
from orsched.models.bounds import bound
from orsched.models.full_mip.formulation import FORMULATIONS, FullMip
from orsched.models.full_mip.latency_mip import LatencyMip
from orsched.models.full_mip.plan import plan_of
from orsched.models.full_mip.problem import read_problem
from orsched.models.full_mip.result import FullMipResult
from orsched.models.full_mip.search import Answer, Search
from orsched.models.full_mip.size import Size, full_mip_size, windows_mip_size
from orsched.models.full_mip.stages import stages_that_suffice
from orsched.models.full_mip.windows_mip import WindowsMip
from orsched.models.killable_call import ChildOutcome, run_in_child
from orsched.objectives import minimised
from orsched.scalars import require_one_of
from orsched.stop import MaxRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from orsched.instance import Instance
    from orsched.models.full_mip.aim import Terms
    from orsched.models.full_mip.plan import Plan
    from orsched.models.full_mip.problem import Problem
    from orsched.models.full_mip.result import FullMipProgress, Termination
    from orsched.objectives import Objective
    from orsched.schedule import Schedule
    from orsched.slo import SLO

BACKENDS = ("scip", "cpsat")
MODELS = (*FORMULATIONS, "windows")

MAX_NONZEROS = 2_000_000
"""Above this the model is not built: at half of it (Pang's 100 requests on 20 clients with 32 bins)
loading takes seconds and half a gigabyte, and neither solver improves on its start in a minute."""

_FOREVER_S = 1e9
"""Longer time limits are none: not every solver and clock takes them."""


def solve_full_mip(
    instance: Instance,
    backend: str = "scip",
    stages: int | None = None,
    time_limit: float | None = None,
    initial_schedule: Schedule | None = None,
    callback: Callable[[FullMipProgress], object] | None = None,
    seed: int = 0,
    *,
    formulation: str = "compact",
    symmetry_breaking: bool = True,
    alone: bool = False,
    max_nonzeros: int = MAX_NONZEROS,
    objective: str | Objective = "makespan",
    slo: SLO | None = None,
) -> FullMipResult:
    """Solve Pang's full MIP, eq. (1)-(25), as read and repaired; see the page *The full MIP*.

    Args:
        instance: one worker; levels or affine cost; arrivals and memory as they are.
        backend: ``scip`` or ``cpsat``, each on one thread in a child process.
        stages: K, the number of bins; default: as many as are proven to suffice.
        time_limit: seconds from this call to its return.
        initial_schedule: any valid schedule, for a warm start; default: that of ``hybrid``, also
            in the place of one that is no solution (mixed steps, chunks), which a note says.
        callback: called with ``FullMipProgress``; returning True ends the search.
        seed: the solver's seed.
        formulation: ``compact``, ``printed`` (eq. (10) and (11) as they stand, the other rows
            repaired as in ``compact``) or ``windows`` (the window MIP); all have the same optimum.
        symmetry_breaking: number clients and bins; False for the bare model.
        alone: leave the solver without heuristic, analytic bound and smaller K: the reference.
        max_nonzeros: a larger model is not built; the answer is then the heuristic's schedule
            and the analytic bound.
        objective: means of completion times or first tokens, weighted ones, weighted sums of these
            and the makespan, or the attainment, which is made large: by ``LatencyMip``, whose bins
            ``stages`` counts then.
        slo: the limits to attain; default: those of the classes.

    Raises:
        InputError: an argument is wrong or the instance does not map into the model.
        InfeasibleError: no schedule exists; names the request and the limit.
        InvalidScheduleError: the initial schedule is not valid.
    """
    begin = perf_counter()
    _check_arguments(backend, formulation, time_limit)
    seed = whole_number(seed, "seed", maximum=2**63 - 1)
    max_nonzeros = whole_number(max_nonzeros, "max_nonzeros")
    if len(instance) and not minimised(objective).is_makespan:
        require_one_of(formulation, "formulation", FORMULATIONS[:1])
        from orsched.models.full_mip.objectives import solve_for_objective

        return solve_for_objective(
            instance, objective, backend, stages, time_limit, initial_schedule, callback, seed, slo,
            symmetry_breaking=symmetry_breaking, alone=alone, max_nonzeros=max_nonzeros,
        )  # fmt: skip
    problem = read_problem(instance)
    end = end_of(begin, time_limit)
    search = Search(instance, problem, callback, begin)
    prepare(search, initial_schedule, alone, end)
    stages, proven, reason = _stages(stages, search, alone)
    search.proven = proven
    if not proven and search.plan is not None and len(search.plan.rounds) > stages:
        search.forget()
    size = _size(problem, stages, formulation, symmetry_breaking)
    model = ModelSpec(backend, stages, formulation, symmetry_breaking, seed)
    return result_of(search, model, reason, size, refusal_of(size, max_nonzeros), end)


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


def _check_arguments(backend: str, formulation: str, time_limit: float | None) -> None:
    require_one_of(backend, "backend", BACKENDS)
    require_one_of(formulation, "formulation", MODELS)
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates


def prepare(search: Search, initial: Schedule | None, alone: bool, end: float | None) -> None:
    """Bound the instance and find the incumbent to start from."""
    instance = search.instance
    if not alone or len(instance) == 0:
        share = None if end is None else max(1e-3, (end - perf_counter()) / 10)
        proven = bound(instance, time_limit=share)
        search.lower_ns, search.certificate = proven.value_ns, proven.certificate
    given = initial is not None and search.begin_with(initial)
    if not given and (not alone or len(instance) == 0):
        _hybrid(search, end)
    if search.schedule is not None and search.report():
        search.done = True


def _hybrid(search: Search, end: float | None) -> None:
    """Take the schedule of the method ``hybrid``, in a third of the time at most."""
    from orsched.solver import solve

    limit = None if end is None else max(1e-3, (end - perf_counter()) / 3)
    try:
        found = solve(search.instance, "hybrid", time_limit=limit, iterations=18)
    except TimeLimitError:
        return
    except KeyboardInterrupt:
        search.interrupted = True
        return
    search.interrupted = found.termination == "interrupted"
    schedule = found.schedule.bare()
    search.offer(schedule, plan_of(search.instance, schedule))


def _stages(wanted: int | None, search: Search, alone: bool) -> tuple[int, bool, str]:
    """Return K, whether it is proven to suffice, and why."""
    known = None if alone or search.schedule is None else search.schedule.makespan_ns
    enough, reason = stages_that_suffice(search.problem, known)
    if wanted is None:
        return enough, True, reason
    wanted = whole_number(wanted, "stages", minimum=1)
    if wanted >= enough:
        return wanted, True, reason
    return wanted, False, f"{wanted} stages were asked for; they are not known to suffice"


def _size(problem: Problem, stages: int, formulation: str, symmetry_breaking: bool) -> Size:
    if formulation == "windows":
        return windows_mip_size(problem, stages, symmetry_breaking)
    return full_mip_size(problem, stages, formulation, symmetry_breaking)


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


def solve_windows_mip(instance: Instance, backend: str = "cpsat", **options: Any) -> FullMipResult:
    """Solve the window MIP, the reference of the stage windows; options as ``solve_full_mip``."""
    return solve_full_mip(instance, backend, formulation="windows", **options)
