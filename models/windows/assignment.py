"""Requests into windows: by sorting, then by swaps until every stage holds its prompts.

Sorting both by length fits every request if any assignment does. It leaves prompts to chance, so
requests that fit into each other's windows are swapped while a stage exceeds its token limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.columns import IntColumn
    from orsched.models.windows.structure import Windows

MAX_SWAPS = 5_000
FEW_REQUESTS, MAX_STEPS = 30, 5_000
"""Up to this many requests every assignment is tried, in so many steps."""


class Assigned(NamedTuple):
    """A request for each window.

    Attributes:
        request: request of each window.
        stage: stage in which each window begins.
    """

    request: IntColumn
    stage: IntColumn


def assign(
    state: Windows, lengths: IntColumn, prompts: IntColumn, limits: Sequence[int | None]
) -> Assigned | None:
    """Return an assignment in which no stage exceeds its limit of tokens, or None if none is found.

    The state must have V = 0. Deterministic.
    """
    spans = state.spans()
    stage = np.array(state.tables.start, np.int64)
    request = np.empty(len(spans), np.int64)
    request[np.argsort(-spans, kind="stable")] = np.argsort(-lengths, kind="stable")
    if (lengths[request] > spans).any():
        return None
    total = int(prompts.sum())
    most = np.array([total if limit is None else limit for limit in limits], np.int64)
    if _level_prompts(request, stage, spans, lengths, prompts, most):
        return Assigned(request, stage)
    if len(request) > FEW_REQUESTS:
        return None
    found = _Exhaustive(stage, spans, lengths, prompts, most).found
    return None if found is None else Assigned(np.array(found, np.int64), stage)


class _Exhaustive:
    """Every way to assign few requests, the longest to be placed first, up to a number of steps."""

    def __init__(
        self,
        stage: IntColumn,
        spans: IntColumn,
        lengths: IntColumn,
        prompts: IntColumn,
        limit: IntColumn,
    ) -> None:
        self.stage, self.spans = stage.tolist(), spans.tolist()
        self.lengths, self.prompts = lengths.tolist(), prompts.tolist()
        self.free = limit.tolist()
        self.order = np.lexsort((-prompts, -lengths)).tolist()
        self.request = [-1] * len(self.stage)
        self.steps = MAX_STEPS
        self.found = self.request if self._place(0) else None

    def _place(self, position: int) -> bool:
        """Place the requests from a position of the order on."""
        if position == len(self.order):
            return True
        self.steps -= 1
        mine = self.order[position]
        tried = set()
        for window, stage in enumerate(self.stage):
            same = (stage, self.spans[window])
            fits = (
                self.lengths[mine] <= self.spans[window] and self.prompts[mine] <= self.free[stage]
            )
            if self.request[window] >= 0 or not fits or same in tried or self.steps < 0:
                continue
            tried.add(same)
            self.request[window] = mine
            self.free[stage] -= self.prompts[mine]
            if self._place(position + 1):
                return True
            self.request[window] = -1
            self.free[stage] += self.prompts[mine]
        return False


def _level_prompts(
    request: IntColumn,
    stage: IntColumn,
    spans: IntColumn,
    lengths: IntColumn,
    prompts: IntColumn,
    limit: IntColumn,
) -> bool:
    """Swap requests between windows, in place, until no stage is over its limit."""
    load = np.bincount(stage, weights=prompts[request], minlength=len(limit)).astype(np.int64)
    for _ in range(MAX_SWAPS):
        worst = int(np.argmax(load - limit))
        if load[worst] <= limit[worst]:
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
    limit: IntColumn,
) -> tuple[int, int] | None:
    """Return the two windows whose swap lowers the total excess most, or None.

    Among equal swaps the one that leaves the receiving stage with most room.
    """
    found: tuple[int, int] | None = None
    best = (0, 0)
    over = int(load[worst] - limit[worst])
    free = limit[stage] - load[stage]
    for here in np.flatnonzero(stage == worst).tolist():
        mine = request[here]
        moved = prompts[mine] - prompts[request]
        fits = (lengths[mine] <= spans) & (lengths[request] <= spans[here]) & (stage != worst)
        fits &= moved > 0
        if not fits.any():
            continue
        after = np.maximum(moved - free, 0) - np.maximum(-free, 0)
        gain = np.where(fits, np.minimum(moved, over) - after, -1)
        room = free - moved
        score = gain * 2**32 + np.clip(room, -(2**31), 2**31 - 1)
        there = int(np.argmax(score))
        value = (int(gain[there]), int(room[there]))
        if value[0] > 0 and value > best:
            best, found = value, (here, there)
    return found
