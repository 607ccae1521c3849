"""The one queue of all workers: heaps by size class, so that each worker finds what suits it."""

from __future__ import annotations

from heapq import heappop, heappush


class WaitingRequests:
    """Waiting requests by key, in one heap for each doubling of the prompt.

    Keys never change while a request waits, so nothing is ever sorted anew.
    """

    def __init__(self) -> None:
        self.heaps: dict[int, list[tuple[int, int]]] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def put(self, size_class: int, key: int, request: int) -> None:
        """Queue a request."""
        heappush(self.heaps.setdefault(size_class, []), (key, request))
        self.count += 1

    def heads(self) -> list[tuple[int, int, int]]:
        """Return key, request and class of the first of each class, as a heap."""
        return sorted((*heap[0], each) for each, heap in self.heaps.items() if heap)

    def pop(self, size_class: int) -> tuple[int, int, int] | None:
        """Remove the first of a class; return the next one as ``heads`` has it."""
        heap = self.heaps[size_class]
        heappop(heap)
        self.count -= 1
        return (*heap[0], size_class) if heap else None
