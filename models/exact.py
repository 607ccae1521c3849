"""The methods ``exact`` (a search that proves) and ``auto`` (picks by size and cost model)."""

from __future__ import annotations

import logging
import math
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from orsched.common.errors import InputError, OrschedError, TimeLimitError
from orsched.common.parameters import read_params
from orsched.common.registry import names, resolve
from orsched.common.scalars import require_one_of
from orsched.common.stop import gap_met
from orsched.common.units import NS_PER_S, seconds_text
from orsched.costs import splits
from orsched.models.fleet.planned_for import plannable
from orsched.simulator.policy import Information
from orsched.solving.methods import Outcome, Progress, Run, objectives_of
from orsched.solving.objectives import MAKESPAN, MINIMISED, Objective
from orsched.solving.result import Termination

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.models.best_first import BestFirstResult
    from orsched.models.full_mip import FullMipProgress, FullMipResult

DEFAULT_LIMIT_S = 60.0
"""Time limit of ``exact`` when none is given: its proofs have no other natural end."""

EXACT_REQUESTS = 9
"""Up to this many requests ``auto`` picks ``exact``: proofs then take seconds."""

EXACT_FOR_TIMES = 9
"""Up to this many requests ``auto`` picks ``exact`` for means and weighted sums of times."""

EXACT_FOR_LIMITS = 5
"""Up to this many requests ``auto`` picks ``exact`` for the attainment, which the MIP proves."""

SEARCHES_FOR_TIMES = ("latency_search",)
"""Methods that search for means, the best first; one that is not there is passed over."""

SEARCHES = ("auto", "best_first", "cp", "mip")

_LOG = logging.getLogger("orsched")
_TERMINATIONS = {
    "finished": Termination.FINISHED,
    "time_limit": Termination.TIME_LIMIT,
    "interrupted": Termination.INTERRUPTED,
    "too_large": Termination.FINISHED,
    "stopped": Termination.TARGET_GAP,
}


@dataclass(frozen=True)
class ExactParams:
    """Parameters of ``exact``.

    Attributes:
        search: best_first (sums of times, and the makespan without arrivals), cp (the makespan, a
            compact model in CP-SAT), mip, or auto: best_first where it applies, cp for the makespan
            with arrivals, else mip; mip where backend or stages is given.
        backend: the MIP's solver, cpsat or scip; None: cpsat.
        stages: K of cp and mip, most prefill stages; None: as many as are proven to suffice.
    """

    search: str = "auto"
    backend: str | None = None
    stages: int | None = None


