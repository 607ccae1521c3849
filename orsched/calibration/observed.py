"""The steps of a trace as measurements: what a cost model can be fitted to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.calibration.measurements import DECODE, MIXED, PREFILL, Measurements
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


class StepContents(NamedTuple):
    """Columns with one row a step, in the order of each worker's steps, worker by worker."""

    worker: IntColumn  # as in ``Steps``, and the next four
    phase: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    rounds: IntColumn
    active: IntColumn  # requests in the round; those that yield invalid tokens count
    context_sum: IntColumn  # of the first round
    context_max: IntColumn  # in the first round
    prompts: IntColumn  # chunks of prompts
    tokens: IntColumn  # prompt tokens of all of them
    longest: IntColumn  # tokens of the longest
    cached: IntColumn  # tokens that earlier chunks of the same prompts left in the cache
    attended: IntColumn  # contexts of all prompt tokens, added up


def step_contents(instance: Instance, schedule: Schedule) -> StepContents:
    """Return what is in each step of a schedule, planned or measured."""
    line = Timeline(instance, schedule)
    n, caches, batches = len(line.order), line.caches, line.batches
    at, size = line.first[line.prefills], line.tokens[line.prefills]
    cached = line.cached[line.prefills]
    return StepContents(
        line.worker,
        line.phase,
        line.start_ns,
        line.end_ns,
        line.rounds,
        caches.active,
        caches.context_sum,
        caches.context_max,
        line.by_place(batches.size),
        line.by_place(batches.total),
        line.by_place(batches.longest),
        _summed(n, at, cached),
        _summed(n, at, size * cached + size * (size + 1) // 2),
    )


def _summed(n: int, at: IntColumn, values: IntColumn) -> IntColumn:
    sums = np.zeros(n, np.int64)
    np.add.at(sums, at, values)
    return sums


ROWS = 16
"""Rows of a phase that the steps of a trace are averaged to, about; more if counts differ more."""


class Observed(NamedTuple):
    """Steps or runs of rounds; counts and tokens as in ``Measurements``, of the mean round."""

    phase: Sequence[str]  # prefill, decode or mixed
    rounds: IntColumn  # how many rounds ``total_ns`` is for
    total_ns: IntColumn  # time of them all
    count: IntColumn  # type: ignore[assignment] # shadows tuple.count, which is not called
    tokens: IntColumn
    longest: IntColumn
    context_sum: IntColumn
    context_max: IntColumn
    cached: IntColumn

    def measurements(self) -> Measurements:
        """Return a row for each, with the time of a round."""
        return Measurements(
            phase=self.phase,
            count=self.count,
            duration_ns=np.maximum(1, self.total_ns // self.rounds),
            tokens=self.tokens,
            longest=self.longest,
            context_sum=self.context_sum,
            context_max=self.context_max,
            cached=self.cached,
        )


def observed(instance: Instance, trace: Schedule, gaps: bool = False) -> Observed:
    """Return the steps of a trace, but for those that a row cannot say.

    These are mixed steps over several prompts, and stages over several of which some are chunks
    after a prompt's first. With ``gaps`` the time since the worker's step before counts as part of
    a step: only for traces without waits for arrivals.
    """
    steps = step_contents(instance, trace)
    start = steps.start_ns.copy()
    if gaps:
        same = steps.worker[1:] == steps.worker[:-1]
        start[1:][same] = steps.end_ns[:-1][same]
    mixed = (steps.active > 0) & (steps.prompts > 0)
    kept = np.flatnonzero((steps.prompts < 2) | ((steps.cached == 0) & ~mixed))
    middle = np.where(steps.prompts > 0, 0, (steps.rounds - 1) // 2)
    phase = np.where(mixed, MIXED, np.where(steps.prompts > 0, PREFILL, DECODE))
    columns = (
        steps.rounds,
        steps.end_ns - start,
        np.where(steps.active > 0, steps.active, steps.prompts),
        steps.tokens,
        steps.longest,
        steps.context_sum + steps.active * middle,
        np.where(steps.active > 0, steps.context_max + middle, 0),
        steps.cached,
    )
    return Observed([str(name) for name in phase[kept]], *(column[kept] for column in columns))


def together(parts: Sequence[Observed]) -> Observed:
    """Return the steps of several traces as if they were of one."""
    phase = [name for part in parts for name in part.phase]
    return Observed(phase, *map(np.concatenate, zip(*(part[1:] for part in parts), strict=True)))


def averaged(steps: Observed, rows: int = ROWS) -> Measurements:
    """Return measurements, each the mean over steps of one phase and count that are near in size.

    A single step on a busy machine says little. A row takes steps until it has its share of the
    phase's time, so that rows are equally certain.
    """
    columns = np.array(steps[1:], np.int64)
    phase = np.array(steps.phase, dtype="U7")
    names = (steps.context_sum, steps.tokens, steps.cached, steps.count, phase)
    order = np.lexsort(names)
    share = {name: int(steps.total_ns[phase == name].sum()) // rows for name in np.unique(phase)}
    groups: list[list[int]] = []
    time, before = 0, None
    for row in order.tolist():
        kind = (steps.phase[row], int(steps.count[row]))
        if kind != before or time >= share[kind[0]] or kind[0] == MIXED:
            groups.append([])
            time, before = 0, kind
        groups[-1].append(row)
        time += int(steps.total_ns[row])
    means = [_mean(columns[:, group]) for group in groups]
    kinds = [steps.phase[group[0]] for group in groups]
    return Observed(kinds, *np.array(means, np.int64).reshape(-1, len(columns)).T).measurements()


def _mean(columns: IntColumn) -> list[int]:
    """Return the sums of rounds and time, and the mean of the other columns over the rounds."""
    rounds = columns[0]
    total = int(rounds.sum())
    count, *work = (int((column * rounds).sum()) // total for column in columns[2:])
    tokens, longest, context_sum, context_max, cached = work
    tokens = max(tokens, longest + (count - 1 if tokens else 0))
    work = [tokens, longest, context_sum, context_max, cached]
    return [total, int(columns[1].sum()), count, *work]
