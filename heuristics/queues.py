"""Queues of waiting requests: one for all clients, or one a client with stealing.

Every operation costs O(log n): nothing is sorted again for a decision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from orsched.heuristics.batch_builder import BatchBuilder

_BITS = 32
_MASK = (1 << _BITS) - 1


class Queues(Protocol):
    """Where requests wait. ``key`` orders a queue (smallest first), ``tokens`` weighs it."""

    queued: int
    """Requests that wait."""

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request, at a client where each has its own queue."""

    def fill(self, clients: Sequence[int], batch: BatchBuilder) -> tuple[list[int], list[int]]:
        """Remove and return requests for these clients in turn, and the clients that get one.

        Ends at the first request that does not fit into the batch.
        """

    def servable(self, idle: Collection[int]) -> int:
        """Return how many of the idle clients could get a request now."""


class Offering(ABC):
    """Base of queues: they offer requests to clients, and a batch builder takes what fits."""

    @abstractmethod
    def offer(self, clients: Sequence[int], places: list[int]) -> Iterator[int]:
        """Yield the requests that these clients would get in turn.

        When the next one is asked for, the one before is taken: it leaves the queue, and its client
        is added to ``places``.
        """

    def fill(self, clients: Sequence[int], batch: BatchBuilder) -> tuple[list[int], list[int]]:
        """Remove and return requests for these clients in turn, and the clients that get one.

        Ends at the first request that does not fit into the batch.
        """
        places: list[int] = []
        return batch.take_offered(self.offer(clients, places), len(clients)), places


class SharedQueue(Offering):
    """One queue for all clients."""

    def __init__(self, clients: int) -> None:
        self.heap: list[int] = []  # (key, request) in one integer
        self.queued = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request; the client does not matter."""
        heappush(self.heap, key << _BITS | request)
        self.queued += 1

    def offer(self, clients: Sequence[int], places: list[int]) -> Iterator[int]:
        """Yield the first requests of the queue, one a client."""
        heap = self.heap
        for client in clients:
            if not heap:
                break
            yield heap[0] & _MASK
            heappop(heap)
            self.queued -= 1
            places.append(client)

    def servable(self, idle: Collection[int]) -> int:
        """Return the smaller of idle clients and waiting requests."""
        return min(len(idle), self.queued)


class ClientQueues(Offering):
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

    def offer(self, clients: Sequence[int], places: list[int]) -> Iterator[int]:
        """Yield each client's own first request, else the one it steals."""
        heaps, remaining = self.heaps, self.remaining
        for client in clients:
            owner, heap = client, heaps[client]
            if not heap:
                if not self.queued:
                    break
                if not self.steal:
                    continue
                owner = self._richest()
                heap = heaps[owner]
            entry = heap[0]
            yield entry >> _BITS & _MASK
            heappop(heap)
            remaining[owner] -= entry & _MASK
            self.queued -= 1
            places.append(client)

    def servable(self, idle: Collection[int]) -> int:
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
