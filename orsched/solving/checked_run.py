"""One run of a method, from what was asked to a checked result: nothing leaves unchecked.
``Task.result`` is the whole way: bounds from before, the method with something to fall back to,
bounds that hold for what it did, the check, the verdict, the history of the search and remarks."""

from __future__ import annotations

import math
from array import array
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.checker import check
from orsched.common.errors import InputError, InvalidScheduleError, OrschedError, TimeLimitError
from orsched.common.registry import names, resolve
from orsched.common.stop import Clock, FirstOf, MaxIterations, Stop, TargetGap, Until, target_gap
from orsched.common.units import NS_PER_S
from orsched.common.versions import environment
from orsched.costs.exact import assumed_of_mixed_steps
from orsched.data.instance import refusal_note
from orsched.data.schedule import Schedule, Scheduled, as_schedule
from orsched.data.schedule_classes import allowances_of
from orsched.metrics.class_metrics import limited_by
from orsched.metrics.objective_values import objective_value, required_due_dates, weighted_times
from orsched.metrics.summary import distribution, gap, summarise
from orsched.models.bounds.bounds import (
    Bound,
    bound_for,
    bound_once,
    mean_bounds,
    no_floor,
)
from orsched.models.bounds.ordering import ordering_cannot_help
from orsched.simulator.policy import Information
from orsched.solving.method_choice import SETS_ASIDE, Chosen
from orsched.solving.methods import Outcome, Run, objectives_of
from orsched.solving.objectives import ALIASES, Objective, named_as_bounds
from orsched.solving.progress import Watch, watch
from orsched.solving.result import Result, Status, Termination
from orsched.solving.run_block import HistoryRecorder, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.service_classes import SLO
    from orsched.solving.methods import Method, Progress

DEFAULT_ITERATIONS = 18  # of methods that search, where neither these nor a time limit is given
GAP_LIMIT_S = 60.0  # time limit of a search that has only a gap to reach: it may be out of reach
FIRST_METHODS = ("fcfs", "vllm", "disaggregated")  # to fall back to: the first one that suits

_SET_ASIDE = (
    "methods of stages and static batches, such as fcfs, set aside prompt and answer (or output "
    "limit) at admission although memory is paged; others take blocks as caches grow"
)


def require_defined(instance: Instance, objective: Objective, slo: SLO | None) -> None:
    """Refuse an objective that is not defined: no limits to attain, or weights that are all 0."""
    if objective.is_linear:
        if len(instance) and not objective.is_makespan:
            weighted_times(instance, objective)  # refuses weights that are all 0
        return
    if objective.of_due_dates:
        required_due_dates(instance, objective.name)
        return
    limited = any(kind.ttft_ns is not None or kind.tpot_ns is not None for kind in instance.classes)
    if objective.of_limits and (slo is None or slo.limits_ns == (None, None)) and not limited:
        raise InputError(
            f"{objective.name} without limits",
            field="objective",
            remedy="give an SLO (slo=SLO(ttft_s=2), --slo-ttft 2), or classes with limits",
        )


def minimises(method: Method, objective: Objective) -> bool:
    """Return whether a method takes an objective: policies take any, those that plan theirs."""
    return getattr(method, "live", False) or _seeks(method, objective)


def _seeks(method: Method, objective: Objective) -> bool:
    return set(objective.parts) <= set(objectives_of(method))


