"""The recurrence of SCLS eq. (10) as queries of lines, in exact integers of any size.

T is kept in pieces: runs of positions of one group whose last batch begins at the same position.
On a piece T is linear with slope A, so a later query needs one candidate of it: its last position
if A grows with the length, its first one in the window if A falls. A group costs a few queries,
one a piece, however many requests it has. ``docs/batcher.md`` has the proof.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

from orsched.models.batch.hulls import Hulls
from orsched.models.batch.queue import Queue

if TYPE_CHECKING:
    from orsched.models.batch.problem import Problem


class Finder(Protocol):
    """Finds the best start among the positions before the group that is filled."""

    def best(self, i: int, low: int, slope: int) -> tuple[int, int]:
        """Return (U, j) with the least ``U = T[j] - slope j`` for j from ``low``; largest j."""

    def absorb(self, first: int, low: int) -> None:
        """Take in the pieces from index ``first``; ``low``: begin of the next group's windows."""


class Pieces:
    """Runs of positions with one split: parallel lists, in order, the first for position 0."""

    def __init__(self) -> None:
        self.ends = [0]
        self.splits = [0]
        self.levels = [0]  # U: T minus the group's slope times the position
        self.slopes = [0]

    def add(self, end: int, split: int, level: int, slope: int) -> None:
        """Append the run up to ``end``."""
        self.ends.append(end)
        self.splits.append(split)
        self.levels.append(level)
        self.slopes.append(slope)

    def start(self, index: int) -> int:
        """First position of a run."""
        return self.ends[index - 1] + 1 if index else 0

    def time(self, index: int, position: int) -> int:
        """T of a position of a run."""
        return self.levels[index] + self.slopes[index] * position


class LastPositions:
    """For A that grows: the last position of each piece, in a queue or in hulls."""

    def __init__(self, pieces: Pieces, problem: Problem, ordered: bool) -> None:
        self.pieces = pieces
        self.queue = Queue(problem) if ordered else None
        self.hulls = Hulls()
        self.absorb(0, 0)

    def best(self, i: int, low: int, slope: int) -> tuple[int, int]:
        """See ``Finder``."""
        if self.queue is not None:
            j, time = self.queue.front(i)
            return time - slope * j, j
        found = self.hulls.query(bisect_left(self.pieces.ends, low, hi=self.hulls.lines), slope)
        assert found is not None  # the position before the group is always there
        return found

    def absorb(self, first: int, low: int) -> None:
        """See ``Finder``."""
        pieces = self.pieces
        if self.queue is None:
            for index in range(first, len(pieces.ends)):
                self.hulls.add(pieces.ends[index], pieces.time(index, pieces.ends[index]))
            return
        for index in range(max(first, bisect_left(pieces.ends, low)), len(pieces.ends)):
            self.queue.add(pieces.ends[index], pieces.time(index, pieces.ends[index]))


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
        if base > 0:
            _fill(pieces, finder, start, end, size, slope, base)
        else:
            _fill_alone(pieces, finder, start, end, size, slope, base)
        finder.absorb(first, end + 1 - next_size)
    i = len(problem)
    found = [i]
    while i > 0:
        i = pieces.splits[bisect_left(pieces.ends, i)]
        found.append(i)
    return found[::-1]


def structure(problem: Problem) -> str:
    """Say which structure the checked conditions allow."""
    conditions = problem.conditions()
    if conditions["slope_grows"] and conditions["windows_advance"]:
        return "a queue of candidates: A grows, windows advance"
    broken = [name for name in ("slope_grows", "windows_advance") if not conditions[name]]
    return f"a tree of hulls: {' and '.join(broken)} not met"


def _finder(pieces: Pieces, problem: Problem) -> Finder:
    conditions = problem.conditions()
    if not conditions["slope_grows"]:
        return FirstPositions(pieces)
    return LastPositions(pieces, problem, conditions["windows_advance"])


def _fill(
    pieces: Pieces, finder: Finder, start: int, end: int, size: int, slope: int, base: int
) -> None:
    """Add the pieces of a group; a batch has a positive fixed time.

    U never falls within the group: of its own pieces the first one in the window is the best.
    """
    ends, levels, splits, slopes = pieces.ends, pieces.levels, pieces.splits, pieces.slopes
    own = len(ends)
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
        slopes.append(slope)
        i += 1


def _fill_alone(
    pieces: Pieces, finder: Finder, start: int, end: int, size: int, slope: int, base: int
) -> None:
    """Add the pieces of a group whose batches cost nothing but their requests: each alone.

    Only the batch with the group's first request may hold more.
    """
    level, split = finder.best(start + 1, max(0, start + 1 - size), slope)
    for i in range(start + 1, end + 1):
        level += base
        pieces.add(i, split, level, slope)
        split = i
