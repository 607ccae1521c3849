"""A simulation of a fleet on one trace, in a process, and what those of a fleet say of it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched._version import __version__
from orsched.calibration.intervals import mean_interval, wilson
from orsched.common.units import NS_PER_S
from orsched.data.service_classes import SLO
from orsched.data.workers import Worker
from orsched.planning.study.plan import key_of, slo_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.planning.capacity.question import Fleet, Question


_RESAMPLES, _FEWEST_PARTS = 2000, 10


class ShareInterval(NamedTuple):
    """A share with the ends of its interval, and what the interval is."""

    share: float
    low: float
    high: float
    kind: str


def over_replications(shares: Sequence[float], level: float) -> ShareInterval:
    """Return the mean of the shares of two or more replications, by Student's t."""
    found = mean_interval(shares, level)
    assert found.low is not None
    assert found.high is not None
    low, high = max(0.0, found.low), min(1.0, found.high)
    return ShareInterval(found.mean, low, high, f"Student's t over {len(shares)} replications")


def over_parts(parts: Sequence[Sequence[int]], level: float) -> ShareInterval:
    """Return the share of one trace: the wider ends of a block bootstrap and Wilson's interval.

    ``parts`` are pairs (attained, requests) of consecutive requests. Neighbouring requests share
    their fate, which Wilson's interval for independent ones does not see; the bootstrap over parts
    does, but says nothing where all parts are equal.
    """
    counts = np.array(parts, np.int64).reshape(-1, 2)
    attained, requests = (int(total) for total in counts.sum(axis=0))
    share = attained / requests
    low, high = wilson(attained, requests, level)
    if len(counts) < _FEWEST_PARTS:
        return ShareInterval(share, low, high, f"Wilson over {requests} requests")
    draws = np.random.default_rng(0).integers(0, len(counts), (_RESAMPLES, len(counts)))
    sums = counts[draws].sum(axis=1)
    shares = np.sort(sums[:, 0] / sums[:, 1])
    cut = int((1 - level) / 2 * _RESAMPLES)
    low, high = min(low, float(shares[cut])), max(high, float(shares[-1 - cut]))
    kind = f"block bootstrap over {len(counts)} parts of the trace, not inside Wilson's"
    return ShareInterval(share, low, high, kind)


def shares_interval(results: Sequence[Mapping[str, Any]], level: float) -> ShareInterval:
    """Return the attained share of replications, or of one trace, with its interval."""
    if len(results) == 1:
        return over_parts(results[0]["parts"], level)
    return over_replications([each["attained"] / each["requests"] for each in results], level)


class Estimate(NamedTuple):
    """A fleet's measured attainment, latencies and throughput: means over the replications. Limits
    on figures are kept where each replication keeps them; ``limits`` has the worst value of each.

    ``suffices`` is by the question's criterion; ``low`` and ``high`` are the ends of ``interval``;
    tokens are output tokens of bulk requests.
    """

    fleet: Fleet
    suffices: bool
    attainment: float
    low: float
    high: float
    interval: str
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    bulk_tokens_per_s: float | None
    worker_hours: float
    limits: dict[str, dict[str, Any]] | None
    overloaded: bool

    @property
    def workers(self) -> int:
        """All workers of the fleet."""
        return sum(self.fleet)


class Windows(NamedTuple):
    """Windows of equal length, and how long a worker takes to start."""

    every_ns: int
    startup_ns: int


class Replicas(NamedTuple):
    """The fewest workers found in each window, and what they were measured to keep."""

    windows: Windows
    workers: tuple[int, ...]
    estimate: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "every_s": self.windows.every_ns / NS_PER_S,
            "startup_s": self.windows.startup_ns / NS_PER_S,
            "workers": list(self.workers),
            "peak": max(self.workers),
            "mean": sum(self.workers) / len(self.workers),
            "worker_hours": self.estimate.worker_hours,
            "attainment": self.estimate.attainment,
        }


def estimate_of(question: Question, fleet: Fleet, results: Sequence[Mapping[str, Any]]) -> Estimate:
    """Return the estimate from the results of all replications of a fleet."""
    found = shares_interval(results, question.confidence)
    exact = sum(Fraction(each["attained"], each["requests"]) for each in results) / len(results)
    limits = _limits(results)
    suffices = exact >= question.attainment and all(each["kept"] for each in limits.values())
    if question.criterion == "confident" and suffices:
        suffices = Fraction(found.low) >= question.attainment or found.low >= float(
            question.attainment
        )
    return Estimate(
        fleet,
        suffices,
        found.share,
        found.low,
        found.high,
        found.kind,
        mean_s([each["ttft_p99_ns"] for each in results]),
        mean_s([each["tpot_p99_ns"] for each in results]),
        _bulk(results),
        sum(each["on_ns"] for each in results) / len(results) / NS_PER_S / 3600,
        limits or None,
        any(each["overloaded"] for each in results),
    )


