"""The public functions: ``solve``, ``simulate`` and ``compare``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, Any

from orsched.checker import check
from orsched.columns import whole_number
from orsched.comparison import Comparison
from orsched.errors import InputError, InvalidScheduleError
from orsched.failures import Failure, attempted, require_any
from orsched.instance import require_instance, say_unused
from orsched.method_choice import Chosen, Spec, choose, choose_all, read_spec
from orsched.methods import Method, Outcome, Progress, Run
from orsched.metrics import SLO, distribution, summarise
from orsched.objective_run import (
    bound_of,
    bounds_after,
    bounds_before,
    ignored,
    is_better,
    minimises,
    require_defined,
    require_minimised,
)
from orsched.objectives import MAKESPAN, Objective, minimised, named_as_bounds
from orsched.policy import Information
from orsched.progress import Watch, watch
from orsched.result import Result, Status, Termination
from orsched.scenario import scenario
from orsched.search_history import KEY, HistoryRecorder
from orsched.stop import FirstOf, MaxIterations, MaxRuntime, Stop, TargetGap, target_gap
from orsched.units import NS_PER_S
from orsched.versions import environment

if TYPE_CHECKING:
    from orsched.autoscaling import Autoscaling
    from orsched.instance import Instance
    from orsched.instances.arrivals import Arrivals
    from orsched.instances.failures import Exponential
    from orsched.instances.predictions import Predictor
    from orsched.models.bounds import Bound
    from orsched.policy import Policy, View
    from orsched.schedule import Schedule
    from orsched.step import Step

__all__ = ["Comparison", "Spec", "compare", "read_spec", "simulate", "solve"]

DEFAULT_ITERATIONS = 18
"""Iterations of methods that search, when neither iterations nor a time limit is given."""

GAP_LIMIT_S = 60.0
"""Time limit of a search that has only a gap to reach: it may be out of reach."""


def solve(
    instance: Instance,
    method: str | Method | Policy | type[Policy] | Chosen | None = None,
    objective: str | Objective = "makespan",
    stop: Stop | None = None,
    seed: int = 0,
    initial_schedule: Schedule | None = None,
    callback: Callable[[Progress], None] | None = None,
    *,
    information: str | None = None,
    parameters: dict[str, Any] | None = None,
    time_limit: float | None = None,
    iterations: int | None = None,
    gap: float | None = None,
    slo: SLO | None = None,
    observer: Callable[[View, Step], None] | None = None,
    bounds: str | Iterable[str] = (),
    progress: bool = False,
) -> Result:
    """Make a schedule, bound it and check it.

    Args:
        instance: the problem.
        method: a registered name (``fcfs, offline, online, hybrid``) optionally with its
            information class and parameters, as in ``hybrid@predicted+gate=waited_time``;
            ``module:Class`` of a policy; or a class or an object of a policy, or a method, or what
            ``orsched.method_choice.choose`` has made of one of these. None: ``hybrid`` for the
            makespan, ``auto`` for other objectives.
        objective: what to minimise: ``makespan``, ``jct_mean``, ``ttft_mean``,
            ``weighted_jct_mean``, or a weighted sum such as ``0.3*makespan+0.7*jct_mean``;
            ``slo_attainment`` is made large. Of it are the bound and the gap of the result, too.
            Policies take any, and go on by their own rule, as a note says.
        stop: a stopping criterion; in its place ``time_limit`` (seconds, from this call to its
            return), ``iterations`` and ``gap`` can be given, and the first to be reached ends the
            search.
        seed: seed of the method's random choices.
        initial_schedule: a valid schedule; a clairvoyant method returns nothing worse.
        callback: called with ``Progress`` after each iteration.
        information: what the method may know; default: its own first class.
        parameters: the method's parameters by name.
        gap: a search ends once (value - bound) / bound of the objective is at most this: 0.01 is
            1 %. Without another criterion it has a minute for it.
        slo: a service-level objective to report the attainment of.
        observer: of a method that is a policy: called with the view and the step before each step.
        bounds: ``mean_jct`` and ``mean_ttft``: bounds to prove beside that on the makespan
            (seconds for 10,000 requests).
        progress: show best, bound, gap and times while it runs: below a notebook's cell, in place
            on a terminal, else in lines on standard error.

    Without pyscipopt the bound, and the packing of ``hybrid``, are what is found without column
    generation, and a note says so.

    Raises:
        InputError: an argument is wrong. InfeasibleError: no schedule exists.
        TimeLimitError: time ended before there was a schedule.
        InvalidScheduleError: the checker found a fault: a bug in the method.
        MissingDependencyError: the method needs a package that is missing.
    """
    from orsched.models.mean_bounds import require_objectives

    begin = perf_counter()
    require_instance(instance)
    say_unused(instance)
    aim = minimised(objective)
    require_defined(instance, aim, slo)
    wanted = require_objectives(bounds) if bounds else ()
    chosen = choose(default_method(aim) if method is None else method, information, parameters)
    require_minimised(chosen.method, aim)
    if observer is not None and not getattr(chosen.method, "live", False):
        raise InputError(
            f"{chosen.method.name} plans beforehand: there are no steps to observe",
            field="observer",
            remedy="simulate a policy",
        )
    no_search = _no_search(chosen)
    criterion = _criterion(
        stop, time_limit, iterations, gap, len(instance), endless=no_search is None
    )
    criterion.start()
    history = HistoryRecorder(aim.largest)
    with watch(chosen.method.name) if progress else Watch("", None) as shown:
        lower = _bound(instance, criterion.seconds_left)
        first = bounds_before(instance, aim, criterion.seconds_left)
        bounded = perf_counter()
        known = bound_of(aim, lower, first)
        history.add(bounded - begin, None, known)
        run = Run(
            chosen.information,
            criterion,
            whole_number(seed, "seed"),
            chosen.parameters,
            _all_of(
                # A plan on predicted lengths reports makespans of these, not true ones.
                history if chosen.information is Information.CLAIRVOYANT else None,
                callback,
                shown.callback if progress else None,
            ),
            known,
            initial_schedule,
            observer,
            begin,
            aim,
            slo,
        )
        outcome = chosen.method(instance, run)
    if initial_schedule is not None:
        outcome = _not_worse(instance, outcome, initial_schedule, chosen.information, aim, slo)
    runtimes = {"bound": bounded - begin, "solve": perf_counter() - bounded}
    result = _finish(instance, outcome, run.seed, lower, slo, begin, runtimes, aim)
    seconds = None if time_limit is None else max(1e-3, time_limit - (perf_counter() - begin))
    proven = bounds_after(instance, result.schedule, aim, first, wanted, seconds)
    result = replace(result, label=chosen.label, mean_bounds=proven, instance=instance)
    result = _with_history(result, history)
    missed = _missed(result, target_gap(criterion), no_search)
    return replace(result, notes=(*result.notes, *ignored(chosen.method, aim), *missed))


def simulate(
    instance: Instance,
    policy: str | Method | Policy | type[Policy] | Chosen = "fcfs",
    *,
    workers: object = None,
    arrivals: str | Mapping[str, Any] | Arrivals | None = None,
    predictions: str | Mapping[str, Any] | Predictor | None = None,
    parameters: dict[str, Any] | None = None,
    slo: SLO | None = None,
    bounds: str | Iterable[str] = (),
    observer: Callable[[View, Step], None] | None = None,
    information: str | None = None,
    seed: int = 0,
    failures: str | Mapping[str, Any] | Exponential | None = None,
    autoscale: str | Mapping[str, Any] | Autoscaling | None = None,
) -> Result:
    """Run a policy on an instance from start to end, once; bound and check its schedule.

    What ``orsched simulate`` does, with the same names and defaults: ``solve`` with one iteration,
    on other workers and with other arrivals if wanted.

    Args:
        instance: the problem.
        policy: as ``method`` of ``solve``. On several workers a policy class that serves one worker
            gets a dispatcher.
        workers: copies of the instance's worker, or others: worker files, ``Worker`` objects.
        arrivals: e.g. ``poisson:rate=20``, ``gamma:rate=10,cv=2``, ``replay:scale=1.5``.
        predictions: predicted lengths: ``classes``, ``percentiles``, ``noise:sigma=0.3``.
        parameters: of the class or the method; of an object they are only recorded.
        slo: a service-level objective to report the attainment of.
        bounds: on which means to prove bounds, as in ``solve``.
        observer: called with the view and the step before each step is taken.
        information: of a method, as in ``solve``.
        seed: of arrivals, predictions, failures and the method's random choices.
        failures: workers that fail and are repaired: ``exponential:mtbf=3600,mttr=120``.
        autoscale: workers started and drained by load: ``min=1,max=8,target=0.7,startup=40``.

    The result is for ``orsched.scenario.scenario`` with the same arguments.

    Raises as ``solve`` does, and ``PolicyError`` when the policy asks for an impossible step.
    """
    require_instance(instance)
    chosen = choose(policy, information, parameters, "policy")
    problem = scenario(instance, workers, arrivals, predictions, seed, failures, autoscale)
    return solve(
        problem, chosen, seed=seed, iterations=1, slo=slo, bounds=bounds, observer=observer
    )


def compare(
    instance: Instance,
    methods: str
    | Method
    | Policy
    | type[Policy]
    | Iterable[str | Method | Policy | type[Policy] | Chosen] = (
        "fcfs",
        "offline",
        "online",
        "hybrid",
    ),
    *,
    workers: object = None,
    arrivals: str | Mapping[str, Any] | Arrivals | None = None,
    predictions: str | Mapping[str, Any] | Predictor | None = None,
    slo: SLO | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    information: str | None = None,
    parameters: dict[str, Any] | None = None,
    failures: str | Mapping[str, Any] | Exponential | None = None,
    autoscale: str | Mapping[str, Any] | Autoscaling | None = None,
    objective: str | Objective | None = None,
    **options: Any,
) -> Comparison:
    """Solve an instance with several methods.

    Args:
        instance: the problem.
        methods: names, ``module:Class``, ``path/to/own.py:Class``, policy classes, policy objects
            (each is copied, and stays as it is).
        workers, arrivals, predictions: another scenario for all methods, as in ``simulate``.
        slo: a service-level objective to report the attainment of.
        seed: of arrivals, predictions and the methods' random choices.
        time_limit: seconds for all methods together: each gets an equal share of what is left.
        information, parameters: of every method, as in ``solve``.
        failures, autoscale: of the workers, as in ``simulate``.
        objective: by which the best one is found, and what methods search for that can; those that
            plan for the makespan alone do so, as a note says. None: each makes its makespan short,
            and the best is found by what fits the instance.
        options: further arguments of ``solve``.

    A method that does not suit, lacks a package, fails or runs out of time is named in ``failed``
    with its reason, and the others go on; if none makes a schedule, that is raised. Names that
    stand for nothing, and parameters that do not exist, are refused before anything runs. After
    Ctrl-C the results so far are returned, a search's incumbent among them.

    Raises:
        InputError: a name, a parameter or the scenario is wrong.
        TimeLimitError: no method had a schedule in time. OrschedError: none made one.
    """
    begin = perf_counter()
    require_instance(instance)
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates
    several = isinstance(methods, Iterable) and not isinstance(methods, (str, Chosen))
    chosen = choose_all(methods if several else [methods], information, parameters)  # type: ignore[arg-type,list-item]
    problem = scenario(instance, workers, arrivals, predictions, seed, failures, autoscale)
    aim = None if objective is None else minimised(objective)
    if aim is not None:
        require_defined(problem, aim, slo)
    results: list[Result] = []
    failed: list[Failure] = []
    for position, method in enumerate(chosen):
        if time_limit is not None:
            left = max(1e-3, time_limit - (perf_counter() - begin))
            options["time_limit"] = left / (len(chosen) - position)
        done = attempted(
            method, position, lambda method: solved_for(problem, method, aim, seed, slo, options)
        )
        if isinstance(done, Failure):
            failed.append(done)
            continue
        results.append(done)
        if done.termination is Termination.INTERRUPTED:
            break
    require_any(failed, results)
    return Comparison(tuple(results), tuple(failed), problem, aim)


def solved_for(
    problem: Instance,
    method: Chosen,
    aim: Objective | None,
    seed: int,
    slo: SLO | None,
    options: dict[str, Any],
) -> Result:
    """Return a result to be judged by an objective, of a method that may not be able to seek it."""
    if aim is None or minimises(method.method, aim):
        return solve(problem, method, aim or MAKESPAN, seed=seed, slo=slo, **options)
    bounds = options.get("bounds") or ()
    given = (bounds,) if isinstance(bounds, str) else tuple(bounds)
    wanted = {**options, "bounds": (*given, *named_as_bounds(aim))}
    found = solve(problem, method, seed=seed, slo=slo, **wanted)
    note = f"{method.method.name} plans for the makespan alone, and is judged by {aim.name}"
    return replace(found, objective=aim, notes=(*found.notes, note))


def default_method(aim: Objective) -> str:
    """Return the method for an objective where none is named."""
    return "hybrid" if aim.is_makespan else "auto"


def _all_of(*callbacks: Callable[[Progress], None] | None) -> Callable[[Progress], None] | None:
    """Return one callback for those that there are, or None."""
    wanted = [callback for callback in callbacks if callback is not None]
    if not wanted:
        return None

    def called(progress: Progress) -> None:
        for callback in wanted:
            callback(progress)

    return called


def _with_history(result: Result, history: HistoryRecorder) -> Result:
    """Return the result with its search, whose last moment is the result itself."""
    per_unit = NS_PER_S if result.objective.is_time else 1
    value, bound = result.objective_value, result.objective_bound
    value = result.makespan_ns if result.objective.is_makespan else _times(value, per_unit)
    history.add(result.runtimes["total"], value, _times(bound, per_unit))
    run = {**result.schedule.run, KEY: history.block()}
    return replace(result, schedule=result.schedule.replace(run=run))


def _times(value: float | None, unit: int) -> float | None:
    return None if value is None else value * unit


def _criterion(
    stop: Stop | None,
    time_limit: float | None,
    iterations: int | None,
    gap: float | None,
    requests: int,
    *,
    endless: bool,
) -> Stop:
    """Combine the ways to end; a time limit keeps back what checking will take.

    A search that has only a gap to reach, and may never reach it, is ``endless``: it gets a limit.
    """
    criteria: list[Stop] = [] if stop is None else [stop]
    if gap is not None:
        criteria.append(TargetGap(gap))
    if iterations is not None:
        criteria.append(MaxIterations(iterations))
    elif time_limit is None and criteria and all(isinstance(c, TargetGap) for c in criteria):
        if endless:
            time_limit = GAP_LIMIT_S
        else:
            criteria.append(MaxIterations(DEFAULT_ITERATIONS))
    if time_limit is not None:
        whole = MaxRuntime(time_limit).seconds
        kept_back = min(0.3 * whole, 0.02 + 5e-6 * requests)
        criteria.append(MaxRuntime(whole - kept_back))
    return FirstOf(tuple(criteria or [MaxIterations(DEFAULT_ITERATIONS)]))


def _no_search(chosen: Chosen) -> str | None:
    """Return why a method has no search that a gap could end, or None where it has one."""
    if getattr(chosen.method, "live", False):
        return "policies make one schedule: the target gap ends nothing"
    if chosen.information is not Information.CLAIRVOYANT:
        return "a plan on predicted lengths has no gap while it is sought: the target ends nothing"
    return None


def _missed(result: Result, target: float | None, no_search: str | None) -> list[str]:
    """Return the remark on a gap that was asked for and not reached."""
    if target is None or result.gap is None or result.gap <= target:
        return []
    if no_search is not None:
        return [no_search]
    if result.termination in (Termination.TARGET_GAP, Termination.INTERRUPTED):
        return []  # within the gap of a bound without a certificate, of which a note tells
    ends = {Termination.TIME_LIMIT: "more time", Termination.ITERATIONS: "more iterations"}
    remedy = ends.get(result.termination, "method windows, if it suits")
    return [f"the gap is {result.gap:.2%}, not the {target:.2%} asked for: try {remedy}"]


def _bound(instance: Instance, seconds_left: float = math.inf) -> Bound:
    """Return the best bound on the makespan that is found in a tenth of the time left.

    Prompts longer than any prefill step: one that holds for schedules that split them.
    """
    from orsched.models.bounds import bound

    share = None if seconds_left == math.inf else max(1e-3, seconds_left / 10)
    return bound(instance, time_limit=share, allows=["chunks"] if instance.needs_chunks else [])


def _not_worse(
    instance: Instance, outcome: Outcome, initial: Schedule, told: Information, aim: Objective,
    slo: SLO | None,
) -> Outcome:  # fmt: skip
    """Return the initial schedule in the outcome's place if it is valid and better."""
    if told is not Information.CLAIRVOYANT:
        raise InputError(
            "an initial schedule holds true lengths",
            field="initial_schedule",
            remedy="give it to a clairvoyant method",
        )
    bare = initial.replace(results={}, bound=None, run={})
    violations = check(instance, bare)
    if violations:
        raise InvalidScheduleError(
            f"the initial schedule is not valid: {violations[0].message}", violations
        )
    if not is_better(instance, bare, outcome.schedule, aim, slo):
        return outcome
    return outcome._replace(
        schedule=bare.replace(method=outcome.schedule.method, information=told.value)
    )


def _finish(
    instance: Instance,
    outcome: Outcome,
    seed: int,
    lower: Bound,
    slo: SLO | None,
    begin: float,
    runtimes: dict[str, float],
    aim: Objective,
) -> Result:
    """Report, check and wrap a schedule: nothing leaves the library unchecked."""
    from orsched.models.bound_scope import allowances_of
    from orsched.models.bounds import bound_for, no_floor, ordering_cannot_help

    # A bound on stages and rounds holds for schedules of stages and rounds: others get their own.
    holds = bound_for(instance, outcome.schedule, lower)
    lower = lower if holds is None else holds
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
    notes += [*outcome.notes, *_missing_solver()]
    if meets and not note:
        notes.append("the makespan equals the bound: no order of the requests can be better")
    return Result(
        schedule.replace(run=_run_block(outcome, runtimes)),
        Status.OPTIMAL if meets or outcome.proven else Status.FEASIBLE,
        outcome.termination,
        True,
        runtimes,
        tuple(notes),
        lower.reference,
        objective=aim,
    )


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
