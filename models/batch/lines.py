"""The recurrence of SCLS eq. (10) as queries of lines, in exact integers of any size.

T is kept in pieces: runs of positions of one group whose last batch begins at the same position.
On a piece T is linear with slope A, so a later query needs one candidate of it: its last position
if A grows with the length, its first one in the window if A falls. A group costs a few queries,
one a piece, however many requests it has. ``docs/batcher.md`` has the proof.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from orsched.models.batch.hulls import Hulls
from orsched.models.batch.pieces import Pieces
from orsched.models.batch.queue import Queue

if TYPE_CHECKING:
    from orsched.models.batch.pieces import Finder
    from orsched.models.batch.problem import Problem


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