def _limits(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return limited figures as rows have them: the largest value, kept if all keep the limit."""
    found = {}
    for name, one in results[0].get("limits", {}).items():
        every = [each["limits"][name] for each in results]
        values = [each["value_ns"] for each in every]
        largest = None if None in values else max(values) / NS_PER_S
        kept = all(each["kept"] for each in every)
        found[name] = {"limit_s": one["limit_ns"] / NS_PER_S, "value_s": largest, "kept": kept}
    return found


def mean_s(values: Sequence[int | None]) -> float | None:
    """Return the mean of those nanoseconds that are known, in seconds."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) / NS_PER_S if there else None


def _bulk(results: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the output tokens of bulk requests a second, until all requests are done."""
    spent = sum(each["makespan_ns"] for each in results)
    if not spent or not any(each["bulk_requests"] for each in results):
        return None
    return float(sum(each["bulk_tokens"] for each in results) * NS_PER_S / spent)


def with_fleet(
    instance: Instance, fleet: Iterable[list[Any]], link: dict[str, int] | None = None
) -> Instance:
    """Return an instance on ``count`` copies of each ``[count, name, worker]`` of a fleet."""
    from orsched.common.registry import cost_model
    from orsched.data.links import read_link

    workers = []
    for count, name, values in fleet:
        worker = Worker.from_dict(values, cost_model)
        workers += [replace(worker, name=f"{name}-{number}") for number in range(count)]
    between = instance.link if link is None else read_link(link)
    return instance.replace(workers=tuple(workers), link=between)


RECORD = 4
"""Version of the records; those of other versions are left alone and run again."""

MOST_PARTS = 50
"""Parts of a trace, in order of arrival, whose attainment is counted apart."""


class Simulation(NamedTuple):
    """One run, as a ``Cell``; ``problem`` is the hash of its trace, ``path`` its file."""

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


def simulation_of(
    question: Question, fleet: Fleet, seed: int, path: str, window: tuple[int, int] | None = None
) -> Simulation:
    """Return the run of a fleet on the trace of a seed, or on a window of its arrivals."""
    problem = {
        "instance": question.instance.sha256,
        "sample": question.sample,
        "arrivals": question.arrivals,
        "seed": seed,
        **({} if window is None else {"window": list(window)}),
    }
    content = {
        "orsched": __version__,
        "kind": "capacity",
        "record": RECORD,
        **problem,
        **question.scene,
        "fleet": [
            [count, machine.name, machine.worker.to_dict()]
            for machine, count in zip(question.machines, fleet, strict=True)
        ],
        "policy": question.policy,
        "slo": None if question.slo is None else slo_content(question.slo),
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
    fleet = with_fleet(_trace(task), content["fleet"], content.get("link"))
    whole = _staged(fleet, content)
    instance = whole.admitted()
    schedule = outcome_of(instance, content, {}).schedule.replace(seed=content["seed"])
    violations = check(instance, schedule)
    if violations:
        raise InvalidScheduleError(
            f"{schedule.method} made an invalid schedule: {violations[0].message}", violations
        )
    given = None if content["slo"] is None else SLO(**content["slo"])
    return {
        "instance_sha256": instance.sha256,
        "results": figures(whole, schedule, given),
        "run": {},
    }


def _staged(instance: Instance, scene: Mapping[str, Any]) -> Instance:
    """Return an instance with the failures and the autoscaling of a question."""
    from orsched.data.autoscaling import Autoscaling
    from orsched.instances.failures import with_failures

    if "failures" in scene:
        instance = with_failures(instance, scene["failures"], scene["seed"])
    if "autoscale" in scene:
        instance = instance.replace(autoscaling=Autoscaling.from_dict(scene["autoscale"]))
    return instance


def _trace(task: Mapping[str, Any]) -> Instance:
    from orsched.common.errors import InputError
    from orsched.files.locate import load
    from orsched.planning.capacity.question import trace_of, windowed

    if _last and _last[0][0] == task["problem"]:
        return _last[0][1]
    content = task["content"]
    instance = load(task["path"])
    if instance.sha256 != content["instance"]:
        raise InputError("the file has changed", file=task["path"], remedy="start again")
    made = trace_of(instance, content["sample"], content["arrivals"], content["seed"])
    if "window" in content:
        made = windowed(made, *content["window"])
    _last[:] = [(task["problem"], made)]
    return made


def figures(whole: Instance, schedule: Schedule, given: SLO | None) -> dict[str, Any]:
    """Return the counts and latencies of a schedule, of the requests that count.

    Those of ``whole`` that fit onto no worker, and are not in the schedule, keep no limit.
    """
    from orsched.common.columns import exact_sum
    from orsched.data.feasibility import fits_some_worker
    from orsched.metrics.run_limits import Latencies, overloaded
    from orsched.metrics.summary import distribution
    from orsched.metrics.timeline import Timeline
    from orsched.metrics.token_times import TokenGaps, begins_ns, request_times
    from orsched.planning.capacity.question import limits_of

    instance, fits = whole.admitted(), fits_some_worker(whole, chunks=True)
    line = Timeline(instance, schedule)
    instance, req = line.instance, line.instance.requests
    times = request_times(instance, schedule, line)
    limits = limits_of(whole, *((None, None) if given is None else given.limits_ns))
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
    run = Latencies(instance, times["first_token_ns"], times["finish_ns"], TokenGaps(line))
    parts = np.array_split(kept, min(MOST_PARTS, len(kept)))
    ttfts, paces = distribution(ttft), distribution(pace[several])
    return {
        **({} if given is None else run.held_against(given, ~bulk, len(kept) - len(rows))),
        "overloaded": overloaded(req.arrival_ns, begins_ns(line)),
        "requests": len(kept),
        "attained": int(kept.sum()),
        "parts": [[int(part.sum()), len(part)] for part in parts],
        "ttft_p99_ns": None if ttfts is None else ttfts["p99"],
        "tpot_p99_ns": None if paces is None else paces["p99"],
        "jct_sum_ns": exact_sum(finish - req.arrival_ns[rows]),
        "bulk_requests": int(bulk.sum()),
        "bulk_tokens": int(req.output_tokens[bulk].sum()),
        "makespan_ns": (end := schedule.makespan_ns),
        "on_ns": sum((row.end_ns or end) - row.start_ns for row in schedule.on_times or ())
        or end * len(instance.workers),
    }
