"""Least value among the lines of a window, where queries and windows only move on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orsched.models.batch.problem import Problem


class Queue:
    """Candidates in the order in which they will be best, each with the position where it ends.

    If A never falls and windows only advance, a later candidate that is as good as an earlier one
    at some position stays so at every later one. So each candidate is best on one run of
    positions, and these runs are in order. Candidate c hands over to a later d at the first
    position where d is as good *or c has left the window*. The usual hull of lines forgets the
    second and drops d while an even later e is below, although c may leave before e is best.
    """

    def __init__(self, problem: Problem) -> None:
        self.slopes = problem.slopes
        self.ends = problem.ends
        self.sizes = problem.sizes
        self.starts = [0, *problem.ends][:-1]
        self.lows = [
            start + 1 - size for start, size in zip(self.starts, problem.sizes, strict=True)
        ]
        self.never = len(problem) + 1
        # (j, T[j], last position with j in its window, first position where it is best)
        self.waiting: deque[tuple[int, int, int, int]] = deque()

    def add(self, j: int, time: int) -> None:
        """Add position j, larger than all before; T is known up to the end of its group."""
        group = bisect_right(self.lows, j) - 1
        last = min(j + self.sizes[group], self.ends[group])
        waiting, slopes = self.waiting, self.slopes
        begin = j + 1
        while waiting:
            other, other_time, other_last, other_begin = waiting[-1]
            # As good from the first A that is at least this quotient, rounded up.
            where = bisect_left(slopes, -((other_time - time) // (j - other)))
            begin = self.starts[where] + 1 if where < len(slopes) else self.never
            if begin > other_last:
                begin = other_last + 1
            if begin > other_begin:
                break
            waiting.pop()
        else:
            begin = j + 1
        if begin <= last:
            waiting.append((j, time, last, begin))

    def front(self, i: int) -> tuple[int, int]:
        """Return (j, T[j]) of the best candidate at position i; i never falls."""
        waiting = self.waiting
        while len(waiting) > 1 and waiting[1][3] <= i:
            waiting.popleft()
        return waiting[0][:2]
