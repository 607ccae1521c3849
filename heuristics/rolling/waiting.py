"""The requests that wait, longest first, of which some are planned for a stage."""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.heuristics.queues import Prompts, Room

_BITS = 32
_MASK = (1 << _BITS) - 1
_UNLIMITED = 2**62
Changes = tuple[list[int], list[int]]
"""Requests that have come to wait, and those that wait no longer."""


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
        self._spare = array("q")  # of the plan: who waited then and has no stage, longest last
        self._new = self._heap  # who has come since; all, without a plan
        self._since: list[int] = []  # who has come since the last snapshot
        self._changes: Changes = [], []
        self.queued = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request; the client does not matter."""
        self.key[request] = key
        entry = entry_of(request, key)
        heappush(self._heap, entry)
        if self._new is not self._heap:
            heappush(self._new, entry)
        self._since.append(entry)
        self._changes[0].append(request)
        self.queued += 1

    def take(self, requests: list[int]) -> None:
        """Remove requests."""
        for request in requests:
            del self.key[request]
        self.planned.difference_update(requests)
        self._changes[1].extend(requests)
        self.queued -= len(requests)

    def snapshot(self) -> Changes:
        """Return what has changed since the last snapshot."""
        changes, self._changes, self._since = self._changes, ([], []), []
        return changes

    def plan(self, requests: set[int], spare: array[int]) -> None:
        """Let those with a stage in the plan of the last snapshot be the planned ones.

        ``spare`` are the entries of the others that waited when it was taken, the longest last.
        """
        self.planned, self._spare, self._new = requests, spare, self._since.copy()
        heapify(self._new)

    def unplan(self) -> None:
        """Let nobody be planned."""
        self.planned, self._spare, self._new = set(), array("q"), self._heap

    def unplanned(self, count: int) -> list[int]:
        """Return up to so many of the longest requests that no plan has a stage for."""
        spare, new = self._spare, self._new
        found: list[int] = []
        kept: tuple[list[int], list[int]] = [], []
        while len(found) < count and (spare or new):
            old = bool(spare) and (not new or spare[-1] < new[0])
            entry = spare.pop() if old else heappop(new)
            request = entry & _MASK
            if request in self.key and request not in self.planned:
                found.append(request)
                kept[old].append(entry)
        spare.extend(reversed(kept[True]))
        for entry in kept[False]:
            heappush(new, entry)
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
            self.take([request])
            stage.append(request)
            places.append(client)
        return stage, places

    def servable(self, idle: set[int]) -> int:
        """Return the smaller of idle clients and waiting requests."""
        return min(len(idle), self.queued)


def entry_of(request: int, key: int) -> int:
    """Return a request and its place in the order as one integer."""
    return key << _BITS | request


class Copy:
    """The requests that wait, as the background knows them.

    It is handed what has changed, so that a decision copies nothing that grows with the queue.
    """

    def __init__(self) -> None:
        self._changes: deque[Changes] = deque()
        self._retired: list[object] = []
        self._waiting: dict[int, None] = {}

    def hand_over(self, changes: Changes) -> None:
        """Take note of changes, later; nothing may be added to these lists any more."""
        self._changes.append(changes)

    def retire(self, *plan: object) -> None:
        """Let a plan that is over be freed in the background: it takes a while."""
        self._retired.append(plan)

    def requests(self) -> list[int]:
        """Return who waits after all changes; called in the background alone."""
        self._retired.clear()
        while self._changes:
            came, went = self._changes.popleft()
            self._waiting.update(dict.fromkeys(came))
            for request in went:
                del self._waiting[request]
        return list(self._waiting)
