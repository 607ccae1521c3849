"""From what a method made to a result: reported, bounded, checked; nothing leaves unchecked."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, Any

from orsched.checker import check
from orsched.common.errors import InputError, InvalidScheduleError
from orsched.common.units import NS_PER_S
from orsched.common.versions import environment
from orsched.costs.asked import assumed_of_mixed_steps
from orsched.data.schedule import Schedule, Scheduled, as_schedule
from orsched.metrics.summary import distribution, gap, summarise
from orsched.simulator.policy import Information
from orsched.solving.method_catalogue import SETS_ASIDE
from orsched.solving.objective_run import is_better
from orsched.solving.result import Result, Status
from orsched.solving.search_history import HISTORY_KEY, HistoryRecorder
from orsched.solving.verdict import VERDICT_KEY, verdict_block

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.slo import SLO
    from orsched.models.bounds.bounds import Bound
    from orsched.solving.methods import Outcome
    from orsched.solving.objectives import Objective

_SET_ASIDE = (
    "methods of stages and static batches, such as fcfs, set aside prompt and answer (or output "
    "limit) at admission although memory is paged; others take blocks as caches grow"
)


def require_start(instance: Instance, initial: Scheduled, told: Information) -> Schedule:
    """Return the schedule that a search starts from; refuse one that it may not start from."""
    initial = as_schedule(initial, "initial_schedule")
    if told is not Information.CLAIRVOYANT:
        raise InputError(
            "an initial schedule holds true lengths",
            field="initial_schedule",
            remedy="give it to a clairvoyant method",
        )
    violations = check(instance, initial.bare())
    if violations:
        raise InvalidScheduleError(
            f"the initial schedule is not valid: {violations[0].message}", violations
        )
    return initial


def not_worse(
    instance: Instance, outcome: Outcome, initial: Schedule, aim: Objective, slo: SLO | None
) -> Outcome:
    """Return the initial schedule in the outcome's place if it is better."""
    bare = initial.bare()
    if not is_better(instance, bare, outcome.schedule, aim, slo):
        return outcome
    schedule = bare.replace(method=outcome.schedule.method, information="clairvoyant")
    if outcome.proven is None:
        return outcome._replace(schedule=schedule)
    note = f"the given schedule is better than what {outcome.schedule.method} proved the best one"
    note += f" among {outcome.proven}: it is not proven optimal"
    return outcome._replace(schedule=schedule, proven=None, notes=(*outcome.notes, note))


def checked_result(
    instance: Instance,
    outcome: Outcome,
    seed: int,
    lower: Bound,
    slo: SLO | None,
    begin: float,
    runtimes: dict[str, float],
    aim: Objective,
) -> Result:
    """Return the result of an outcome: reported, bounded and checked.

    Args:
        instance, aim, slo: the problem, the objective, and what is to be attained.
        outcome: what the method made.
        seed: of the method's random choices.
        lower: a bound on the makespan that holds for what the schedule does.
        begin: when ``solve`` was called, in seconds of ``perf_counter``.
        runtimes: seconds by phase; the check and the total are added.

    Raises ``InvalidScheduleError`` where the checker finds a fault.
    """
    from orsched.data.schedule_classes import allowances_of
    from orsched.models.bounds.bounds import no_floor
    from orsched.models.bounds.no_queue import ordering_cannot_help

    schedule = outcome.schedule.replace(
        seed=seed, parameters=outcome.parameters, bound=lower.to_dict()
    )
    schedule = schedule.replace(results=summarise(instance, schedule, slo))
    checking = perf_counter()
    violations = check(instance, schedule)
    if violations:
        first = "; ".join(v.message for v in violations[:3])
        raise InvalidScheduleError(
            f"{schedule.method} made an invalid schedule, a bug in it or in orsched: {first}",
            violations,
        )
    done = perf_counter()
    runtimes |= {"check": done - checking, "total": done - begin}
    meets = aim.is_makespan and schedule.makespan_ns == lower.value_ns
    note = ordering_cannot_help(instance, lower) if meets else None
    unproven = None
    if lower.name == "last_arrival":
        unproven = no_floor(instance, allowances_of(instance, outcome.schedule))
    notes = [text for text in (note, unproven) if text]
    notes += _assumed_of_mixed_steps(instance, schedule)
    notes += [*outcome.notes, *_missing_solver()]
    if schedule.method in SETS_ASIDE and instance.pages_matter:
        notes.append(_SET_ASIDE)
    best_of = lower.schedules if meets else outcome.proven
    if meets and not note:
        notes.append(f"the makespan equals the bound: it is the least among {best_of}")
    return Result(
        schedule.replace(run=_run_block(outcome, runtimes)),
        Status.FEASIBLE if best_of is None else Status.OPTIMAL,
        outcome.termination,
        True,
        runtimes,
        tuple(notes),
        lower.reference,
        objective=aim,
        best_of=best_of,
    )


