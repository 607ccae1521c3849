"""One run of MICO or a variant in the paper's setting, with the figures that the paper reports."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.reproductions import mico_setting as setting
from orsched.checker import check
from orsched.data.schedule import DECODE, INVALID, MIXED, PREFILL
from orsched.heuristics.mico import ABLATION
from orsched.heuristics.mico.mico import MICO
from orsched.metrics.timeline import Timeline
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

T_QUANTILE = {10: 2.262, 15: 2.145, 20: 2.093, 30: 2.045}
"""0.975 quantiles of Student's t by the number of values."""


class Figures(NamedTuple):
    """What one run yields.

    Attributes:
        makespan_ns: until the last query is done.
        ends_ns: the last token's time of each query, sorted.
        cloud_ends_ns: when each cloud is done.
        served: queries by cloud.
        kv: KV-Cache length summed over iterations, by cloud, three times: ``literal``, as section
            3.4 lays the caches out; ``engine``, as the engine counts (the longest one present);
            ``own``, the mean of the batch's own caches instead of the longest, no padding.
        peak: largest KV-Cache length.
    """

    makespan_ns: int
    ends_ns: list[int]
    cloud_ends_ns: list[int]
    served: list[int]
    kv: dict[str, list[int]]
    peak: int


@cache
def run(
    variant: str,
    count: int,
    clouds: int,
    batch_size: int,
    seed: int,
    backoff: bool = False,
    changes: tuple[tuple[str, Any], ...] = (),
    parameters: tuple[tuple[str, Any], ...] = (),
    caches: bool = False,
) -> Figures:
    """Return the figures of a variant; ``changes`` are of the instance.

    ``caches``: with the KV-Cache lengths.
    """
    problem, schedule = scheduled(
        variant, count, clouds, batch_size, seed, backoff, changes, parameters
    )
    return figures(problem, schedule, caches)


def scheduled(
    variant: str,
    count: int,
    clouds: int,
    batch_size: int,
    seed: int,
    backoff: bool = False,
    changes: tuple[tuple[str, Any], ...] = (),
    parameters: tuple[tuple[str, Any], ...] = (),
) -> tuple[Instance, Schedule]:
    """Return the instance of a run and its schedule, which the checker has passed."""
    problem = setting.instance(count, clouds, batch_size, seed, **dict(changes))
    blind = ABLATION[variant]["distribution"] == "quantity"
    values = {**ABLATION[variant], "backoff": backoff, "order": "random", **dict(parameters)}
    information = Information.NONE if blind else Information.PREDICTED
    policy, _ = MICO.build(problem, information, values, seed)
    schedule = simulate_policy(problem, policy).schedule
    wrong = check(problem, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    return problem, schedule


def figures(problem: Instance, schedule: Schedule, caches: bool) -> Figures:
    """Measure a schedule."""
    steps, work = schedule.steps, schedule.work
    ends = np.zeros(len(problem), np.int64)
    valid = work.phase != INVALID
    np.maximum.at(ends, work.request[valid], steps.end_ns[work.last_step[valid]])
    count = len(problem.workers)
    served = np.zeros(count, np.int64)
    prefills = work.phase == PREFILL
    np.add.at(served, steps.worker[work.first_step[prefills]], 1)
    cloud_ends = np.zeros(count, np.int64)
    np.maximum.at(cloud_ends, steps.worker, steps.end_ns)
    kv, peak = cache_lengths(problem, schedule) if caches else ({}, 0)
    return Figures(
        schedule.makespan_ns,
        sorted(ends.tolist()),
        cloud_ends.tolist(),
        served.tolist(),
        kv,
        peak,
    )


def cache_lengths(problem: Instance, schedule: Schedule) -> tuple[dict[str, list[int]], int]:
    """Return KV-Cache lengths summed over iterations, by rule and cloud, and the peak."""
    clouds = range(len(problem.workers))
    literal = [list(kv_lengths(schedule, k, literal=True)) for k in clouds]
    engine = [list(kv_lengths(schedule, k, literal=False)) for k in clouds]
    return {
        "literal": [summed(runs) for runs in literal],
        "engine": [summed(runs) for runs in engine],
        "own": own_caches(problem, schedule),
    }, max(first + rounds - 1 for runs in literal for first, rounds in runs)


def own_caches(problem: Instance, schedule: Schedule) -> list[int]:
    """Return by cloud the caches of all requests, summed over the rounds that each is present.

    Divided by the places, so that a batch counts like one cache of mean length.
    """
    line = Timeline(problem, schedule)
    rounds = np.zeros(len(problem), np.int64)
    np.add.at(rounds, line.work.request, line.row_rounds)
    sums = problem.requests.prompt_tokens * (rounds + 1) + rounds * (rounds + 1) // 2
    found = np.zeros(len(problem.workers), np.int64)
    first = line.is_prefill
    np.add.at(found, line.row_worker[first], sums[line.work.request[first]])
    return [int(x) // problem.workers[0].clients for x in found]


def summed(runs: Sequence[tuple[int, int]]) -> int:
    """Return the sum of the KV-Cache lengths over all iterations."""
    return sum(rounds * first + rounds * (rounds - 1) // 2 for first, rounds in runs)


def kv_lengths(schedule: Schedule, worker: int, literal: bool) -> Iterator[tuple[int, int]]:
    """Yield (KV-Cache length after the first round, rounds) of each step of a padding worker.

    Each position of the batch has the part of the cache that begins where its request does; what
    lies before all of them is released. ``literal``: an insertion lengthens the cache by the whole
    new prompt, for everybody (section 3.4); else by the one token of the round beside it, and the
    cache is as long as the longest one present.
    """
    steps, work = schedule.steps, schedule.work
    joins, leaves = defaultdict(list), defaultdict(list)
    last = {}
    for i in range(len(work.request)):
        request = int(work.request[i])
        if work.phase[i] == PREFILL:
            joins[int(work.first_step[i])].append((request, int(work.tokens[i])))
        assert work.phase[i] in (PREFILL, DECODE, INVALID)
        last[request] = max(last.get(request, 0), int(work.last_step[i]))
    for request, step in last.items():
        leaves[step].append(request)
    length, begins = 0, {}
    for step in np.flatnonzero(steps.worker == worker).tolist():
        phase, rounds, new = int(steps.phase[step]), int(steps.rounds[step]), joins[step]
        grown = max((tokens for _, tokens in new), default=1) if literal or phase == PREFILL else 1
        if phase == MIXED or not new:
            length += grown
        begins |= {request: length - tokens for request, tokens in new}
        yield length - min(begins.values()), rounds
        length += rounds - 1
        for request in leaves[step]:
            del begins[request]


def interval(values: Sequence[float]) -> str:
    """Return mean and half width of the 95 % confidence interval."""
    n = len(values)
    half = T_QUANTILE.get(n, 2.262) * stdev(values) / math.sqrt(n) if n > 1 else math.nan
    return f"{mean(values):.2f} ±{half:.2f}"
