"""Queues of waiting requests: one for all clients, or one a client with stealing.

Every operation costs O(log n): nothing is sorted anew for a decision.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    Prompts = Sequence[int] | memoryview

_UNLIMITED = 2**62
_BITS = 32
_MASK = (1 << _BITS) - 1


class Room(NamedTuple):
    """What a prefill stage may hold.

    Attributes:
        tokens: most prompt tokens, or None.
        blocks: free memory blocks, or None.
        blocks_of: memory blocks of a request; asked only where ``blocks`` is given.
    """

    tokens: int | None
    blocks: int | None
    blocks_of: Callable[[int], int]


class Queues(Protocol):
    """Where requests wait. ``key`` orders a queue (smallest first), ``tokens`` weighs it."""

    queued: int
    """Requests that wait."""

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request, at a client where each has its own queue."""

    def fill(
        self, clients: Iterable[int], prompts: Prompts, room: Room
    ) -> tuple[list[int], list[int]]:
        """Remove and return requests for these clients in turn, and the clients that get one.

        Ends at the first request that does not fit into the room that is left.
        """

    def servable(self, idle: Collection[int]) -> int:
        """Return how many of the idle clients could get a request now."""


class SharedQueue:
    """One queue for all clients."""

    def __init__(self, clients: int) -> None:
        self.heap: list[int] = []  # (key, request) in one integer
        self.queued = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request; the client does not matter."""
        heappush(self.heap, key << _BITS | request)
        self.queued += 1

    def fill(
        self, clients: Iterable[int], prompts: Prompts, room: Room
    ) -> tuple[list[int], list[int]]:
        """Take the first requests of the queue, one a client."""
        heap, blocks, blocks_of = self.heap, room.blocks, room.blocks_of
        tokens = _UNLIMITED if room.tokens is None else room.tokens
        stage: list[int] = []
        places: list[int] = []
        for client in clients:
            if not heap:
                break
            request = heap[0] & _MASK
            tokens -= prompts[request]
            if tokens < 0:
                break
            if blocks is not None:
                blocks -= blocks_of(request)
                if blocks < 0:
                    break
            heappop(heap)
            stage.append(request)
            places.append(client)
        self.queued = len(heap)
        return stage, places

    def servable(self, idle: Collection[int]) -> int:
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

    def fill(
        self, clients: Iterable[int], prompts: Prompts, room: Room
    ) -> tuple[list[int], list[int]]:
        """Take each client's own first request, else the one it steals."""
        heaps, remaining = self.heaps, self.remaining
        blocks, blocks_of = room.blocks, room.blocks_of
        tokens = _UNLIMITED if room.tokens is None else room.tokens
        stage: list[int] = []
        places: list[int] = []
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
            request = entry >> _BITS & _MASK
            tokens -= prompts[request]
            if tokens < 0:
                break
            if blocks is not None:
                blocks -= blocks_of(request)
                if blocks < 0:
                    break
            heappop(heap)
            remaining[owner] -= entry & _MASK
            self.queued -= 1
            stage.append(request)
            places.append(client)
        return stage, places

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
