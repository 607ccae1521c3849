"""The recurrence of SCLS eq. (10) as queries of lines, in exact integers of any size.

T is kept in pieces: runs of positions of one group whose last batch begins at the same position.
On a piece T is linear with slope A, so a later query needs one candidate of it: its last position
if A grows with the length, its first one in the window if A falls. A group costs a few queries,
one a piece, however many requests it has. ``docs/batcher.md`` has the proof.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orsched.models.batch.problem import Problem


class Pieces:
    """Runs of positions whose last batch begins at the same position, in parallel lists.

    The first run is position 0 alone, where T is 0.
    """

    def __init__(self) -> None:
        self.ends = [0]
        self.splits = [0]
        self.levels = [0]  # U: T minus the group's slope times the position
        self.slopes = [0]

    def start(self, index: int) -> int:
        """First position of a run."""
        return self.ends[index - 1] + 1 if index else 0

    def time(self, index: int, position: int) -> int:
        """T of a position of a run."""
        return self.levels[index] + self.slopes[index] * position


class Finder(Protocol):
    """Finds the best start of a batch among the positions before the group that is filled."""

    def best(self, i: int, low: int, slope: int) -> tuple[int, int]:
        """Return (U, j) with the least ``U = T[j] - slope j`` for j from ``low``, the largest j.

        ``i`` is the position after the batch; it never falls from call to call.
        """

    def absorb(self, first: int, low: int) -> None:
        """Take in the pieces from index ``first``; later windows begin at ``low`` or after it.

        The second half is promised only where windows advance.
        """


class Queue:
    """The last positions of pieces in the order in which they will be best.

    If A never falls and windows only advance, a later candidate that is as good as an earlier one
    at some position stays so at every later one. So each candidate is best on one run of
    positions, and these runs are in order. Candidate c hands over to a later d at the first
    position where d is as good *or c has left the window*. The usual hull of lines forgets the
    second and drops d while an even later e is below, although c may leave before e is best.
    """

    def __init__(self, pieces: Pieces, problem: Problem) -> None:
        self.pieces = pieces
        self.slopes = problem.slopes
        self.ends = problem.ends
        self.sizes = problem.sizes
        self.starts = [0, *problem.ends][:-1]
        # First position of the first window of each group; the last entry is beyond all.
        self.lows = [
            start + 1 - size for start, size in zip(self.starts, problem.sizes, strict=True)
        ]
        self.lows.append(len(problem) + 1)
        self.starts.append(len(problem))  # what is best there is best nowhere
        self.leaving = 0  # the last group whose first window holds the newest candidate
        # (T[j], j, first position where it is best, last position with j in its window)
        self.waiting: deque[tuple[int, int, int, int]] = deque()
        self.absorb(0, 0)

    def best(self, i: int, low: int, slope: int) -> tuple[int, int]:
        """See ``Finder``."""
        waiting = self.waiting
        while len(waiting) > 1 and waiting[1][2] <= i:
            waiting.popleft()
        time, j, _, _ = waiting[0]
        return time - slope * j, j

    def absorb(self, first: int, low: int) -> None:
        """See ``Finder``."""
        ends, levels = self.pieces.ends, self.pieces.levels
        slopes, starts, lows, waiting = self.slopes, self.starts, self.lows, self.waiting
        own = self.pieces.slopes[-1]  # all are of one group
        group = self.leaving
        for index in range(max(first, bisect_left(ends, low, lo=first)), len(ends)):
            j = ends[index]
            time = levels[index] + own * j
            while lows[group + 1] <= j:
                group += 1
            last = min(j + self.sizes[group], self.ends[group])
            begin = j + 1
            while waiting:
                other_time, other, other_begin, other_last = waiting[-1]
                # As good from the first A that is at least this quotient, rounded up.
                begin = starts[bisect_left(slopes, -((other_time - time) // (j - other)))] + 1
                if begin > other_last:
                    begin = other_last + 1
                if begin > other_begin:
                    break
                waiting.pop()
            if begin <= last:
                waiting.append((time, j, begin, last))
        self.leaving = group


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


class LastPositions:
    """For A that grows: the last position of each piece, windows in any order."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.hulls = Hulls()
        self.absorb(0, 0)

    def best(self, i: int, low: int, slope: int) -> tuple[int, int]:
        """See ``Finder``."""
        found = self.hulls.query(bisect_left(self.pieces.ends, low, hi=self.hulls.lines), slope)
        assert found is not None  # the position before the group is always there
        return found

    def absorb(self, first: int, low: int) -> None:
        """See ``Finder``."""
        for index in range(first, len(self.pieces.ends)):
            end = self.pieces.ends[index]
            self.hulls.add(end, self.pieces.time(index, end))


