"""The exact search: a MIP in a child process, with incumbent and bound whatever stops it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from time import monotonic, perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, OrschedError
from orsched.common.scalars import require_one_of
from orsched.data.schedule_classes import PLAIN_SCHEDULES
from orsched.models.exact_search.aims import (
    Answer,
    DueAim,
    ExactSearch,
    MakespanAim,
    MissesAim,
    TimesAim,
    units_at_least,
)
from orsched.models.exact_search.bounded import BoundedValue
from orsched.models.exact_search.stage_plan import MAX_UNITS, read_problem
from orsched.models.exact_search.starts import prepare, prepare_values
from orsched.models.full_mip.formulation import FORMULATIONS
from orsched.models.full_mip.interval_model import IntervalModel
from orsched.models.full_mip.latency_mip import LatencyMip, bins_that_suffice, refined
from orsched.models.full_mip.linear_solvers import BACKENDS, cp_model
from orsched.models.full_mip.programs import INTERVALS, MODELS, ModelSpec, Size
from orsched.models.killable_call import ChildOutcome, run_in_child
from orsched.solving.objectives import Objective, minimised

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.data.service_classes import SLO
    from orsched.models.exact_search.aims import Aim
    from orsched.models.exact_search.bounded import FullMipProgress, Status, Termination
    from orsched.models.exact_search.stage_plan import Plan, Problem

MAX_NONZEROS = 2_000_000
"""Above this the model is not built: at half of it (Pang's 100 requests on 20 clients with 32 bins)
loading takes seconds and half a gigabyte, and neither solver improves on its start in a minute."""

BUILD_S = 2e-6
"""Seconds a nonzero that building takes, at least: where there is less time, none is built."""


@dataclass(frozen=True)
class FullMipResult(BoundedValue):
    """The answer of the full MIP.

    Attributes:
        schedule: the best schedule, accepted by the independent checker, or None.
        bound_ns: a proven lower bound on the makespan, or None when K is not proven to suffice.
        status: ``optimal``; ``optimal_for_K``: no shorter schedule with at most K prefill stages,
            and nothing is known of more; ``feasible``; ``infeasible``: no schedule with at most K
            stages; ``unknown``: no schedule yet.
        termination: ``finished``; ``time_limit``; ``stopped`` by the callback; ``interrupted`` by
            Ctrl-C; ``too_large``: the model was not built, the schedule is a heuristic's; ``died``:
            the solver's process ended without a word.
        stages: K.
        stages_reason: why K suffices, or that it is not known to.
        size: variables, rows and nonzeros of the model, known before it is built.
        start_accepted: whether the solver took the warm start; None without one or without a word.
        runtimes: seconds, ``start`` (bound and heuristic), ``solve`` and ``total``.
        solver: figures of the solver: nodes, ``cpu_s`` (CPU seconds of building and solving), ...
        notes: remarks.
        objective: what was minimised, or the attainment, which is made large.
        value, value_bound: exactly, of an objective that is not the makespan, times in nanoseconds:
            then ``bound_ns`` is the bound rounded up, None for the attainment.
        history: each better makespan and bound in time, as a callback sees it.
        schedules: the class of schedules for which bound and status hold.
    """

    schedule: Schedule | None
    bound_ns: int | None
    status: Status
    termination: Termination
    stages: int
    stages_reason: str
    size: Size
    start_accepted: bool | None = None
    runtimes: dict[str, float] = field(default_factory=dict, compare=False)
    solver: dict[str, Any] = field(default_factory=dict, compare=False)
    notes: tuple[str, ...] = ()
    objective: str = "makespan"
    value: Fraction | None = None
    value_bound: Fraction | None = None
    history: tuple[FullMipProgress, ...] = field(default=(), repr=False, compare=False)
    schedules: ScheduleClass = PLAIN_SCHEDULES


@dataclass(frozen=True)
class MipOptions:
    """Which model ``solve_full_mip`` makes, for what objective, and what it leaves out."""

    formulation: str = "compact"
    symmetry_breaking: bool = True
    alone: bool = False
    max_nonzeros: int = MAX_NONZEROS
    objective: str | Objective = "makespan"
    slo: SLO | None = None

    def __post_init__(self) -> None:
        require_one_of(self.formulation, "formulation", (*MODELS, INTERVALS))
        object.__setattr__(self, "max_nonzeros", whole_number(self.max_nonzeros, "max_nonzeros"))


def solve_full_mip(
    instance: Instance,
    backend: str = "scip",
    stages: int | None = None,
    time_limit: float | None = None,
    initial_schedule: Schedule | None = None,
    callback: Callable[[FullMipProgress], object] | None = None,
    seed: int = 0,
    **options: Any,
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
            repaired as in ``compact``), ``windows`` (the window MIP) or, in CP-SAT alone,
            ``intervals`` (the compact model of ``search=cp``); all have the same optimum.
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
    require_one_of(backend, "backend", BACKENDS)
    wanted = MipOptions(**options)
    if wanted.formulation == INTERVALS:
        require_one_of(backend, "backend", ("cpsat",))
    seed = whole_number(seed, "seed", maximum=2**63 - 1)
    objective = minimised(wanted.objective)
    timed = bool(len(instance)) and not objective.is_makespan
    if timed:
        require_one_of(wanted.formulation, "formulation", FORMULATIONS[:1])
    problem = read_problem(instance, exact=timed)
    aim = _aim(instance, problem, objective, wanted) if timed else None
    search = ExactSearch(instance, problem, callback, begin, aim, time_limit)
    solve = _for_objective if timed else _for_makespan
    found = solve(search, stages, initial_schedule, wanted, (backend, seed))
    return replace(found, objective=objective.name) if timed else found


def _for_makespan(
    search: ExactSearch,
    stages: int | None,
    initial: Schedule | None,
    wanted: MipOptions,
    solver: tuple[str, int],
) -> FullMipResult:
    """Solve a MIP of the makespan; ``solver``: back end and seed."""
    prepare(search, initial, wanted.alone)
    stages, search.proven, reason = _stages(stages, search, wanted.alone)
    if not search.proven and search.plan is not None and len(search.plan.rounds) > stages:
        search.forget()
    spec = ModelSpec(wanted.formulation, stages, wanted.symmetry_breaking)
    size = spec.size(search.problem)
    least = None if search.lower_ns is None else units_at_least(search.aim, search.lower_ns)
    job = _Job(*solver, spec, least)
    return _result(search, job, reason, size, refusal_of(size, wanted.max_nonzeros))


def _aim(instance: Instance, problem: Problem, objective: Objective, wanted: MipOptions) -> Aim:
    if objective.is_linear:
        return TimesAim(instance, problem, objective)
    if objective.of_due_dates:
        return DueAim(instance, problem, objective)
    return MissesAim(instance, problem, wanted.slo)


def solve_windows_mip(instance: Instance, backend: str = "cpsat", **options: Any) -> FullMipResult:
    """Solve the window MIP, the reference of the stage windows; options as ``solve_full_mip``."""
    return solve_full_mip(instance, backend, formulation="windows", **options)


def stages_that_suffice(problem: Problem, makespan_ns: int | None) -> tuple[int, str]:
    """Return a K with which the model has an optimal schedule, and why. n suffices, since no
    prefill stage is empty. Given the makespan of a schedule, so does the largest K for which K
    stages and the least number of rounds can end by then: a schedule with more stages ends later
    than the given one, and that one has no more than K."""
    n = len(problem)
    if makespan_ns is None:
        return max(1, n), _all(n)
    low, high = 1, max(1, n)
    while low < high:  # the least makespan grows with the number of stages
        middle = (low + high + 1) // 2
        if least_makespan_ns(problem, middle) <= makespan_ns:
            low = middle
        else:
            high = middle - 1
    if low >= n:
        return max(1, n), _all(n)
    least = least_makespan_ns(problem, low + 1)
    return low, (
        f"{low + 1} stages with the least number of rounds take at least {least} ns, "
        f"longer than the schedule of {makespan_ns} ns that is known"
    )


def _all(n: int) -> str:
    return f"no prefill stage is empty, so {n} requests need at most {n} stages"


def least_makespan_ns(problem: Problem, stages: int) -> int:
    """Return a bound on the makespan of every schedule with exactly ``stages`` prefill stages. The
    worker does one thing at a time. Rounds: at least as many as the longest request needs, and as
    all need on J clients. Stages: with any line a + b x below the time of a stage of x tokens,
    together at least a K + b sum N^p."""
    tokens, rounds = sum(problem.prompts), sum(problem.needed)
    least_rounds = max(problem.most_rounds, -(-rounds // problem.clients))
    prefill = max(a * stages + b * tokens for a, b in _lines_below(problem.levels))
    units = problem.round_fixed * least_rounds + problem.round_client * rounds
    return problem.to_ns(units + problem.prompt_token * tokens + max(0, math.ceil(prefill)))


def _lines_below(levels: tuple[tuple[int, int], ...]) -> list[tuple[Fraction, Fraction]]:
    """Return lines (a, b) with a, b >= 0 and a + b x <= the time of a stage of x >= 1 tokens. A
    stage's time is a step function and the line rises: it is below the time everywhere when it is
    at the capacity of each level."""
    found = [(Fraction(levels[0][1]), Fraction(0))]
    for number, (x, y) in enumerate(levels):
        for u, v in levels[number + 1 :]:
            slope = Fraction(v - y, u - x)
            base = y - slope * x
            if base >= 0 and all(base + slope * at <= time for at, time in levels):
                found.append((base, slope))
    return found


def _stages(wanted: int | None, search: ExactSearch, alone: bool) -> tuple[int, bool, str]:
    """Return K, whether it is proven to suffice, and why."""
    known = None if alone or search.schedule is None else search.schedule.makespan_ns
    enough, reason = stages_that_suffice(search.problem, known)
    if wanted is None:
        return enough, True, reason
    wanted = whole_number(wanted, "stages", minimum=1)
    if wanted >= enough:
        return wanted, True, reason
    return wanted, False, f"{wanted} stages were asked for; they are not known to suffice"


def _for_objective(
    search: ExactSearch,
    stages: int | None,
    initial: Schedule | None,
    wanted: MipOptions,
    solver: tuple[str, int],
) -> FullMipResult:
    """Solve the MIP of times or limits; ``solver``: back end and seed."""
    problem, aim = search.problem, search.aim
    assert not isinstance(aim, MakespanAim)
    enough = bins_that_suffice(problem)
    count = enough if stages is None else whole_number(stages, "stages", minimum=1)
    search.proven = count >= enough
    prepare_values(search, initial, wanted.alone)
    reason = f"{count} bins were asked for; {enough} are known to suffice"
    if search.proven:
        reason = f"every bin begins with a prefill stage or behind a finish, so {enough} suffice"
    if search.plan is not None and len(refined(problem, search.plan).bins) > count:
        search.forget()
    search.report_start()
    in_round = search.instance.first_token != "prefill"
    spec = ModelSpec("latency", count, wanted.symmetry_breaking, aim.terms, in_round)
    size = spec.size(problem)
    refusal = refusal_of(size, wanted.max_nonzeros)
    if not refusal and size.nonzeros * BUILD_S < search.clock.left():
        size = _built_size(spec, problem)
    least = None if search.lower_ns is None else units_at_least(aim, search.lower_ns)
    result = _result(search, _Job(*solver, spec, least), reason, size, refusal)
    bound = result.bound_ns  # of the value, in the units of the aim
    return replace(
        result,
        bound_ns=None if bound is None or isinstance(aim, MissesAim) else aim.shown_ns(bound),
        value=None if search.value is None else aim.fraction(search.value),
        value_bound=None if bound is None else aim.fraction(bound),
    )


def _built_size(spec: ModelSpec, problem: Problem) -> Size:
    """Return the size of the model, which is built for it."""
    model = spec.build(problem).model
    if model.objective_upper > MAX_UNITS * 2**10:
        raise InputError(
            f"the objective spans more than {MAX_UNITS * 2**10} units, too many for a solver",
            field="objective",
            remedy="give weights with fewer digits, or round costs and arrivals",
        )
    return Size(len(model.names), len(model.rows), model.nonzeros)


def refusal_of(size: Size, max_nonzeros: int) -> str:
    """Return why a model is not built, with its estimated size, or "" where it is."""
    if size.nonzeros <= max_nonzeros:
        return ""
    return (
        f"the model would have {size.variables:,} variables, {size.rows:,} rows and "
        f"{size.nonzeros:,} nonzeros, more than the {max_nonzeros:,} that are built: the answer "
        "is the schedule that it would have started from"
    )


class _Job(NamedTuple):
    """What the child solves, by which back end; ``least``: the known bound on the objective, which
    the latency MIP and the interval model are told."""

    backend: str
    seed: int
    spec: ModelSpec
    least: int | None = None


def _result(search: ExactSearch, job: _Job, reason: str, size: Size, refusal: str) -> FullMipResult:
    """Run the solver, unless the model is refused, and return what is known then."""
    started = perf_counter()
    answer = search.answer_at_once() or _run(search, job, refusal)
    return FullMipResult(
        bound_ns=search.proven_bound(answer),
        stages=job.spec.stages,
        stages_reason=reason,
        size=size,
        start_accepted=search.start_accepted,
        solver=answer.solver,
        **search.outcome(answer, started),
    )


def _run(search: ExactSearch, job: _Job, refusal: str) -> Answer:
    """Solve in a child process."""
    if refusal:
        return Answer("too_large", "", {}, (refusal,))
    left = float(search.clock.left()) if search.clock.limited else None
    soft = None
    if left is not None:
        left = max(0.0, left - min(0.05, 0.1 * left))  # for the answer's way back
        soft = monotonic() + max(0.0, left - min(0.2, 0.1 * left))
    search.start_ns = search.value
    payload = (search.problem, job, search.plan, soft)
    return _answer(search, run_in_child(solve_here, payload, left, search.on_message))


def _answer(search: ExactSearch, outcome: ChildOutcome) -> Answer:
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
    payload: tuple[Problem, _Job, Plan | None, float | None],
    send: Callable[[tuple[str, Any]], None],
) -> dict[str, Any]:
    """Build and solve the model in this process; ``send`` gets solutions and bounds. Messages are
    ``("solution", (objective, plan, exact))`` and ``("bound", objective)``, in units."""
    problem, job, start, end = payload
    if job.backend == "cpsat":
        cp_model()  # its import is not part of the search
    begin = process_time()
    if job.spec.formulation == INTERVALS:
        compact = IntervalModel(problem, job.spec.stages, job.least)
        if start is not None:
            compact.begin_at(start)
        return compact.solve(end, job.seed, send) | {"cpu_s": process_time() - begin}
    backend, model = BACKENDS[job.backend], job.spec.build(problem)
    if isinstance(model, LatencyMip) and job.least is not None:
        model.at_least(job.least)
    hint = None
    if start is not None:
        hint = model.values_of(start)
        wrong = model.model.violation(hint)
        if wrong is not None:
            raise OrschedError(f"the warm start violates the model, a bug in it: {wrong}")

    def on_solution(values: Sequence[float], objective: int) -> None:
        send(("solution", (objective, model.plan_of(values), backend.is_exact(model.model))))

    figures = backend.solve(
        model.model, hint, end, job.seed, on_solution, lambda bound: send(("bound", bound))
    )
    return figures | {"cpu_s": process_time() - begin}
