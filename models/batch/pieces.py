"""T as runs of positions with one split, on each of which it is linear."""

from __future__ import annotations

from typing import Protocol


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
