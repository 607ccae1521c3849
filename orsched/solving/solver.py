"""The public functions: ``solve``, ``simulate`` and ``compare``. Each has a keyword for all that
can be asked, which is looked up and checked here; a ``Task`` (``checked_run``) holds it from then
on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.registry import attached
from orsched.common.stop import Clock, Stop
from orsched.data.instance import require_instance, say_unused
from orsched.data.service_classes import SLO, require_slo
from orsched.models.bounds.bounds import require_objectives
from orsched.solving.checked_run import (
    Limits,
    Task,
    judged,
    minimises,
    require_defined,
    require_minimised,
    require_start,
    why_no_search,
    with_shared_bounds,
)
from orsched.solving.comparison import Comparison, Failure, attempted, require_any
from orsched.solving.engines import profiles
from orsched.solving.method_choice import Chosen, choose, choose_all, require_fit
from orsched.solving.methods import Method, Progress, Run
from orsched.solving.objectives import MAKESPAN, Objective, minimised, named_as_bounds
from orsched.solving.result import Result, Termination
from orsched.solving.scenario import scenario

if TYPE_CHECKING:
    from orsched.data.autoscaling import Autoscaling
    from orsched.data.instance import Instance
    from orsched.data.schedule import Scheduled
    from orsched.data.step import Step
    from orsched.instances.arrivals import Arrivals
    from orsched.instances.failures import Exponential
    from orsched.instances.predictions import Predictor
    from orsched.simulator.policy import Policy, View


def solve(
    instance: Instance,
    method: str | Method | Policy | type[Policy] | Chosen | None = None,
    objective: str | Objective = "makespan",
    stop: Stop | None = None,
    seed: int = 0,
    initial_schedule: Scheduled | None = None,
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
            ``solving.method_choice.choose`` has made of one of these. None: ``hybrid`` for the
            makespan, ``auto`` for other objectives; for workers with an engine the method that
            models it.
        objective: what to minimise: ``makespan``, ``jct_mean``, ``ttft_mean``,
            ``weighted_jct_mean``, or a weighted sum such as ``0.3*makespan+0.7*jct_mean``; with
            deadlines ``weighted_tardiness_mean`` and ``lateness_max``; ``slo_attainment`` is
            maximised. ``objective_bound``, ``gap`` and ``status`` of the result are of it. Policies
            take any, and go on by their own rule, as a note says.
        stop: a stopping criterion; in its place ``time_limit`` (seconds, from this call to its
            return), ``iterations`` and ``gap`` can be given, and the first to be reached ends the
            search. A schedule comes before it, however short the time is.
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
        TimeLimitError: the first schedule took longer than 10 s, and than the time limit.
        InvalidScheduleError: the checker found a fault: a bug in the method.
        MissingDependencyError: the method needs a package that is missing.

    >>> result = orsched.solve(orsched.load("pang-100x20"), "fcfs")
    >>> result.checked, result.bound <= result.makespan
    (True, True)
    """
    begin, clock = perf_counter(), Clock(time_limit)
    require_instance(instance)
    instance = instance.admitted()
    say_unused(instance)
    aim = minimised(objective)
    require_slo(slo, instance.classes)
    require_defined(instance, aim, slo)
    wanted = require_objectives(bounds) if bounds else ()
    method = default_method(aim, instance) if method is None else method
    chosen = choose(method, information, parameters)
    require_minimised(chosen.method, aim)
    if observer is not None and not getattr(chosen.method, "live", False):
        raise InputError(
            f"{chosen.method.name} plans beforehand, so it has no steps to observe",
            field="observer",
            remedy="simulate a policy",
        )
    instance, chosen, noted = attached("without_rejected")(instance, chosen, seed)
    require_fit(instance, chosen)
    start = None
    if initial_schedule is not None:
        start = require_start(instance, initial_schedule, chosen.information)
    limits = Limits(stop, clock, iterations, gap, why_no_search(chosen))
    run = Run(
        chosen.information,
        limits.criterion(len(instance)),
        whole_number(seed, "seed"),
        chosen.parameters,
        callback,
        initial_schedule=start,
        observer=observer,
        begin=begin,
        objective=aim,
        slo=slo,
    )
    run.stop.start()
    return noted(Task(instance, chosen, limits, run, tuple(wanted)).result(progress=progress))  # type: ignore[no-any-return]


