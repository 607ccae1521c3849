"""Stages of a schedule as plan and run share them: what each holds, and what time it takes.

A stage is a step that prefills, or all rounds between two such steps, whatever runs they were
divided into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.costs import mixed_ns, prefill_ns
from orsched.data.schedule import DECODE, INVALID, MIXED, PREFILL
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


def gaps_ns(instance: Instance, line: Timeline) -> IntColumn:
    """Return the gap before each step but the workers' first ones, by place."""
    ready = np.zeros(len(line.order), np.int64)
    rows = np.flatnonzero(line.work.phase == PREFILL)
    arrivals = instance.requests.arrival_ns[line.work.request[rows]]
    np.maximum.at(ready, line.first[rows], arrivals)
    follows = np.flatnonzero(line.worker[1:] == line.worker[:-1]) + 1
    since = np.maximum(line.end_ns[follows - 1], ready[follows])
    found: IntColumn = np.maximum(line.start_ns[follows] - since, 0)
    return found


Hashes = np.ndarray[Any, np.dtype[np.uint64]]


class Stages(NamedTuple):
    """Columns with one row a stage, worker by worker in order of time."""

    worker: IntColumn  # as in ``Steps``, and the next two
    phase: IntColumn
    rounds: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    took_ns: IntColumn  # durations of its steps and the gaps before them (``gaps_ns``)
    gap_ns: IntColumn  # these gaps alone
    model_ns: IntColumn  # what the cost model says of the same steps
    requests: IntColumn  # the most that are served at a time
    tokens: IntColumn  # prompt tokens
    content: Hashes  # a hash of who is prefilled, and of who decodes in which of its rounds


class StepTimes(NamedTuple):
    """Columns with one row a step, by place (``Timeline``)."""

    model_ns: IntColumn  # by the cost model
    took_ns: IntColumn  # the duration and the gap before the step
    gap_ns: IntColumn  # that gap


def step_times(instance: Instance, line: Timeline) -> StepTimes:
    """Return what time the steps take, by the cost model and in truth."""
    gap = np.zeros(len(line.order), np.int64)
    gap[np.flatnonzero(line.worker[1:] == line.worker[:-1]) + 1] = gaps_ns(instance, line)
    return StepTimes(modelled_ns(instance, line), line.end_ns - line.start_ns + gap, gap)


def modelled_ns(instance: Instance, line: Timeline) -> IntColumn:
    """Return what the cost model says of each step, by place."""
    found = np.zeros(len(line.order), np.int64)
    caches = line.caches
    contexts = np.array([caches.active, caches.context_padded, caches.context_max])
    chunks, cached = _chunks(line)
    heads = line.heads().tolist()
    for index, worker in enumerate(instance.workers):
        cost, padding = worker.cost, worker.padding
        for place in range(heads[index], heads[index + 1]):
            active, total, longest = contexts[:, place].tolist()
            if line.phase[place] == DECODE:
                found[place] = cost.rounds_ns(int(line.rounds[place]), active, total, longest)
                continue
            prompts = chunks[place]
            if padding:
                prompts = [max(prompts)] * len(prompts)
            if line.phase[place] == PREFILL:
                found[place] = prefill_ns(cost, prompts, cached[place])
            else:
                found[place] = mixed_ns(cost, prompts, active, total, longest, cached[place])
    return found