def require_minimised(method: Method, objective: Objective) -> None:
    """Refuse an objective that a method which plans cannot minimise."""
    if minimises(method, objective):
        return
    methods = ((name, resolve("methods", name)) for name in names("methods"))
    able = [
        name
        for name, each in methods
        if not getattr(each, "live", False) and _seeks(each, objective)
    ]
    raise InputError(
        f"{method.name} minimises {', '.join(objectives_of(method))}, not {objective.name}",
        field="objective",
        remedy=f"methods that do: {', '.join(able) or 'none'}; policies take any",
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


class Limits(NamedTuple):
    """What ends a search: the first of a criterion, seconds, iterations and a gap that are given. A
    method without a search that a gap could end has the reason in ``no_search``."""

    stop: Stop | None
    clock: Clock
    iterations: int | None
    gap: float | None
    no_search: str | None

    def criterion(self, requests: int) -> Stop:
        """Return the criterion of a search of so many requests. A time limit keeps back what
        checking takes: 5 microseconds a request, and at most 30 % of the limit. A search with only
        a gap to reach, which may be out of reach, gets a limit."""
        criteria: list[Stop] = [] if self.stop is None else [self.stop]
        clock = self.clock
        if self.gap is not None:
            criteria.append(TargetGap(self.gap))
        if self.iterations is not None:
            criteria.append(MaxIterations(self.iterations))
        elif not clock.limited and criteria and all(isinstance(c, TargetGap) for c in criteria):
            if self.no_search is None:
                clock = Clock(GAP_LIMIT_S)
            else:
                criteria.append(MaxIterations(DEFAULT_ITERATIONS))
        if clock.limited:
            criteria.append(Until(clock, min(0.3 * clock.seconds, 0.02 + 5e-6 * requests)))
        return FirstOf(tuple(criteria or [MaxIterations(DEFAULT_ITERATIONS)]))

    def remarks(self, result: Result, target: float | None) -> list[str]:
        """Return what is to be said of a gap not reached, and of iterations that did not count."""
        found = self._of_gap(result, target)
        timed = result.termination is Termination.TIME_LIMIT and not self.clock.limited
        if self.stop is None and self.iterations is not None and timed:
            name = result.schedule.method
            found.append(
                f"{name} counts no iterations: its own time limit ended it; give one to set another"
            )
        return found

    def _of_gap(self, result: Result, target: float | None) -> list[str]:
        if target is None or result.gap is None or result.gap <= target:
            return []
        if self.no_search is not None:
            return [self.no_search]
        if result.termination in (Termination.TARGET_GAP, Termination.INTERRUPTED):
            return []  # within the gap of a bound without a certificate, of which a note tells
        ends = {Termination.TIME_LIMIT: "more time", Termination.ITERATIONS: "more iterations"}
        remedy = ends.get(result.termination, "method windows, if it suits")
        return [f"the gap is {result.gap:.2%}, not the {target:.2%} asked for: try {remedy}"]


def why_no_search(chosen: Chosen) -> str | None:
    """Return why a method has no search that a gap could end, or None where it has one."""
    if getattr(chosen.method, "live", False):
        return "policies make one schedule: the target gap ends nothing"
    if chosen.information is not Information.CLAIRVOYANT:
        return "a plan on predicted lengths has no gap while it is sought: the target ends nothing"
    return None


@dataclass
class Task:
    """One run of one method on an instance, all of it checked before."""

    instance: Instance
    chosen: Chosen
    limits: Limits
    run: Run  # what the method is given; its clock runs since ``run.begin``
    bounds: tuple[str, ...] = ()  # further means to bound beside the objective's

    def result(self, *, progress: bool = False) -> Result:
        """Run the method; ``progress``: show the search while it goes on."""
        instance, run, aim = self.instance, self.run, self.run.objective
        history = HistoryRecorder(aim.largest)
        with watch(self.chosen.method.name) if progress else Watch("", None) as shown:
            allows = _allowed(instance, self.chosen)
            lower = _bounds_before(instance, ["makespan"], run.stop.seconds_left, allows)[
                "makespan"
            ]
            wanted = named_as_bounds(aim) if len(instance) else ()
            means = _bounds_before(self._limited(aim.name), wanted, run.stop.seconds_left, allows)
            bounded = perf_counter()
            run.bound_ns = bound_of(aim, lower, means)
            history.add(bounded - run.begin, None, run.bound_ns)
            # A plan on predicted lengths reports makespans of these, not true ones.
            knows = run.information is Information.CLAIRVOYANT
            told: list[Callable[[Progress], None]] = [history] if knows else []
            told += [run.callback] if run.callback is not None else []
            told += [shown.callback] if progress else []
            outcome = _outcome_in_time(instance, self.chosen, replace(run, callback=_all_of(told)))
        runtimes = {"bound": bounded - run.begin, "solve": perf_counter() - bounded}
        if run.initial_schedule is not None:
            outcome = _not_worse(instance, outcome, run.initial_schedule, aim, run.slo)
        # A bound on stages and rounds holds for schedules of stages and rounds: others get theirs.
        holds = bound_for(instance, outcome.schedule, lower, self._left()) or lower
        result = self._checked(outcome, holds, runtimes)
        found = self._means_after(result.schedule, means)
        result = judged(replace(result, mean_bounds=found, instance=instance))
        result = _with_history(replace(result, label=self.chosen.label), history, lower)
        remarks = [*refusal_note(instance), *self._own_rule()]
        remarks += self.limits.remarks(result, target_gap(run.stop))
        return replace(result, notes=(*result.notes, *remarks))

    def _limited(self, objective: str) -> Instance:
        """Return the instance, for the attainment with the limits by which it is judged."""
        attained = objective == "slo_attainment"
        return limited_by(self.instance, self.run.slo) if attained else self.instance

    def _left(self) -> float | None:
        """Return the seconds left of a time limit, at least a thousandth; None without one."""
        clock = self.limits.clock
        return max(1e-3, clock.left()) if clock.limited else None

    def _own_rule(self) -> list[str]:
        """Return the remark that a policy goes by its own rule, whatever the objective."""
        method, aim = self.chosen.method, self.run.objective
        if aim.is_makespan or not getattr(method, "live", False) or _seeks(method, aim):
            return []
        return [f"{method.name} decides by its own rule: it does not search for {aim.name}"]

    def _means_after(self, schedule: Schedule, before: dict[str, Bound]) -> dict[str, Any]:
        """Return proven bounds on means that hold for what a schedule does, in the time left: those
        of the objective from before, where they hold for it, and those asked for."""
        holding = before if not allowances_of(self.instance, schedule) else {}
        asked = dict.fromkeys([*before, *self.bounds])
        missing = [name for name in asked if name not in holding]
        left = self._left()
        share = None if left is None else left / max(1, len(missing))
        found = dict[str, Any]()
        for name in missing:
            found |= mean_bounds(self._limited(name), schedule, [name], share)
        every = {name: each.to_dict() for name, each in holding.items()} | found
        return {name: every[name] for name in asked if name in every}

    def _checked(self, outcome: Outcome, lower: Bound, runtimes: dict[str, float]) -> Result:
        """Return the result of an outcome, reported and checked, with a bound that holds for it."""
        instance, run = self.instance, self.run
        schedule = outcome.schedule.replace(
            seed=run.seed, parameters=outcome.parameters, bound=lower.to_dict()
        )
        schedule = schedule.replace(results=summarise(instance, schedule, run.slo))
        checking = perf_counter()
        violations = check(instance, schedule)
        if violations:
            first = "; ".join(v.message for v in violations[:3])
            raise InvalidScheduleError(
                f"{schedule.method} made an invalid schedule, a bug in it or in orsched: {first}",
                violations,
            )
        done = perf_counter()
        runtimes |= {"check": done - checking, "total": done - run.begin}
        meets = run.objective.is_makespan and schedule.makespan_ns == lower.value_ns
        note = ordering_cannot_help(instance, lower) if meets else None
        notes = [note] if note else []
        if lower.name == "last_arrival":
            notes += filter(None, [no_floor(instance, allowances_of(instance, schedule))])
        notes += [*_assumed_of_mixed_steps(instance, schedule), *outcome.notes, *_missing_solver()]
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
            objective=run.objective,
            best_of=best_of,
        )