def judged(result: Result, aim: Objective | None = None) -> Result:
    """Return a result with its verdict, which stands in the schedule's run block as well.

    A value that meets its certified bound is optimal, whatever the method proved. ``aim`` is
    another objective than that of the method, whose own proof says nothing of it.
    """
    if aim is not None:
        result = replace(result, objective=aim, status=Status.FEASIBLE, best_of=None)
    if result.certified:
        result = replace(result, status=Status.OPTIMAL, best_of=result.certified_schedules)
    run = {**result.schedule.run, VERDICT_KEY: verdict_block(result)}
    return replace(result, schedule=result.schedule.replace(run=run))


def with_shared_bounds(instance: Instance, results: list[Result]) -> list[Result]:
    """Return the results of an instance, each with the best bounds that any of them has for it.

    A bound is of an instance and a class of schedules, not of a method: within a time limit each
    method had time of its own to prove it, and what holds for a class holds for those within.
    """
    from orsched.data.schedule_classes import allowances_of
    from orsched.models.bounds.bounds import Bound

    def best(own: dict[str, Any], others: list[dict[str, Any]], needed: frozenset[str]) -> Any:
        held = [each for each in others if Bound(**each, reference={}).allows >= needed]
        return max([own, *held], key=lambda each: each["value_ns"])

    shared = []
    for result in results:
        needed = allowances_of(instance, result.schedule)
        known = [each.schedule.bound for each in results if each.schedule.bound is not None]
        means = {
            name: best(own, [r.mean_bounds[name] for r in results if name in r.mean_bounds], needed)
            for name, own in result.mean_bounds.items()
        }
        own = result.schedule.bound
        lower = None if own is None else best(own, known, needed)
        if lower == own and means == result.mean_bounds:
            shared.append(result)
            continue
        schedule = result.schedule
        if lower is not None and lower != own:
            value = lower["value_ns"]
            figures = {"bound_ns": value, "gap": gap(schedule.makespan_ns, value)}
            schedule = schedule.replace(bound=lower, results={**schedule.results, **figures})
        shared.append(judged(replace(result, schedule=schedule, mean_bounds=means)))
    return shared


def with_history(result: Result, history: HistoryRecorder, lower: Bound) -> Result:
    """Return the result with its search, whose last moment is the result itself.

    ``lower`` is the bound from before: where it does not hold for what the schedule does (mixed
    steps, say), neither do those that the search has found. Nor do they where a given schedule is
    better than the best of the class that was searched.
    """
    from orsched.data.schedule_classes import allowances_of

    per_unit = NS_PER_S if result.objective.is_time else 1
    value, bound = result.objective_value, result.objective_bound
    value = result.makespan_ns if result.objective.is_makespan else _times(value, per_unit)
    bound = _times(bound, per_unit)
    assert result.instance is not None
    known = history.points[-1].bound if history.points else None
    beaten = known is not None and value is not None and known >= value + 1  # it is rounded up
    if beaten or not lower.allows >= allowances_of(result.instance, result.schedule):
        history.hold(bound)
    history.add(result.runtimes["total"], value, bound)
    run = {**result.schedule.run, HISTORY_KEY: history.block()}
    return replace(result, schedule=result.schedule.replace(run=run))


def _times(value: float | None, unit: int) -> float | None:
    return None if value is None else value * unit


def _assumed_of_mixed_steps(instance: Instance, schedule: Schedule) -> list[str]:
    """Say where the time of steps that prefill beside a round is not of the cost model's source."""
    if not schedule.results.get("mixed_steps"):
        return []
    found = {}
    for worker in instance.workers:
        assumed = assumed_of_mixed_steps(worker.cost)
        if assumed is not None:
            found[worker.cost.model] = assumed
    return [
        f"the {model} cost model states no time for steps that prefill beside a round: orsched "
        f"assumes that they take {time}"
        for model, time in found.items()
    ]


def _missing_solver() -> list[str]:
    """Say what solves less well than it could on this machine."""
    try:
        found = find_spec("pyscipopt") is not None
    except (ImportError, ValueError):
        found = False
    if found:
        return []
    return ["without pyscipopt packings and bounds are not improved: pip install pyscipopt"]


def _run_block(outcome: Outcome, runtimes: dict[str, float]) -> dict[str, Any]:
    """Wall-clock figures and environment, all that differs between two runs; what was counted."""
    decisions, count = distribution(outcome.decision_ns), len(outcome.decision_ns)
    counted = dict(outcome.counted)
    return {
        "decision_ns": None if decisions is None else {"count": count, **decisions},
        **({"counted": counted} if counted else {}),
        "runtime_s": runtimes,
        "environment": environment(),
    }
