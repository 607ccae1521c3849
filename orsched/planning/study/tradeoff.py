"""Two results against each other: which points no other one beats in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Point = tuple[float, float]


def pareto_front(points: Sequence[Point], better_x: int, better_y: int) -> list[Point]:
    """Return the points that none beats, in order of x; ``better``: 1 for more, -1 for less.

    A point is beaten by one that is at least as good in both, and better in one.
    """
    front: list[Point] = []
    best: float | None = None
    # From the best x on, each point has to be better in y than all before it.
    for x, y in sorted(set(points), key=lambda p: (-better_x * p[0], -better_y * p[1])):
        if best is None or better_y * y > better_y * best:
            front.append((x, y))
            best = y
    return sorted(front)
