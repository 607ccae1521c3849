"""Queues of waiting requests: one for all clients, or one a client with stealing.

Every operation costs O(log n): nothing is sorted anew for a decision.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol


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
        self.heaps: list[list[tuple[int, int, int]]] = [[] for _ in range(clients)]
        self.steal = steal
        self.remaining = [0] * clients
        # Largest remaining first; entries whose value is out of date are dropped when met.
        self.richest: list[tuple[int, int]] = []
        self.queued = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request at a client."""
        heappush(self.heaps[client], (key, request, tokens))
        self._change(client, tokens)
        self.queued += 1

    def peek(self, client: int) -> int:
        """Return the client's first request, else the one it would steal, else -1."""
        owner = self._owner(client)
        return self.heaps[owner][0][1] if owner >= 0 else -1

    def pop(self, client: int) -> int:
        """Remove and return the request that ``peek`` shows."""
        owner = self._owner(client)
        _, request, tokens = heappop(self.heaps[owner])
        self._change(owner, -tokens)
        self.queued -= 1
        return request

    def servable(self, idle: set[int]) -> int:
        """Return how many of the idle clients could get a request now."""
        if self.steal:
            return min(len(idle), self.queued)
        heaps = self.heaps
        return sum(1 for client in idle if heaps[client])

    def _owner(self, client: int) -> int:
        if self.heaps[client]:
            return client
        if not self.steal or not self.queued:
            return -1
        richest, remaining = self.richest, self.remaining
        while -richest[0][0] != remaining[richest[0][1]]:
            heappop(richest)
        return richest[0][1]

    def _change(self, client: int, tokens: int) -> None:
        self.remaining[client] += tokens
        if self.steal and self.remaining[client]:
            heappush(self.richest, (-self.remaining[client], client))