def simulate(
    instance: Instance,
    policy: str | Method | Policy | type[Policy] | Chosen | None = None,
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
    concurrency: int | None = None,
    objective: str | Objective = "makespan",
) -> Result:
    """Run a policy on an instance from start to end, once; bound and check its schedule.

    What ``orsched simulate`` does, with the same names and defaults: ``solve`` with one iteration,
    on other workers and with other arrivals where given.

    Args:
        instance: the problem.
        policy: as ``method`` of ``solve``. On several workers a policy class that serves one worker
            gets a dispatcher. None: that of the instance's engine, else ``fcfs``.
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
        concurrency: requests (conversations) in flight at most; the next is sent when one ends.
        objective: as in ``solve``: value, bound and gap of it are reported.

    The result is for ``orsched.solving.scenario.scenario`` with the same arguments.

    Raises as ``solve`` does, and ``PolicyError`` when the policy asks for an impossible step.

    >>> orsched.simulate(orsched.load("pang-100x20"), "fcfs", workers=2).checked
    True
    """
    require_instance(instance)
    named = own_policy(instance) if policy is None else policy
    chosen = choose(named, information, parameters, "policy")
    problem = scenario(
        instance, workers, arrivals, predictions, seed, failures, autoscale, concurrency
    )
    return solve(
        problem, chosen, objective, seed=seed, iterations=1, slo=slo, bounds=bounds,
        observer=observer,
    )  # fmt: skip


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
    concurrency: int | None = None,
    objective: str | Objective | None = None,
    **options: Any,
) -> Comparison:
    """Solve an instance with several methods.

    Args:
        instance: the problem.
        methods: names, ``module:Class``, ``path/to/own.py:Class``, policy classes, policy objects
            (each is copied, and stays as it is).
        workers, arrivals, predictions: another scenario for all methods, as in ``simulate``.
        slo, seed: as in ``simulate``.
        time_limit: seconds for all methods together: each gets an equal share of what is left.
        information, parameters: of every method, as in ``solve``.
        failures, autoscale, concurrency: as in ``simulate``.
        objective: by which the best one is found, and what methods search for that can; those that
            plan for the makespan alone do so, as a note says. None: each makes its makespan short,
            and the best is found by what fits the instance.
        options: further arguments of ``solve``.

    A method that does not suit, lacks a package, fails or runs out of time is named in ``failed``
    with its reason, and the others go on; if none makes a schedule, that is raised. Names that
    stand for nothing, and parameters that do not exist, are refused before anything runs. After
    Ctrl-C the results so far are returned, a search's incumbent among them. Each result has the
    best bounds that any of the runs has proven for what its schedule does.

    Raises:
        InputError: a name, a parameter or the scenario is wrong.
        TimeLimitError: no method had a schedule in time. OrschedError: none made one.

    >>> found = orsched.compare(orsched.load("gate"), ["fcfs", "exact"])
    >>> found.best().label
    'exact'
    """
    clock = Clock(time_limit)
    require_instance(instance)
    several = isinstance(methods, Iterable) and not isinstance(methods, (str, Chosen))
    chosen = choose_all(methods if several else [methods], information, parameters)  # type: ignore[arg-type,list-item]
    problem = scenario(
        instance, workers, arrivals, predictions, seed, failures, autoscale, concurrency
    )
    aim = None if objective is None else minimised(objective)
    if aim is not None:
        require_defined(problem, aim, slo)
    results: list[Result] = []
    failed: list[Failure] = []
    for position, method in enumerate(chosen):
        if clock.limited:
            options["time_limit"] = max(1e-3, clock.left()) / (len(chosen) - position)
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
    results = with_shared_bounds(problem, results)
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
    require_fit(problem.admitted(), method)  # all serve the same requests: none rejects some
    if aim is None or minimises(method.method, aim):
        return solve(problem, method, aim or MAKESPAN, seed=seed, slo=slo, **options)
    bounds = options.get("bounds") or ()
    given = (bounds,) if isinstance(bounds, str) else tuple(bounds)
    wanted = {**options, "bounds": (*given, *named_as_bounds(aim))}
    found = solve(problem, method, seed=seed, slo=slo, **wanted)
    note = f"{method.method.name} plans for the makespan alone, and is judged by {aim.name}"
    return judged(replace(found, notes=(*found.notes, note)), aim)


def default_method(aim: Objective, instance: Instance | None = None) -> str:
    """Return the method where none is named: an engine's own; ``hybrid`` needs known arrivals."""
    follow = instance is not None and instance.arrivals_follow
    usual = "hybrid" if aim.is_makespan and not follow else "auto"
    return usual if instance is None else own_policy(instance, usual)


def own_policy(instance: Instance, otherwise: str = "fcfs") -> str:
    """Return the method that models the engine of an instance's workers; without one another."""
    engine = instance.workers[0].engine.partition("+")[0]
    return str(profiles()[engine]["policy"]) if engine in profiles() else otherwise
