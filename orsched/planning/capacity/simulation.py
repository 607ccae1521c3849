"""One simulation of a fleet on one trace, in a worker process: counts and latencies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched._version import __version__
from orsched.data.workers import Worker
from orsched.planning.study.plan import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.planning.capacity.question import Fleet, Question


def with_fleet(instance: Instance, fleet: Iterable[list[Any]]) -> Instance:
    """Return an instance on ``count`` copies of each ``[count, name, worker]`` of a fleet."""
    from orsched.common.registry import cost_model

    workers = []
    for count, name, values in fleet:
        worker = Worker.from_dict(values, cost_model)
        workers += [replace(worker, name=f"{name}-{number}") for number in range(count)]
    return instance.replace(workers=tuple(workers))


RECORD = 1
"""Version of the records; those of other versions are left alone and run anew."""

MOST_PARTS = 50
"""Parts of a trace, in order of arrival, whose attainment is counted apart."""


class Simulation(NamedTuple):
    """One run, as ``orsched.planning.study`` runs its cells.

    Attributes:
        key: hash of its content: the name of its file.
        problem: hash of its trace.
        content: all that its results depend on, as plain JSON values.
        path: the instance's file.
        fleet, seed: which run it is.
    """

    key: str
    problem: str
    content: dict[str, Any]
    path: str
    fleet: Fleet
    seed: int

    def task(self) -> dict[str, Any]:
        """Return what a worker process needs, as plain JSON values."""
        return {
            "by": "orsched.planning.capacity.simulation:simulate",
            "key": self.key,
            "problem": self.problem,
            "content": self.content,
            "path": self.path,
        }


def simulation_of(question: Question, fleet: Fleet, seed: int, path: str) -> Simulation:
    """Return the run of a fleet on the trace of a seed."""
    problem = {
        "instance": question.instance.sha256,
        "sample": question.sample,
        "arrivals": question.arrivals,
        "seed": seed,
    }
    content = {
        "orsched": __version__,
        "kind": "capacity",
        "record": RECORD,
        **problem,
        "fleet": [
            [count, machine.name, machine.worker.to_dict()]
            for machine, count in zip(question.machines, fleet, strict=True)
        ],
        "policy": question.policy,
        "slo": {"ttft_ns": question.ttft_ns, "tpot_ns": question.tpot_ns},
        "iterations": None,
    }
    return Simulation(key_of(content), key_of(problem), content, path, fleet, seed)


_last: list[tuple[str, Instance]] = []
"""The trace of the last run: neighbouring runs share it."""


def simulate(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a policy on a fleet, check its schedule, and return what an estimate is made of."""
    from orsched.checker import check
    from orsched.common.errors import InvalidScheduleError
    from orsched.planning.study.cell import outcome_of

    content = task["content"]
    whole = with_fleet(_trace(task), content["fleet"])
    instance = whole.admitted()
    schedule = outcome_of(instance, content, {}).schedule.replace(seed=content["seed"])
    violations = check(instance, schedule)
    if violations:
        raise InvalidScheduleError(
            f"{schedule.method} made an invalid schedule: {violations[0].message}", violations
        )
    given = content["slo"]["ttft_ns"], content["slo"]["tpot_ns"]
    return {
        "instance_sha256": instance.sha256,
        "results": figures(whole, schedule, given),
        "run": {},
    }


def _trace(task: Mapping[str, Any]) -> Instance:
    from orsched.common.errors import InputError
    from orsched.files.locate import load
    from orsched.planning.capacity.question import trace_of

    if _last and _last[0][0] == task["problem"]:
        return _last[0][1]
    content = task["content"]
    instance = load(task["path"])
    if instance.sha256 != content["instance"]:
        raise InputError("the file has changed", file=task["path"], remedy="start again")
    made = trace_of(instance, content["sample"], content["arrivals"], content["seed"])
    _last[:] = [(task["problem"], made)]
    return made


def figures(
    whole: Instance, schedule: Schedule, given: tuple[int | None, int | None]
) -> dict[str, Any]:
    """Return the counts and latencies of a schedule, of the requests that count.

    Those of ``whole`` that fit onto no worker, and are not in the schedule, keep no limit.
    """
    from orsched.data.feasibility import fits_some_worker
    from orsched.metrics.summary import distribution
    from orsched.planning.capacity.question import limits_of

    instance, fits = whole.admitted(), fits_some_worker(whole, chunks=True)
    times, req = schedule.request_times(instance), instance.requests
    limits = limits_of(whole, *given)
    order = np.argsort(whole.requests.arrival_ns[limits.rows], kind="stable")
    served = fits[limits.rows[order]]
    rows, order = (np.cumsum(fits) - 1)[limits.rows[order][served]], order[served]
    several = req.output_tokens[rows] >= 2
    first, finish = times["first_token_ns"][rows], times["finish_ns"][rows]
    ttft: IntColumn = first - req.arrival_ns[rows]
    pace: IntColumn = (finish - first) // np.maximum(req.output_tokens[rows] - 1, 1)
    kept = np.zeros(len(served), bool)
    kept[served] = (ttft <= limits.ttft_ns[order]) & (~several | (pace <= limits.tpot_ns[order]))
    bulk = np.ones(len(instance), bool)
    bulk[rows] = False
    steps = schedule.steps
    busy = np.bincount(
        steps.worker, weights=steps.end_ns - steps.start_ns, minlength=len(instance.workers)
    )
    parts = np.array_split(kept, min(MOST_PARTS, len(kept)))
    ttfts, paces = distribution(ttft), distribution(pace[several])
    return {
        "requests": len(kept),
        "attained": int(kept.sum()),
        "parts": [[int(part.sum()), len(part)] for part in parts],
        "ttft_p99_ns": None if ttfts is None else ttfts["p99"],
        "tpot_p99_ns": None if paces is None else paces["p99"],
        "bulk_requests": int(bulk.sum()),
        "bulk_tokens": int(req.output_tokens[bulk].sum()),
        "makespan_ns": schedule.makespan_ns,
        "busy_ns": [int(each) for each in busy],
        "output_tokens": int(req.output_tokens.sum()),
    }
