"""Time of the bound, of the reported numbers and of the checker, by size."""

from __future__ import annotations

import gc
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.speed.section import Options, Section
from orsched.checker import check
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.instances.synthetic import uniform
from orsched.metrics.summary import summarise
from orsched.models.bounds.bounds import makespan_bound
from orsched.simulator import simulate_policy

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "check"


def run(options: Options) -> Section:
    """Measure each part on fcfs schedules of growing size."""
    sizes = (100, 200) if options.tiny else (10_000, 100_000, 1_000_000)
    section = Section(NAME, "the parts of one fcfs run at 200 clients, inside one process")
    section.rows = [_row(size, min(3, options.repeats)) for size in sizes]
    section.notes = [
        "Medians. bound: with its certificate; report: all metrics; check: everything, the "
        "certificate and every reported number included. No target of its own: the whole "
        "processes above have one."
    ]
    return section


def _row(requests: int, repeats: int) -> dict[str, Any]:
    instance = uniform(requests, 200, seed=0, first_token="decode")
    simulate_s, done = _timed(lambda: simulate_policy(instance, FirstComeFirstServed()), repeats)
    bound_s, bound = _timed(lambda: makespan_bound(instance), repeats)
    schedule = done.schedule.replace(bound=bound.to_dict())
    report_s, results = _timed(lambda: summarise(instance, schedule), repeats)
    schedule = schedule.replace(results=results)
    check_s, violations = _timed(lambda: check(instance, schedule), repeats)
    return {
        "requests": requests,
        "simulate_s": simulate_s,
        "bound_s": bound_s,
        "report_s": report_s,
        "check_s": check_s,
        "check_us_per_request": 1e6 * check_s / requests,
        "violations": len(violations),
    }


def _timed(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median time of some calls, and what the last returned."""
    walls, value = [], None
    for _ in range(repeats):
        value = None
        gc.collect()
        begin = perf_counter()
        value = function()
        walls.append(perf_counter() - begin)
    return median(walls), value
