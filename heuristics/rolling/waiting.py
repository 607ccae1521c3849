"""The requests that wait, longest first, of which some are planned for a stage."""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from orsched.heuristics.queues import Offering

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from orsched.heuristics.batch_builder import BatchBuilder

_BITS = 32
_MASK = (1 << _BITS) - 1
_GONE, _WAITS, _LATE = 0, 1, 2


class Changes(NamedTuple):
    """What has changed since the last snapshot.

    Attributes:
        came: requests that have come to wait.
        went: those that wait no longer.
        over: what is needed no more: the background frees it, which takes a while.
    """

    came: list[int]
    went: list[int]
    over: list[object]


class WaitingRequests(Offering):
    """One queue for all clients, from which named requests can be taken as well.

    Lists that are in order come with a plan, from the background; only what has come since is
    put in order here, as it comes. Those gone stay in the lists until their turn.

    Attributes:
        there: by request row, 0 for those that do not wait, 2 for those that had a turn of the plan
            that is followed but did not fit, 1 for the others.
        queued: how many wait.
        takes: how often requests were taken.
    """

    def __init__(self) -> None:
        self.there = bytearray()
        self._late: list[int] = []  # who was late; they may have gone since
        self._all = array("q")  # of the plan: what waited at its snapshot, longest last
        self._spare = array("q")  # of them, those that have no stage
        self._came: list[int] = []  # heap: what is not in the first list
        self._new = self._came  # heap: what is not in the second list; the same without a plan
        self._since: list[int] = []  # heap: what has arrived since the last snapshot
        self._changes = Changes([], [], [])
        self.queued = self.takes = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request; the client does not matter."""
        there = self.there
        if request >= len(there):
            there.extend(bytes(request + 1))
        there[request] = _WAITS
        entry = entry_of(request, key)
        heappush(self._came, entry)
        if self._new is not self._came:
            heappush(self._new, entry)
        heappush(self._since, entry)
        self._changes.came.append(request)
        self.queued += 1

    def take(self, requests: list[int]) -> None:
        """Remove requests."""
        there = self.there
        for request in requests:
            there[request] = _GONE
        self._changes.went.extend(requests)
        self.takes += 1
        self.queued -= len(requests)

    def postpone(self, requests: Sequence[int]) -> None:
        """Record requests that wait and are late."""
        for request in requests:
            self.there[request] = _LATE
        self._late.extend(requests)

    def _nobody_is_late(self) -> None:
        there = self.there
        for request in self._late:
            if there[request]:
                there[request] = _WAITS
        self._late.clear()

    def snapshot(self) -> Changes:
        """Return what has changed since the last snapshot."""
        changes, self._changes = self._changes, Changes([], [], [])
        changes.over.append(self._since)
        self._since = []
        return changes

    def retire(self, *over: object) -> None:
        """Let the background free something."""
        self._changes.over.append(over)

    def plan(self, everyone: array[int], spare: array[int]) -> None:
        """Take up the lists of a plan, which are those of the last snapshot.

        ``everyone`` are the entries of all that waited when it was taken, the longest last,
        ``spare`` those of them that have no stage in the plan.
        """
        self.retire(self._all, self._spare, self._came, self._new)
        self._nobody_is_late()
        self._all, self._spare = everyone, spare
        self._came, self._new = self._since.copy(), self._since.copy()

    def unplan(self) -> None:
        """Drop the plan."""
        self.retire(self._spare, self._new)
        self._nobody_is_late()
        self._spare, self._new = self._all, self._came

    def unplanned(self, count: int) -> list[int]:
        """Return up to a number of the longest requests that no plan has a stage for."""
        if not self._new:
            return self._longest_spare(count)
        spare, new, there = self._spare, self._new, self.there
        found: list[int] = []
        kept: tuple[list[int], list[int]] = [], []
        while len(found) < count and (spare or new):
            old = bool(spare) and (not new or spare[-1] < new[0])
            entry = spare.pop() if old else heappop(new)
            request = entry & _MASK
            if there[request] == _WAITS:
                found.append(request)
                kept[old].append(entry)
        spare.extend(reversed(kept[True]))
        for entry in kept[False]:
            heappush(new, entry)
        return found

    def _longest_spare(self, count: int) -> list[int]:
        """Return up to a number of the longest in the list of those without a stage."""
        spare, there, some = self._spare, self.there, count
        while spare and there[spare[-1] & _MASK] != _WAITS:
            spare.pop()
        while True:
            longest = spare[-some:].tolist()
            longest.reverse()
            found = [each for entry in longest if there[each := entry & _MASK] == _WAITS]
            if len(found) >= count or some >= len(spare):
                return found[:count]
            some *= 2

    def offer(self, clients: Sequence[int], places: list[int]) -> Iterator[int]:
        """Yield the first requests of the queue, planned or not, one a client."""
        known, came = self._all, self._came
        for client in clients:
            request = self._first()
            if request is None:
                break
            yield request
            if known and (not came or known[-1] < came[0]):
                known.pop()
            else:
                heappop(came)
            places.append(client)

    def fill(self, clients: Sequence[int], batch: BatchBuilder) -> tuple[list[int], list[int]]:
        """Remove and return requests for these clients, and the clients that get one."""
        stage, places = super().fill(clients, batch)
        self.take(stage)
        return stage, places

    def _first(self) -> int | None:
        """Return the longest request, or None; it is the first of its list then."""
        known, came, there = self._all, self._came, self.there
        while known or came:
            old = bool(known) and (not came or known[-1] < came[0])
            request = (known[-1] if old else came[0]) & _MASK
            if there[request]:
                return request
            if old:
                known.pop()
            else:
                heappop(came)
        return None

    def servable(self, idle: Collection[int]) -> int:
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
        self._waiting: dict[int, None] = {}

    def hand_over(self, changes: Changes) -> None:
        """Record changes, later; nothing may be added to these lists any more."""
        self._changes.append(changes)

    def requests(self) -> list[int]:
        """Return the requests that wait after all changes; called in the background alone."""
        while self._changes:
            came, went, _ = self._changes.popleft()
            self._waiting.update(dict.fromkeys(came))
            for request in went:
                del self._waiting[request]
        return list(self._waiting)