@dataclass(frozen=True)
class ExactMethod:
    """Best-first search, or Pang's full MIP in SCIP or CP-SAT, started from ``hybrid``."""

    name: str = "exact"
    information: tuple[Information, ...] = (Information.CLAIRVOYANT,)
    summary: str = "proofs for small instances: best-first search, or Pang's full MIP, repaired"
    params: ClassVar[type] = ExactParams
    several_workers: ClassVar[bool] = True
    objectives: ClassVar[tuple[str, ...]] = MINIMISED

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Solve with the parameters ``search``, ``backend`` (cpsat, scip) and ``stages`` (K). A
        proof is a search without a certificate: what it proves beyond the analytic bound stands in
        the notes, and the reported bound stays the analytic one. Where the two are equal, the
        analytic bound's certificate proves the optimum."""
        params, certified_ns = read_params(ExactParams, run.parameters), run.bound_ns
        result: FullMipResult | BestFirstResult
        by, notes = "the best-first search", list[str]()
        shares = len(instance.workers) > 1 and run.objective.is_makespan and _default(params)
        is_best_first = not shares and _is_best_first(instance, params, run.objective)
        run.require_time()
        seconds = run.stop.seconds_left
        limit = DEFAULT_LIMIT_S if seconds == math.inf else max(1e-3, seconds)
        if shares:
            from orsched.models.fleet.exact import solve_shares

            return solve_shares(instance, run, limit)
        if not is_best_first:
            from orsched.models.full_mip import solve_full_mip

            by = params.backend or "cpsat"
            result = solve_full_mip(
                instance,
                by,
                stages=params.stages,
                time_limit=limit,
                initial_schedule=run.initial_schedule,
                callback=self._listener(run),
                seed=run.seed,
                objective=run.objective,
                slo=run.slo,
                formulation=_formulation(instance, params, run.objective),
            )
            notes = self._notes_of_mip(result)
        elif run.objective.is_makespan:
            from orsched.models.best_first import solve_best_first

            result = solve_best_first(
                instance, limit, run.initial_schedule, self._listener(run), seed=run.seed
            )
        else:
            from orsched.models.best_first_times import solve_best_first_times

            result = solve_best_first_times(
                instance, run.objective, limit, run.initial_schedule, self._listener(run)
            )
        if result.schedule is None:
            raise TimeLimitError("the time limit ended before there was a schedule")
        schedule = result.schedule.replace(method=self.name, information="clairvoyant")
        return Outcome(
            schedule,
            _TERMINATIONS.get(str(result.termination), Termination.TIME_LIMIT),
            array("q"),
            dict(run.parameters),
            result.schedules if str(result.status) == "optimal" else None,
            (*notes, *result.notes, *self._proven(result, by, certified_ns)),
        )

    def _listener(self, run: Run) -> Any:
        count, best = 0, math.inf

        def listen(seen: FullMipProgress) -> bool:
            nonlocal count, best
            count += 1
            value = seen.makespan_ns if seen.value is None else seen.value
            improved = value is not None and value < best
            best = min(best, math.inf if value is None else value)
            if run.objective.of_limits:
                value = None  # requests that miss their limits: not the share that is reported
            elif seen.bound_ns is not None:
                run.bounded(seen.bound_ns)
            run.report(Progress(self.name, count, seen.makespan_ns, improved, value=value))
            return gap_met(run.stop, value)

        return listen

    @staticmethod
    def _notes_of_mip(result: FullMipResult) -> list[str]:
        notes = [f"K = {result.stages}: {result.stages_reason}"]
        if str(result.status) == "optimal_for_K":
            notes.append(
                f"no schedule with at most {result.stages} stages is better; more might be"
            )
        return notes

    @staticmethod
    def _proven(
        result: FullMipResult | BestFirstResult,
        by: str,
        certified_ns: int | None,
    ) -> tuple[str, ...]:
        """Say what was proven, where that is more than the certified bound."""
        proven_ns = result.bound_ns
        if result.objective != "makespan":
            return _proven_objective(result, by)
        if proven_ns is None or proven_ns <= (certified_ns or 0):
            return ()
        return (
            f"{by} proved that {result.schedules} take at least "
            f"{seconds_text(proven_ns / NS_PER_S, 6)} s, a gap of {result.gap:.2%} (status "
            f"{result.status}); this proof is a search without a certificate, and bound_s stays "
            "the certified bound",
        )


def _formulation(instance: Instance, params: ExactParams, objective: Objective) -> str:
    """Return the model: the compact one where it is asked for, and for a makespan with arrivals."""
    timed = len(set(instance.requests.arrival_ns.tolist())) > 1
    chosen = timed and objective.is_makespan and _default(params)
    return "intervals" if chosen or params.search == "cp" else "compact"


def _default(params: ExactParams) -> bool:
    """Whether no parameter asks for the MIP, which is of one worker."""
    of_mip = params.search in ("cp", "mip")
    return not of_mip and params.backend is None and params.stages is None


def _proven_objective(result: FullMipResult | BestFirstResult, by: str) -> tuple[str, ...]:
    """Say what was proven of an objective that is not the makespan."""
    bound = result.value_bound
    if bound is None or result.value is None:
        return ()
    shown = f"{float(bound):.2%}"
    if result.bound_ns is not None:
        shown = f"{seconds_text(float(bound) / NS_PER_S, 6)} s"
    side = "most" if result.bound_ns is None else "least"
    gap = "" if result.gap is None else f", a gap of {result.gap:.2%}"
    return (
        f"{by} proved that {result.schedules} have {result.objective} of at {side} {shown}{gap} "
        f"(status {result.status}); this proof is a search without a certificate",
    )


def _is_best_first(instance: Instance, params: ExactParams, objective: Objective) -> bool:
    """Return whether to search best first; ``InputError`` where that is asked for in vain."""
    from orsched.models.best_first.solve import refusal
    from orsched.models.best_first_times.solve import refusal_for_times

    require_one_of(params.search, "search", SEARCHES)
    of_mip = params.backend is not None or params.stages is not None
    if params.search == "cp" and not (objective.is_makespan and params.backend != "scip"):
        raise InputError(
            "search=cp is for the makespan, in CP-SAT",
            field="search",
            remedy="search=mip, or search=auto",
        )
    if params.search in ("cp", "mip") or (params.search == "auto" and of_mip):
        return False
    if of_mip:
        why_not = "backend and stages are parameters of the MIP"
    elif objective.is_makespan:
        why_not = refusal(instance)
    else:
        why_not = refusal_for_times(instance, objective)
    if why_not and params.search == "best_first":
        raise InputError(
            f"exact cannot search best first: {why_not}",
            field="search",
            remedy="search=mip, or search=auto, which takes the MIP there",
        )
    return not why_not


