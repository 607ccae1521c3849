"""The requests that wait, longest first, of which some are planned for a stage."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.heuristics.queues import Prompts, Room

_BITS = 32
_MASK = (1 << _BITS) - 1
_UNLIMITED = 2**62


class WaitingRequests:
    """One queue for all clients, from which named requests can be taken as well.

    Attributes:
        key: request -> its place in the order, of all that wait.
        planned: those of them that a plan has a stage for.
        queued: how many wait.
    """

    def __init__(self) -> None:
        self.key: dict[int, int] = {}
        self.planned: set[int] = set()
        self._heap: list[int] = []  # all, and some that are gone
        self._free: list[int] = []  # those that were not planned when they came
        self.queued = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request; the client does not matter."""
        self.key[request] = key
        entry = key << _BITS | request
        heappush(self._heap, entry)
        heappush(self._free, entry)
        self.queued += 1

    def take(self, request: int) -> None:
        """Remove a request."""
        del self.key[request]
        self.planned.discard(request)
        self.queued -= 1

    def plan(self, requests: set[int], freed: Iterable[int]) -> None:
        """Let these requests be the planned ones; ``freed`` have been and are not any more."""
        self.planned = requests
        for request in freed:
            if request in self.key and request not in requests:
                heappush(self._free, self.key[request] << _BITS | request)

    def unplanned(self, count: int) -> list[int]:
        """Return up to so many of the longest requests that no plan has a stage for."""
        free = self._free
        found: list[int] = []
        seen: list[int] = []  # one that was planned for a time is there twice
        while free and len(found) < count:
            entry = heappop(free)
            request = entry & _MASK
            known = seen and seen[-1] == entry
            if request in self.key and request not in self.planned and not known:
                found.append(request)
                seen.append(entry)
        for entry in seen:
            heappush(free, entry)
        return found

    def first(self) -> int | None:
        """Return the longest request, or None."""
        heap = self._heap
        while heap:
            request = heap[0] & _MASK
            if request in self.key:
                return request
            heappop(heap)
        return None

    def fill(
        self, clients: Iterable[int], prompts: Prompts, room: Room
    ) -> tuple[list[int], list[int]]:
        """Take the first requests of the queue, planned or not, one a client."""
        tokens = _UNLIMITED if room.tokens is None else room.tokens
        blocks = room.blocks
        stage: list[int] = []
        places: list[int] = []
        for client in clients:
            request = self.first()
            if request is None:
                break
            tokens -= prompts[request]
            if tokens < 0:
                break
            if blocks is not None:
                blocks -= room.blocks_of(request)
                if blocks < 0:
                    break
            self.take(request)
            stage.append(request)
            places.append(client)
        return stage, places

    def servable(self, idle: set[int]) -> int:
        """Return the smaller of idle clients and waiting requests."""
        return min(len(idle), self.queued)