def _all_of(callbacks: Sequence[Callable[[Progress], None]]) -> Callable[[Progress], None] | None:
    """Return one callback for all, None for none."""

    def called(progress: Progress) -> None:
        for callback in callbacks:
            callback(progress)

    return called if callbacks else None


def _outcome_in_time(instance: Instance, chosen: Chosen, run: Run) -> Outcome:
    """Run a method; one that searches never returns without a schedule, however short its time is.
    Before it searches under a time limit there is a schedule already, the given one or that of a
    policy: the outcome where time ends before the method has one of its own."""
    method = chosen.method
    if getattr(method, "live", False) or run.stop.seconds_left == math.inf:
        return method(instance, run)
    first = _first(instance, run)
    try:
        return method(instance, replace(run, has_schedule=first is not None))
    except TimeLimitError:
        if first is None:
            raise
        schedule = first.schedule.replace(method=method.name, information=run.information.value)
        source = "the given one"
        if run.initial_schedule is None:
            source = f"that of {first.schedule.method}"
        note = f"time ended before {method.name} had a schedule; this is {source}"
        return Outcome(schedule, Termination.TIME_LIMIT, array("q"), {}, notes=(note,))


def _first(instance: Instance, run: Run) -> Outcome | None:
    """Return the schedule to fall back to, or None where no policy makes one."""
    if run.initial_schedule is not None:
        return Outcome(run.initial_schedule.bare(), Termination.FINISHED, array("q"), {})
    told = replace(run, information=Information.NONE, parameters={}, callback=None, observer=None)
    for name in FIRST_METHODS:
        try:
            found: Outcome = resolve("methods", name)(instance, told)
        except TimeLimitError:
            return None
        except OrschedError:  # it does not suit: the next one may
            continue
        return found
    return None


def _not_worse(
    instance: Instance, outcome: Outcome, initial: Schedule, aim: Objective, slo: SLO | None
) -> Outcome:
    """Return the initial schedule in the outcome's place if it has a better objective."""

    def value(schedule: Schedule) -> Any:
        if aim.is_linear:  # exactly
            return objective_value(instance, schedule, aim)
        return aim.value(summarise(instance, schedule, slo))

    bare = initial.bare()
    if not aim.better(value(bare), value(outcome.schedule)):
        return outcome
    schedule = bare.replace(method=outcome.schedule.method, information="clairvoyant")
    if outcome.proven is None:
        return outcome._replace(schedule=schedule)
    note = f"the given schedule is better than what {outcome.schedule.method} proved the best one"
    note += f" among {outcome.proven}: it is not proven optimal"
    return outcome._replace(schedule=schedule, proven=None, notes=(*outcome.notes, note))