@dataclass(frozen=True)
class AutoMethod:
    """Pick the method by size and cost model, and say why in the log and the notes."""

    name: str = "auto"
    information: tuple[Information, ...] = (Information.CLAIRVOYANT,)
    summary: str = "picks exact, windows, hybrid or fleet by size, arrivals, workers and cost model"
    several_workers: ClassVar[bool] = True
    any_arrivals: ClassVar[bool] = True  # also those that follow from ends
    objectives: ClassVar[tuple[str, ...]] = MINIMISED

    def __call__(self, instance: Instance, run: Run) -> Outcome:
        """Run the chosen method; the schedule says which it was."""
        if run.parameters:
            raise InputError(
                "auto takes no parameters",
                field="parameters",
                remedy="leave them out, or name the method that takes them",
            )
        name, why = choose(instance, run.objective)
        _LOG.info("auto picks %s: %s", name, why)
        by_due_date = replace(run, parameters={"order": "due"} if name == "vllm" else {})
        run = by_due_date if run.objective.of_due_dates else run
        try:
            outcome: Outcome = resolve("methods", name)(instance, run)
        except InputError as error:
            if name not in SEARCHES_FOR_TIMES:
                raise
            name, why = _policy(instance, run.objective)
            why = f"{why}; {error.problem}"
            outcome = resolve("methods", name)(instance, run)
        return outcome._replace(notes=(f"auto picked {name}: {why}", *outcome.notes))


def choose(instance: Instance, objective: Objective = MAKESPAN) -> tuple[str, str]:
    """Return the method that suits an instance and an objective, and why."""
    if instance.arrivals_follow:
        return "vllm", "requests arrive when others have ended, which policies alone can follow"
    if not objective.is_makespan:
        return _for_times(instance, objective)
    n, arrivals = len(instance), instance.requests.arrival_ns
    if len(instance.workers) > 1 and plannable(instance):
        return "fleet", f"{len(instance.workers)} workers share the requests out"
    if len(instance.workers) > 1 or instance.worker.padding:
        return "fcfs", "no method plans for such workers: padding, changes, roles or no floor"
    worker = instance.worker
    if not splits(worker.cost):
        return "hybrid", f"the {worker.cost.model} cost has no exact model of stages"
    if instance.pages_matter:
        return "hybrid", "prefix caches and paged memory that may limit have no exact model"
    if 0 < n <= EXACT_REQUESTS:
        return "exact", f"{n} requests are few enough for a proof"
    if n and int(arrivals.max()) > int(arrivals.min()):
        return "hybrid", "requests arrive over time"
    return "windows", f"{n} requests that are all there at once"


def _for_times(instance: Instance, objective: Objective) -> tuple[str, str]:
    """Return the method for an objective that is not the makespan, and why."""
    by_mip = objective.of_limits or objective.of_due_dates
    n, most = len(instance), EXACT_FOR_LIMITS if by_mip else EXACT_FOR_TIMES
    if 0 < n <= most and refusal_of_mip(instance) is None:
        return "exact", f"{n} requests are few enough for a proof of {objective.name}"
    for name in SEARCHES_FOR_TIMES:
        if name not in names("methods"):
            continue
        able = objectives_of(resolve("methods", name))
        if all(part in able for part in objective.parts):
            return name, f"it searches for {objective.name}, from the best policy"
    return _policy(instance, objective)


def _policy(instance: Instance, objective: Objective) -> tuple[str, str]:
    """Return the policy that is good for an objective, where nothing searches for it."""
    if objective.of_limits and instance.names_classes:
        return "slack", "it serves first what is about to miss its limits"
    if objective.of_due_dates:
        return "vllm", "it serves the earliest due date first"
    return "gittins", f"it serves the shortest first, which is good for {objective.name}"


def refusal_of_mip(instance: Instance) -> str | None:
    """Return why an instance does not map into the MIP of times, or None where it does."""
    from orsched.models.exact_search.stage_plan import read_problem

    try:
        read_problem(instance, exact=True)
    except OrschedError as error:
        return str(error)
    return None


EXACT = ExactMethod()
AUTO = AutoMethod()
