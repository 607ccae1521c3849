"""The stages of a schedule: prefill stages and the decode stages between them, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.schedule import PREFILL

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.schedule import Schedule, Steps

COLUMNS = ("worker", "phase", "bin", "start", "end", "rounds", "requests", "tokens")


def bins(steps: Steps) -> IntColumn:
    """Return the bin of each step: the number, from 0, of its worker's latest prefill stage.

    -1 for steps before the first prefill stage.
    """
    result = np.empty(len(steps), np.int64)
    for worker in np.unique(steps.worker):
        mine = np.flatnonzero(steps.worker == worker)
        result[mine] = np.cumsum(steps.phase[mine] == PREFILL) - 1
    return result


def stage_columns(schedule: Schedule) -> dict[str, IntColumn]:
    """Return the stages in order of worker, then start; a decode stage joins its runs of rounds.

    Columns ``worker, phase, bin, start, end, rounds, requests`` (the requests that are
    prefilled, or the most that decode at a time) and ``tokens`` (prompt tokens prefilled).
    """
    steps, work = schedule.steps, schedule.work
    order = np.lexsort((steps.start_ns, steps.worker))
    worker, phase, start = steps.worker[order], steps.phase[order], steps.start_ns[order]
    head = np.ones(len(order), bool)
    # A prefill stage stands alone; runs of rounds join across no change and no pause.
    head[1:] = (
        (phase[1:] == PREFILL)
        | (phase[1:] != phase[:-1])
        | (worker[1:] != worker[:-1])
        | (start[1:] != steps.end_ns[order][:-1])
    )
    heads = np.flatnonzero(head)
    if len(heads) == 0:
        return {name: np.empty(0, np.int64) for name in COLUMNS}
    last = np.append(heads[1:], len(order)) - 1
    tokens = np.zeros(len(steps), np.int64)
    own = work.phase == PREFILL
    np.add.at(tokens, work.first_step[own], work.tokens[own])
    serving = _serving(schedule)
    return {
        "worker": worker[heads],
        "phase": phase[heads],
        "bin": bins(steps)[order][heads],
        "start": start[heads],
        "end": steps.end_ns[order][last],
        "rounds": np.add.reduceat(steps.rounds[order], heads),
        "requests": np.maximum.reduceat(serving[order], heads),
        "tokens": tokens[order][heads],
    }


def _serving(schedule: Schedule) -> IntColumn:
    """Return the number of requests that each step serves."""
    steps, work = schedule.steps, schedule.work
    result = np.zeros(len(steps), np.int64)
    work_worker = steps.worker[work.first_step]
    for worker in np.unique(steps.worker):
        for phase in np.unique(steps.phase):
            rows = np.flatnonzero((work.phase == phase) & (work_worker == worker))
            change = np.zeros(len(steps) + 1, np.int64)
            np.add.at(change, work.first_step[rows], 1)
            np.add.at(change, work.last_step[rows] + 1, -1)
            mine = (steps.worker == worker) & (steps.phase == phase)
            result[mine] = np.cumsum(change)[:-1][mine]
    return result
