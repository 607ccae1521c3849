"""How many of the newest lengths are at most so long: asked far more often than one is added."""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from typing import Protocol

import numpy as np

KEPT = 4096
"""Lengths that are kept; the oldest are forgotten."""
_LARGEST_TABLE = 1 << 16


class RecentLengths(Protocol):
    """The newest lengths: ``lengths.at_most[x]`` of the ``lengths.size`` are at most ``x``."""

    size: int

    @property
    def at_most(self) -> AtMost:
        """Counts by length, from 0 to the longest that can be."""

    def add(self, length: int) -> None:
        """Record a length, and forget the oldest if there are too many."""


class AtMost(Protocol):
    """What can be asked with an index."""

    def __getitem__(self, length: int, /) -> int:
        """Return how many are at most so long."""


class SortedLengths:
    """The lengths in order: it takes a search to count, and no memory for what has not been."""

    def __init__(self, kept: int = KEPT) -> None:
        self.kept = kept
        self.lengths: list[int] = []
        self.order: list[int] = []
        self.oldest = 0
        self.size = 0

    @property
    def at_most(self) -> SortedLengths:
        """Counts by length."""
        return self

    def __getitem__(self, length: int) -> int:
        """Return how many are at most so long."""
        return bisect_right(self.lengths, length)

    def add(self, length: int) -> None:
        """Record a length, and forget the oldest if there are too many."""
        insort(self.lengths, length)
        if self.size < self.kept:
            self.order.append(length)
            self.size += 1
            return
        self.lengths.pop(bisect_right(self.lengths, self.order[self.oldest]) - 1)
        self.order[self.oldest] = length
        self.oldest = (self.oldest + 1) % self.kept


class LengthTable:
    """The same as a table of counts by length: an entry to count, a slice of it to add."""

    def __init__(self, limit: int, kept: int = KEPT) -> None:
        self.kept = kept
        self.at_most = array("i", [0]) * (limit + 1)
        self._table = np.frombuffer(self.at_most, np.int32)
        self._order: list[int] = []
        self._oldest = 0
        self.size = 0

    def add(self, length: int) -> None:
        """Record a length, and forget the oldest if there are too many."""
        if self.size < self.kept:
            self._order.append(length)
            self.size += 1
            self._table[length:] += 1
            return
        oldest = self._order[self._oldest]
        self._order[self._oldest] = length
        self._oldest = (self._oldest + 1) % self.kept
        if length < oldest:
            part = self._table[length:oldest]
            part += 1
        elif length > oldest:
            part = self._table[oldest:length]
            part -= 1


def recent_lengths(limit: int) -> RecentLengths:
    """Return a table unless lengths up to the limit would make it large."""
    return LengthTable(limit) if limit < _LARGEST_TABLE else SortedLengths()
