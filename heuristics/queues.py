"""Queues of waiting requests: one for all clients, or one a client with stealing.

Every operation costs O(log n): nothing is sorted anew for a decision.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import Protocol

_BITS = 32
_MASK = (1 << _BITS) - 1


class Queues(Protocol):
    """Where requests wait. ``key`` orders a queue (smallest first), ``tokens`` weighs it."""

    queued: int
    """Requests that wait."""

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request, at a client where each has its own queue."""

    def peek(self, client: int) -> int:
        """Return the request that this client would get, or -1."""

    def pop(self, client: int) -> int:
        """Remove and return the request that ``peek`` shows."""

    def servable(self, idle: set[int]) -> int:
        """Return how many of the idle clients could get a request now."""


class SharedQueue:
    """One queue for all clients."""

    def __init__(self, clients: int) -> None:
        self.heap: list[tuple[int, int]] = []
        self.queued = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request; the client does not matter."""
        heappush(self.heap, (key, request))
        self.queued += 1

    def peek(self, client: int) -> int:
        """Return the first request, or -1."""
        return self.heap[0][1] if self.heap else -1

    def pop(self, client: int) -> int:
        """Remove and return the first request."""
        self.queued -= 1
        return heappop(self.heap)[1]

    def servable(self, idle: set[int]) -> int:
        """Return the smaller of idle clients and waiting requests."""
        return min(len(idle), self.queued)


class ClientQueues:
    """One queue a client; with ``steal`` an idle client whose own is empty takes from another's.

    It steals the first request of the queue with the most remaining tokens (Pang, Algorithm 1).
    """

    def __init__(self, clients: int, steal: bool) -> None:
        # Entries are (key, request, tokens) in one integer, which compares faster than a tuple.
        self.heaps: list[list[int]] = [[] for _ in range(clients)]
        self.steal = steal
        self.remaining = [0] * clients
        # Clients, largest first, by upper bounds of what remains: taking a request costs nothing
        # here. `listed` holds each client's bound in force; others are dropped when met.
        self.richest: list[tuple[int, int]] = []
        self.listed = [0] * clients
        self.queued = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request at a client."""
        heappush(self.heaps[client], (key << _BITS | request) << _BITS | tokens)
        self.remaining[client] += tokens
        self.queued += 1
        if self.steal and self.remaining[client] > self.listed[client]:
            self.listed[client] = self.remaining[client]
            heappush(self.richest, (-self.remaining[client], client))

    def peek(self, client: int) -> int:
        """Return the client's first request, else the one it would steal, else -1."""
        heap = self.heaps[client]
        if not heap:
            owner = self._richest() if self.steal and self.queued else -1
            if owner < 0:
                return -1
            heap = self.heaps[owner]
        return heap[0] >> _BITS & _MASK

    def pop(self, client: int) -> int:
        """Remove and return the request that ``peek`` shows."""
        heap = self.heaps[client]
        if not heap:
            client = self._richest()
            heap = self.heaps[client]
        entry = heappop(heap)
        self.remaining[client] -= entry & _MASK
        self.queued -= 1
        return entry >> _BITS & _MASK

    def servable(self, idle: set[int]) -> int:
        """Return how many of the idle clients could get a request now."""
        if self.steal:
            return min(len(idle), self.queued)
        heaps = self.heaps
        return sum(1 for client in idle if heaps[client])

    def _richest(self) -> int:
        """Return the client whose queue holds the most tokens; some queue is not empty."""
        richest, remaining, listed = self.richest, self.remaining, self.listed
        while True:
            negative, client = richest[0]
            left = remaining[client]
            if left + negative == 0:
                return client
            if negative + listed[client]:
                heappop(richest)
                continue
            listed[client] = left
            if left:
                heapreplace(richest, (-left, client))
            else:
                heappop(richest)
