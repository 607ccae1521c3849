"""The stages of a schedule: prefill stages, mixed steps and the decode stages between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.data.schedule import DECODE
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

COLUMNS = ("worker", "phase", "bin", "start", "end", "rounds", "requests", "prefilled", "tokens")


def bins(instance: Instance, schedule: Schedule) -> IntColumn:
    """Return the bin of each step: the number, from 0, of its worker's latest step that prefills.

    -1 for steps before the first one.
    """
    line = Timeline(instance, schedule)
    result = np.empty(len(line.order), np.int64)
    result[line.order] = _bins(line)
    return result


def _bins(line: Timeline) -> IntColumn:
    """Bin of each step, by place."""
    prefills = line.phase != DECODE
    count = np.cumsum(prefills)
    heads = np.searchsorted(line.worker, line.worker)
    found: IntColumn = count - (count - prefills)[heads] - 1
    return found


def stage_columns(instance: Instance, schedule: Schedule) -> dict[str, IntColumn]:
    """Return the stages in order of worker, then start; a decode stage joins its runs of rounds.

    Columns ``worker, phase, bin, start, end, rounds, requests`` (the most that are served at a
    time), ``prefilled`` (those of them that are prefilled) and ``tokens`` (tokens prefilled).
    """
    line = Timeline(instance, schedule)
    n = len(line.order)
    head = np.ones(n, bool)
    # A step that prefills stands alone; runs of rounds join across no change and no pause.
    head[1:] = (
        (line.phase[1:] != DECODE)
        | (line.phase[1:] != line.phase[:-1])
        | (line.worker[1:] != line.worker[:-1])
        | (line.start_ns[1:] != line.end_ns[:-1])
    )
    heads = np.flatnonzero(head)
    if len(heads) == 0:
        return {name: np.empty(0, np.int64) for name in COLUMNS}
    last = np.append(heads[1:], n) - 1
    prefilled, tokens = line.by_place(line.batches.size), line.by_place(line.batches.total)
    serving = prefilled + line.caches.active
    return {
        "worker": line.worker[heads],
        "phase": line.phase[heads],
        "bin": _bins(line)[heads],
        "start": line.start_ns[heads],
        "end": line.end_ns[last],
        "rounds": np.add.reduceat(line.rounds, heads),
        "requests": np.maximum.reduceat(serving, heads),
        "prefilled": prefilled[heads],
        "tokens": tokens[heads],
    }