class FirstPositions:
    """For A that falls: the first position of each piece; one piece may be cut by the window."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.hulls = Hulls()
        self.absorb(0, 0)

    def best(self, i: int, low: int, slope: int) -> tuple[int, int]:
        """See ``Finder``."""
        cut = bisect_left(self.pieces.ends, low, hi=self.hulls.lines)
        j = max(low, self.pieces.start(cut))
        own = self.pieces.time(cut, j) - slope * j, j
        whole = self.hulls.query(cut + 1, slope)
        return own if whole is None or own[0] < whole[0] else whole

    def absorb(self, first: int, low: int) -> None:
        """See ``Finder``."""
        for index in range(first, len(self.pieces.ends)):
            start = self.pieces.start(index)
            self.hulls.add(start, self.pieces.time(index, start))


def boundaries(problem: Problem) -> list[int]:
    """Return the positions between batches, 0 and n included, ties to the smaller last batch."""
    pieces = Pieces()
    finder = _finder(pieces, problem)
    following = [*problem.sizes, 1][1:]
    for (start, end, size, slope, base), next_size in zip(problem.groups(), following, strict=True):
        first = len(pieces.ends)
        fill = _fill if base > 0 else _fill_alone
        fill(pieces, finder, start, end, size, slope, base)
        finder.absorb(first, end + 1 - next_size)
    i = len(problem)
    found = [i]
    while i > 0:
        i = pieces.splits[bisect_left(pieces.ends, i)]
        found.append(i)
    return found[::-1]


def structure(problem: Problem) -> str:
    """Say which structure the checked conditions allow."""
    broken = [name for name in ("slope_grows", "windows_advance") if not problem.conditions[name]]
    if not broken:
        return "a queue of candidates: A grows, windows advance"
    return f"a tree of hulls: {' and '.join(broken)} not met"


def _finder(pieces: Pieces, problem: Problem) -> Finder:
    if not problem.conditions["slope_grows"]:
        return FirstPositions(pieces)
    if not problem.conditions["windows_advance"]:
        return LastPositions(pieces)
    return Queue(pieces, problem)


def _fill(
    pieces: Pieces, finder: Finder, start: int, end: int, size: int, slope: int, base: int
) -> None:
    """Add the pieces of a group; a batch has a positive fixed time.

    U never falls within the group: of its own pieces the first one in the window is the best.
    """
    ends, levels, splits = pieces.ends, pieces.levels, pieces.splits
    own = first = len(ends)
    i = start + 1
    while i <= end:
        if own < len(ends) and ends[own] + size < i:
            own += 1
        if i <= start + size:
            level, split = finder.best(i, max(0, i - size), slope)
            if own < len(ends) and levels[own] <= level:
                level, split = levels[own], ends[own]
        else:
            level, split = levels[own], ends[own]
        i = min(split + size, end)
        ends.append(i)
        splits.append(split)
        levels.append(level + base)
        i += 1
    pieces.slopes += [slope] * (len(ends) - first)


def _fill_alone(
    pieces: Pieces, finder: Finder, start: int, end: int, size: int, slope: int, base: int
) -> None:
    """Add the pieces of a group whose batches cost nothing but their requests: each alone.

    Only the batch with the group's first request may hold more.
    """
    level, split = finder.best(start + 1, max(0, start + 1 - size), slope)
    count = end - start
    pieces.ends += range(start + 1, end + 1)
    pieces.splits += [split, *range(start + 1, end)]
    pieces.levels += [level + base * k for k in range(1, count + 1)]
    pieces.slopes += [slope] * count
