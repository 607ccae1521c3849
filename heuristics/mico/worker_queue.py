"""A cloud's waiting requests in order."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = tuple[int, int, int]
"""Rank, arrival and request."""


class WorkerQueue:
    """Smallest key first: a sorted queue, and a heap of those that belong in its middle.

    Requests that come in order, wave by wave, cost no more than the sorting of each wave.
    """

    def __init__(self) -> None:
        self.ordered: deque[Key] = deque()
        self.others: list[Key] = []

    def __len__(self) -> int:
        return len(self.ordered) + len(self.others)

    def extend(self, keys: Iterable[Key]) -> None:
        """Let requests wait."""
        ordered = sorted(keys)
        if not self.ordered or self.ordered[-1] < ordered[0]:
            self.ordered.extend(ordered)
            return
        for key in ordered:
            heappush(self.others, key)

    def first(self) -> int:
        """Return the request that is next."""
        others = self.others
        if others and (not self.ordered or others[0] < self.ordered[0]):
            return others[0][2]
        return self.ordered[0][2]

    def pop(self) -> int:
        """Remove and return the request that is next."""
        others = self.others
        if others and (not self.ordered or others[0] < self.ordered[0]):
            return heappop(others)[2]
        return self.ordered.popleft()[2]