def judged(result: Result, aim: Objective | None = None) -> Result:
    """Return a result with its verdict, which is in the schedule's run block as well. A value
    that meets its certified bound is optimal, whatever the method proved. ``aim`` is another
    objective than that of the method, whose own proof says nothing of it."""
    if aim is not None:
        result = replace(result, objective=aim, status=Status.FEASIBLE, best_of=None)
    if result.certified:
        result = replace(result, status=Status.OPTIMAL, best_of=result.certified_schedules)
    verdict = Verdict(
        result.objective.name, result.status.value, result.certified, result.termination.value,
        None if result.best_of is None else result.best_of.names,
    )  # fmt: skip
    run = {**result.schedule.run, "verdict": verdict._asdict()}
    return replace(result, schedule=result.schedule.replace(run=run))


def _with_history(result: Result, history: HistoryRecorder, lower: Bound) -> Result:
    """Return the result with its search, whose last moment is the result itself. ``lower`` is the
    bound from before: where it does not hold for what the schedule does (mixed steps, say), neither
    do those that the search has found. Nor do they where a given schedule is better than the best
    of the class that was searched."""
    unit = NS_PER_S if result.objective.is_time else 1
    value, bound = (
        None if each is None else each * unit
        for each in (result.objective_value, result.objective_bound)
    )
    value = result.makespan_ns if result.objective.is_makespan else value
    assert result.instance is not None
    known = history.points[-1].bound if history.points else None
    beaten = known is not None and value is not None and known >= value + 1  # it is rounded up
    if beaten or not lower.allows >= allowances_of(result.instance, result.schedule):
        history.hold(bound)
    history.add(result.runtimes["total"], value, bound)
    run = {**result.schedule.run, "history": history.block()}
    return replace(result, schedule=result.schedule.replace(run=run))


def with_shared_bounds(instance: Instance, results: list[Result]) -> list[Result]:
    """Return the results of an instance, each with the best bounds that any of them has for it. A
    bound is of an instance and a class of schedules, not of a method: within a time limit each
    method had time of its own to prove it, and what holds for a class holds for those within."""

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


def _allowed(instance: Instance, chosen: Chosen) -> set[str]:
    """Return what bounds before the run allow: with prompts longer than any prefill step that they
    are split, and what the method says of its schedules by ``allows(instance,
    parameters)``."""
    states = getattr(chosen.method, "allows", None)
    stated = set() if states is None else set(states(instance, chosen.parameters))
    return stated | ({"chunks"} if instance.needs_chunks else set())


def _bounds_before(
    instance: Instance, wanted: Sequence[str], seconds: float, allows: set[str]
) -> dict[str, Bound]:
    """Return the best bounds of objectives, found in a tenth of the seconds left, all together."""
    share = None if seconds == math.inf else max(1e-3, seconds / 10 / max(1, len(wanted)))
    return {name: bound_once(instance, name, share, allows) for name in wanted}


def bound_of(objective: Objective, makespan: Bound | None, means: dict[str, Bound]) -> int | None:
    """Return the bound on an objective in whole nanoseconds; None where one of its parts lacks."""
    if objective.largest:  # what is proven is how many requests miss their limits
        return None
    bounds = means if makespan is None else {"makespan": makespan, **means}
    known = {ALIASES.get(name, name): each.value_ns for name, each in bounds.items()}
    terms = [(share.weight, share.objective.name) for share in objective.shares]
    total = Fraction(0)
    for weight, name in terms or [(Fraction(1), objective.name)]:
        if weight == 0:
            continue
        if name not in known:
            return None
        total += weight * known[name]
    return math.floor(total)


def _assumed_of_mixed_steps(instance: Instance, schedule: Schedule) -> list[str]:
    """Say where the time of steps that prefill beside a round is not of the cost model's source."""
    if not schedule.results.get("mixed_steps"):
        return []
    costs = [worker.cost for worker in instance.workers]
    found = {cost.model: time for cost in costs if (time := assumed_of_mixed_steps(cost))}
    return [
        f"the {model} cost model states no time for steps that prefill beside a round: orsched "
        f"assumes that they take {time}"
        for model, time in found.items()
    ]


def _missing_solver() -> list[str]:
    """Say what solves less well than it could on this machine."""
    with suppress(ImportError, ValueError):
        if find_spec("pyscipopt") is not None:
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
