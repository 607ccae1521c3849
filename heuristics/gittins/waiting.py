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
        self._heads: list[tuple[int, int, int]] | None = None

    def __len__(self) -> int:
        return self.count

    def put(self, size_class: int, key: int, request: int) -> None:
        """Queue a request."""
        heap = self.heaps.setdefault(size_class, [])
        heappush(heap, (key, request))
        self.count += 1
        if heap[0][1] == request:
            self._heads = None

    def heads(self) -> list[tuple[int, int, int]]:
        """Return key, request and class of the first of each class, in order.

        The list is the caller's once one of them is taken; before that it must not be changed.
        """
        if self._heads is None:
            self._heads = sorted((*heap[0], each) for each, heap in self.heaps.items() if heap)
        return self._heads

    def pop(self, size_class: int) -> tuple[int, int, int] | None:
        """Remove the first of a class; return the next one as ``heads`` has it."""
        heap = self.heaps[size_class]
        heappop(heap)
        self.count -= 1
        self._heads = None
        return (*heap[0], size_class) if heap else None
