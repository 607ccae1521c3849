"""One cell of a study: make its instance, run its policy, bound, check and report."""

from __future__ import annotations

import traceback
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.scope import schedules_of
from orsched.common.errors import InputError, InvalidScheduleError, OrschedError
from orsched.common.units import NS_PER_S
from orsched.planning.study.plan import record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.service_classes import SLO
    from orsched.models.bounds.bounds import Bound
    from orsched.planning.study.plan import Cell
    from orsched.solving.methods import Outcome
    from orsched.solving.objectives import Objective


def execute(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a cell and return its record, plain JSON values; what goes wrong is its ``error``.

    Other keys: ``key``, ``cell`` (the content), ``status`` (``ok`` or ``failed``), ``traceback``,
    ``information``, ``parameters``, ``results``; ``run`` alone may differ between two runs.
    """
    begin = perf_counter()
    try:
        done = _runner(task)(task)
    except (Exception, SystemExit) as error:  # a policy that exits ends its cell, not the process
        expected = isinstance(error, (OrschedError, MemoryError))
        return record_of(
            task,
            status="failed",
            error=_one_line(error) + ("" if expected else _place(error, task)),
            traceback=None if expected else _writable(traceback.format_exc()),
            run={"total_s": perf_counter() - begin},
        )
    done["run"] |= {"total_s": perf_counter() - begin}
    return record_of(task, status="ok", error=None, traceback=None, **done)


def _place(error: BaseException, task: Mapping[str, Any]) -> str:
    """Return file and line where the user's own policy failed; nothing for other errors."""
    from orsched.common.own_code import own_part, where

    policy = task.get("content", {}).get("policy")
    trace = own_part(error, policy["name"] if isinstance(policy, dict) else None)
    return "" if trace is None else f" ({where(trace)})"


def _runner(task: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return what runs a task: a cell of a study, or what the task names by ``module:function``."""
    if "by" not in task:
        return _run
    module, _, name = task["by"].partition(":")
    found: Callable[[Mapping[str, Any]], dict[str, Any]] = getattr(import_module(module), name)
    return found


def _one_line(error: BaseException) -> str:
    try:
        text = " ".join(_writable(str(error)).split())
    except Exception:  # of the error's own __str__
        text = "no words"
    return text if isinstance(error, OrschedError) and text else f"{type(error).__name__}: {text}"


def _writable(text: str) -> str:
    """Return a text of a policy as a file can hold it: valid Unicode, of bounded length."""
    kept = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    return kept.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


_LONGEST = 10_000
"""Characters of an error that a record keeps."""


class _Problem(NamedTuple):
    """An instance with its bounds by objective."""

    key: str
    instance: Instance
    bounds: dict[str, Bound]
    bound_s: float


_last: list[_Problem] = []
"""The problem of the last cell: neighbouring cells share it."""


def _run(task: Mapping[str, Any]) -> dict[str, Any]:
    from orsched.checker import check
    from orsched.metrics.flat_figures import flat_figures
    from orsched.metrics.summary import SLO, summarise
    from orsched.metrics.timeline import as_arrived
    from orsched.models.bounds.bounds import bound_for

    content = task["content"]
    problem = _problem(task)
    instance = problem.instance
    begin = perf_counter()
    slo = None if content["slo"] is None else SLO(**content["slo"])
    aim = _aim(content)
    outcome = outcome_of(instance, content, problem.bounds, aim, slo)
    solved = perf_counter()
    valid = {
        objective: bound_for(instance, outcome.schedule, lower, objective=objective)
        for objective, lower in problem.bounds.items()
    }
    known = {name: found for name, found in valid.items() if found is not None}
    makespan = valid.pop("makespan", None)
    bounded = perf_counter()
    schedule = outcome.schedule.replace(
        seed=content["seed"],
        parameters=outcome.parameters,
        bound=None if makespan is None else makespan.to_dict(),
    )
    schedule = schedule.replace(results=summarise(instance, schedule, slo))
    violations = check(instance, schedule)
    if violations:
        first = "; ".join(violation.message for violation in violations[:3])
        raise InvalidScheduleError(f"{schedule.method} made an invalid schedule: {first}")
    means = {
        f"{name.removeprefix('mean_')}_bound_ns": None if found is None else found.value_ns
        for name, found in valid.items()
    }
    flat = flat_figures(schedule.results)
    judged = {name: flat[name] for name in ("slo_attainment", "goodput_per_s")}
    if judged["slo_attainment"] is None:
        judged = {}
    if slo is not None and slo.figures:
        judged["slo_kept"] = float(schedule.results["slo"]["kept"])
    named = {"bound_name": None if makespan is None else makespan.name}
    arrived = as_arrived(instance, schedule)
    arrival = {"last_arrival_ns": int(arrived.requests.arrival_ns.max(initial=0))}
    stated = _judged_by(aim, schedule, known, outcome)
    found = {**schedule.results, **judged, **named, **means, **stated}
    return {
        "information": schedule.information,
        "parameters": outcome.parameters,
        "instance_sha256": instance.sha256,
        "results": {"requests": len(instance), **arrival, **found},
        "run": {
            "solve_s": solved - begin,
            "bound_s": problem.bound_s + bounded - solved,
            "check_s": perf_counter() - bounded,
            "decision_ns": _decisions(outcome),
        },
    }


def _aim(content: Mapping[str, Any]) -> Objective | None:
    from orsched.solving.objectives import objective_named

    return objective_named(content["objective"]) if "objective" in content else None


def _judged_by(
    aim: Objective | None, schedule: Schedule, bounds: Mapping[str, Bound], outcome: Outcome
) -> dict[str, Any]:
    """Return what is proven of the study's objective, else the makespan; gap 0: optimal."""
    from orsched.solving.objectives import MAKESPAN

    sought = aim or MAKESPAN
    value = sought.value(schedule.results)
    bound = sought.bound({name: each.value_ns / NS_PER_S for name, each in bounds.items()})
    certified = value is not None and value == bound
    held = schedules_of(*(each.certificate for each in bounds.values()))
    best_of = held if certified else outcome.proven
    optimal = best_of is not None
    gap = None if value is None or not bound else abs(value - bound) / bound
    gap = schedule.results["gap"] if sought.is_makespan else gap
    shown = value if optimal else bound
    named = {"objective": sought.name, "objective_value": value, "objective_bound": shown}
    return {
        **({} if aim is None else named),
        "gap": 0.0 if optimal else gap,
        "verdict": "optimal" if optimal else "feasible",
        "best_of": None if best_of is None else str(best_of),
        "certified": certified,
        "termination": outcome.termination.value,
    }


def _decisions(outcome: Outcome) -> dict[str, Any] | None:
    from orsched.metrics.summary import distribution

    found = distribution(outcome.decision_ns)
    return None if found is None else {"count": len(outcome.decision_ns), **found}


def _problem(task: Mapping[str, Any]) -> _Problem:
    """Return a cell's instance and bounds, kept for the next cell of the same problem.

    The makespan bound is without a search: searches end by the clock, tables must not depend on it.
    """
    from orsched.models.bounds.bounds import bound, makespan_bound

    if _last and _last[0].key == task["problem"]:
        return _last[0]
    instance = build_instance(task["content"], task["path"])
    begin = perf_counter()
    allows = ["chunks"] if instance.needs_chunks else []
    bounds = {
        objective: makespan_bound(instance, allows)
        if objective == "makespan"
        else bound(instance, objective, allows=allows)
        for objective in task["content"]["bounds"]
    }
    _last[:] = [_Problem(task["problem"], instance, bounds, perf_counter() - begin)]
    return _last[0]


def build_instance(
    content: Mapping[str, Any], path: str | None, made: Instance | None = None
) -> Instance:
    """Return a cell's instance; ``InputError`` for a file that has changed or a failing step."""
    from orsched.data.autoscaling import Autoscaling
    from orsched.files.locate import load
    from orsched.instances.arrivals import sampled
    from orsched.instances.catalog import generate, load_named
    from orsched.planning.study.axes import data_hash
    from orsched.solving.scenario import scenario

    source, seed = content["instance"], content["seed"]
    if "generator" in source:
        arguments = {"seed": seed, **source["arguments"]}
        if source.get("data") != data_hash(source["generator"], source["arguments"]):
            raise InputError(
                "the data files have changed since the study began",
                field="instances.mix",
                remedy="start it again",
            )
        instance = generate(source["generator"], **arguments)
    elif made is not None:
        instance = made
    elif path is None:
        instance = load_named(source["name"])
    else:
        instance = load(path)
        if instance.sha256 != source["sha256"]:
            raise InputError(
                "the file has changed since the study began", file=path, remedy="start it again"
            )
    if "sample" in source:
        instance = sampled(instance, source["sample"], seed)
    axes = (content["workers"], content["arrivals"], content["predictions"])
    rule = content.get("autoscale")
    scaling = None if rule is None else Autoscaling.from_dict(rule)
    most = content.get("concurrency")
    return scenario(instance, *axes, seed, content.get("failures"), scaling, most)


def machines_of(cells: Iterable[Cell]) -> list[str]:
    """Return in words the machines of cells, each once, with the error of a fit where one is known.

    Of cells that have the same workers, or the same instance with its own, the first is looked at.
    """
    from orsched.calibration.catalogue import machine_words

    found: dict[str, str] = {}
    for cell in cells:
        content = cell.content
        whole = isinstance(content["workers"], list)
        key = repr((None if whole else content["instance"], content["workers"]))
        if key not in found:
            try:
                found[key] = machine_words(
                    build_instance(content, cell.instance.path, cell.instance.made)
                )
            except OrschedError:  # its cells fail, and say why
                found[key] = ""
    return [words for words in dict.fromkeys(found.values()) if words]


def outcome_of(
    instance: Instance,
    content: Mapping[str, Any],
    bounds: Mapping[str, Bound],
    aim: Objective | None = None,
    slo: SLO | None = None,
) -> Outcome:
    """Run the policy or method of a cell, for an objective if one is named and it can.

    Those that plan for the makespan alone are judged by the objective, as in ``compare``.
    """
    from orsched.common.stop import MaxIterations
    from orsched.solving.checked_run import DEFAULT_ITERATIONS, bound_of, minimises, require_defined
    from orsched.solving.method_choice import choose, require_fit
    from orsched.solving.methods import Run
    from orsched.solving.objectives import MAKESPAN

    policy = content["policy"]
    chosen = choose(policy["name"], policy["information"], policy["parameters"])
    require_fit(instance, chosen)
    iterations = content["iterations"]
    stop = MaxIterations(DEFAULT_ITERATIONS if iterations is None else iterations)
    stop.start()
    if aim is not None:
        require_defined(instance, aim, slo)
    sought = MAKESPAN if aim is None or not minimises(chosen.method, aim) else aim
    makespan = bounds.get("makespan")
    run = Run(
        chosen.information,
        stop,
        content["seed"],
        chosen.parameters,
        bound_ns=bound_of(sought, makespan, dict(bounds)),
        objective=sought,
        slo=slo,
    )
    outcome: Outcome = chosen.method(instance, run)
    # A proof of another objective says nothing of the one that is judged by.
    return outcome if aim in (None, sought) else outcome._replace(proven=None)
