"""The one queue of all workers: heaps by size class, so that each worker finds what suits it."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TypeAlias

from orsched.heuristics.gittins.lengths import Lengths
from orsched.heuristics.gittins.own_lengths import OwnLengths

Waiting: TypeAlias = tuple[int, int, int, int, int, int, Lengths | OwnLengths]
"""A request that waits: key, row, size class, tokens to prefill, how many requests had come when it
came to wait, tokens that it has yielded, and its lengths or its group's. Key and row sort it."""


class WaitingRequests:
    """Waiting requests by key, in one heap for each doubling of the prompt.

    Keys never change while a request waits, so nothing is ever sorted again.

    Attributes:
        heads: the first of each class, in order; only ``put`` and ``pop`` change it.
        count: how many requests wait.
    """

    def __init__(self) -> None:
        self.heaps: dict[int, list[Waiting]] = {}
        self.heads: list[Waiting] = []
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def put(self, waiting: Waiting) -> None:
        """Queue a request."""
        self.count += 1
        heap = self.heaps.get(waiting[2])
        if not heap:
            self.heaps[waiting[2]] = [waiting]
            insort(self.heads, waiting)
            return
        first = heap[0]
        heappush(heap, waiting)
        if heap[0] is waiting:
            del self.heads[bisect_left(self.heads, first)]
            insort(self.heads, waiting)

    def pop(self, place: int) -> None:
        """Remove a head; the next of its class is at the same place or later."""
        heap = self.heaps[self.heads.pop(place)[2]]
        heappop(heap)
        self.count -= 1
        if heap:
            insort(self.heads, heap[0], place)
