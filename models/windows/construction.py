"""A first state: stages at given times, clients that take the longest waiting request."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from orsched.models.windows.structure import Windows

if TYPE_CHECKING:
    from collections.abc import Sequence


def even_times(stages: int, first: int, end: int) -> list[int]:
    """Return times of stages: ``first`` of them at 0, the others evenly spread before the end."""
    first = min(first, stages)
    rest = stages - first
    return [0] * first + [(k + 1) * end // (rest + 1) for k in range(rest)]


def construct(
    lengths: Sequence[int], clients: int, times: Sequence[int], end: int, limit: int
) -> Windows:
    """Return a state in which every request has a window, though maybe too short a one.

    At each stage the free clients take the longest waiting requests, at most ``limit``. What is
    left at the last stage splits the longest windows of all paths further.
    """
    waiting = sorted(lengths, reverse=True)
    free = list(range(clients))
    busy: list[tuple[int, int]] = []
    paths: list[list[int]] = [[] for _ in range(clients)]
    taken = 0
    counts = [0] * len(times)
    for stage, now in enumerate(times):
        while busy and busy[0][0] <= now:
            free.append(heappop(busy)[1])
        while free and taken < len(waiting) and counts[stage] < limit:
            client = free.pop(0)
            paths[client].append(stage)
            heappush(busy, (now + waiting[taken], client))
            counts[stage] += 1
            taken += 1
    _place_rest(len(waiting) - taken, paths, counts, limit)
    return Windows(lengths, times, end, [path for path in paths if path])


def _place_rest(count: int, paths: list[list[int]], counts: list[int], limit: int) -> None:
    """Give the requests that are left a start in the emptiest stages that a path can take."""
    for _ in range(count):
        order = sorted(range(len(counts)), key=lambda k: counts[k])
        stage, path = next(
            (
                (k, p)
                for k in order
                for p in sorted(paths, key=len)
                if k not in p and counts[k] < max(limit, counts[order[0]] + 1)
            ),
            (order[0], paths[0]),
        )
        path.append(stage)
        path.sort()
        counts[stage] += 1
