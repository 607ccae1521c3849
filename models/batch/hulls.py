"""Least value among the lines of a suffix, for queries and suffixes in any order."""

from __future__ import annotations


class Hulls:
    """Lines ``T - A j`` with growing j; one lower hull for each aligned run of 1, 2, 4, ... lines.

    The runs are those of a segment tree. A run's hull is merged from its halves' when its last
    line comes, so that adding n lines takes O(n log n) steps; a query of the lines from any index
    to the last splits into O(log n) runs and bisects the hull of each. Nothing is assumed of the
    order of the queries: this is what stands in where a queue of lines would be wrong.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.levels: list[list[list[tuple[int, int]]]] = [[]]

    def add(self, j: int, time: int) -> None:
        """Add the line of position j, larger than all before, whose T is ``time``."""
        self.levels[0].append([(j, time)])
        self.lines += 1
        level, count = 0, self.lines
        while count % 2 == 0:
            runs = self.levels[level]
            level += 1
            if level == len(self.levels):
                self.levels.append([])
            self.levels[level].append(_merge(runs[-2], runs[-1]))
            count //= 2

    def query(self, first: int, slope: int) -> tuple[int, int] | None:
        """Return the least ``T - slope j`` among lines from index ``first`` on, and its j.

        Ties go to the largest j. None if there is no such line.
        """
        best: tuple[int, int] | None = None
        while first < self.lines:
            level = (self.lines - first).bit_length() - 1
            if first:
                level = min(level, (first & -first).bit_length() - 1)
            j, time = _lowest(self.levels[level][first >> level], slope)
            value = time - slope * j
            if best is None or value <= best[0]:
                best = value, j
            first += 1 << level
        return best


def _merge(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Hull of two hulls; the larger A, the larger the j of the lowest line."""
    hull = list(left)
    for j3, t3 in right:
        while len(hull) > 1:
            (j1, t1), (j2, t2) = hull[-2], hull[-1]
            # The middle line is lowest (ties to the later) for A from the first quotient up to
            # the second: nowhere if they are not in order.
            if (t2 - t1) * (j3 - j2) < (t3 - t2) * (j2 - j1):
                break
            hull.pop()
        hull.append((j3, t3))
    return hull


def _lowest(hull: list[tuple[int, int]], slope: int) -> tuple[int, int]:
    low, high = 0, len(hull) - 1
    while low < high:
        middle = (low + high) // 2
        (j1, t1), (j2, t2) = hull[middle], hull[middle + 1]
        if t2 - t1 <= slope * (j2 - j1):
            low = middle + 1
        else:
            high = middle
    return hull[low]
