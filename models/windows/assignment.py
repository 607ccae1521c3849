"""Requests into windows: by sorting, then by swaps until every stage holds its prompts.

Sorting both by length fits every request if any assignment does. It leaves prompts to chance, so
requests that fit into each other's windows are swapped while a stage exceeds its token limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.models.windows.structure import Windows

MAX_SWAPS = 5_000


class Assigned(NamedTuple):
    """A request for each window.

    Attributes:
        request: request of each window.
        stage: stage in which each window begins.
    """

    request: IntColumn
    stage: IntColumn


def assign(
    state: Windows, lengths: IntColumn, prompts: IntColumn, limit: int | None
) -> Assigned | None:
    """Return an assignment in which no stage exceeds ``limit`` tokens, or None if none is found.

    The state must have V = 0. Deterministic.
    """
    spans = np.array([state.length(w) for w in range(len(state.start))], np.int64)
    stage = np.array(state.start, np.int64)
    request = np.empty(len(spans), np.int64)
    request[np.argsort(-spans, kind="stable")] = np.argsort(-lengths, kind="stable")
    if (lengths[request] > spans).any():
        return None
    if limit is not None and not _level_prompts(
        state.stages, request, stage, spans, lengths, prompts, limit
    ):
        return None
    return Assigned(request, stage)


def _level_prompts(
    stages: int,
    request: IntColumn,
    stage: IntColumn,
    spans: IntColumn,
    lengths: IntColumn,
    prompts: IntColumn,
    limit: int,
) -> bool:
    """Swap requests between windows, in place, until no stage is over the limit."""
    load = np.bincount(stage, weights=prompts[request], minlength=stages).astype(np.int64)
    for _ in range(MAX_SWAPS):
        worst = int(np.argmax(load))
        if load[worst] <= limit:
            return True
        swap = _best_swap(worst, load, request, stage, spans, lengths, prompts, limit)
        if swap is None:
            return False
        here, there = swap
        moved = int(prompts[request[here]] - prompts[request[there]])
        load[worst] -= moved
        load[stage[there]] += moved
        request[here], request[there] = request[there], request[here]
    return False


def _best_swap(
    worst: int,
    load: IntColumn,
    request: IntColumn,
    stage: IntColumn,
    spans: IntColumn,
    lengths: IntColumn,
    prompts: IntColumn,
    limit: int,
) -> tuple[int, int] | None:
    """Return the two windows whose swap lowers the total excess most, or None.

    Among equal swaps the one that leaves the receiving stage with most room.
    """
    found: tuple[int, int] | None = None
    best = (0, 0)
    over = int(load[worst]) - limit
    for here in np.flatnonzero(stage == worst).tolist():
        mine = request[here]
        moved = prompts[mine] - prompts[request]
        fits = (lengths[mine] <= spans) & (lengths[request] <= spans[here]) & (stage != worst)
        fits &= moved > 0
        if not fits.any():
            continue
        after = np.maximum(load[stage] + moved - limit, 0) - np.maximum(load[stage] - limit, 0)
        gain = np.where(fits, np.minimum(moved, over) - after, -1)
        room = limit - load[stage] - moved
        score = gain * 2**32 + np.clip(room, -(2**31), 2**31 - 1)
        there = int(np.argmax(score))
        value = (int(gain[there]), int(room[there]))
        if value[0] > 0 and value > best:
            best, found = value, (here, there)
    return found
