"""Least value among the lines of a window, where queries and windows only move on."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orsched.models.batch.pieces import Pieces
    from orsched.models.batch.problem import Problem


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