def _chunks(line: Timeline) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens that each step prefills, request by request, and those cached before."""
    found: list[list[int]] = [[] for _ in line.order]
    before: list[list[int]] = [[] for _ in line.order]
    rows = np.flatnonzero(line.is_prefill)
    places, tokens, cached = (
        column[rows].tolist() for column in (line.first, line.tokens, line.cached)
    )
    for place, count, k in zip(places, tokens, cached, strict=True):
        found[place].append(count)
        before[place].append(k)
    return found, before


def stages_of(instance: Instance, schedule: Schedule) -> Stages:
    """Return the stages of a schedule, planned or measured."""
    line = Timeline(instance, schedule)
    n = len(line.order)
    head = np.ones(n, bool)
    head[1:] = (
        (line.phase[1:] != DECODE)
        | (line.phase[:-1] != DECODE)
        | (line.worker[1:] != line.worker[:-1])
    )
    heads = np.flatnonzero(head)
    times, stage_of = step_times(instance, line), np.cumsum(head) - 1
    serving = line.by_place(line.batches.size) + line.caches.active
    rounds = np.where(line.phase == PREFILL, 0, line.rounds)
    return Stages(
        worker=line.worker[heads],
        phase=line.phase[heads],
        rounds=_over(np.add, rounds, heads),
        start_ns=line.start_ns[heads],
        end_ns=line.end_ns[np.append(heads[1:], n)[: len(heads)] - 1],
        took_ns=_over(np.add, times.took_ns, heads),
        gap_ns=_over(np.add, times.gap_ns, heads),
        model_ns=_over(np.add, times.model_ns, heads),
        requests=_over(np.maximum, serving, heads),
        tokens=_over(np.add, line.by_place(line.batches.total), heads),
        content=_contents(line, heads, stage_of),
    )


def _over(combine: np.ufunc, values: IntColumn, heads: IntColumn) -> IntColumn:
    """Combine the values of each stage."""
    if len(heads) == 0:
        return np.zeros(0, np.int64)
    found: IntColumn = combine.reduceat(values, heads)
    return found


def _contents(line: Timeline, heads: IntColumn, stage_of: IntColumn) -> Hashes:
    """Return a hash of what is in each stage.

    It adds up hashes of the prefills, of the requests that are active when the stage begins, and of
    those that begin or end to decode, each with the round after which it does.
    """
    work, before = line.work, line.rounds_before
    found = _hash(line.phase[heads], _over(np.add, line.rounds, heads), 0)
    prefills = np.flatnonzero(line.is_prefill)
    own = _hash(work.request[prefills], work.tokens[prefills], 1)
    np.add.at(found, stage_of[line.first[prefills]], own)
    rows = np.flatnonzero(~line.is_prefill)
    request, kind = work.request[rows], 2 + 3 * (work.phase[rows] == INVALID)
    first, last = stage_of[line.first[rows]], stage_of[line.last[rows]]
    begin = before[line.first[rows]] - before[heads[first]]
    end = before[line.last[rows] + 1] - before[heads[last]]
    np.add.at(found, first, _hash(request, begin, kind))
    np.add.at(found, last, _hash(request, end, kind + 1))
    active = np.zeros(len(heads) + 1, np.uint64)  # changes of the sum over those that go on
    lasting = _hash(request, kind, 9)
    np.add.at(active, first + 1, lasting)
    np.subtract.at(active, last + 1, lasting)
    return found + np.cumsum(active[:-1], dtype=np.uint64)


def _hash(first: Any, second: Any, third: Any) -> Hashes:
    """Return 64 well-mixed bits of three columns (the finalizer of splitmix64)."""
    mixed = np.zeros(np.broadcast(first, second, third).shape, np.uint64)
    with np.errstate(over="ignore"):
        for column in (first, second, third):
            mixed = mixed + np.asarray(column).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
            mixed ^= mixed >> np.uint64(31)
    return mixed


def matches(plan: Stages, run: Stages) -> IntColumn:
    """Return the plan's stage for each stage of the run, -1 where it has none of that content.

    The k-th stage of a worker is held against its k-th stage in the plan.
    """
    found = np.full(len(run.worker), -1, np.int64)
    for worker in np.unique(run.worker):
        mine, theirs = (np.flatnonzero(s.worker == worker) for s in (run, plan))
        count = min(len(mine), len(theirs))
        mine, theirs = mine[:count], theirs[:count]
        same = run.content[mine] == plan.content[theirs]
        found[mine[same]] = theirs[same]
    return found


PHASES = {PREFILL: "prefill", MIXED: "mixed", DECODE: "decode"}
"""Names of the phases, in the order of tables."""
