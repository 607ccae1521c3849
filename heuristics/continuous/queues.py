"""Queues of waiting requests: by arrival, by a rank, and by groups of which lengths are learned."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orsched.simulator.policy import View

Key = tuple[int, int, int]


class Queue(Protocol):
    """Where requests wait, and which of the running ones is preempted first."""

    arrival_may_lead: bool  # whether an arriving request may become the first of several

    def __len__(self) -> int:
        """Return how many requests wait."""

    def put(self, view: View, request: int) -> None:
        """Queue a request that has arrived."""

    def put_back(self, request: int) -> None:
        """Queue a request that was preempted."""

    def first(self) -> int:
        """Return the request that is next."""

    def pop(self) -> int:
        """Remove and return the request that is next."""

    def surrender(self) -> int:
        """Remove and return the request that is last."""

    def oldest(self) -> int:
        """Return the waiting request that arrived first."""

    def victim(self, running: Sequence[int]) -> int:
        """Return the one to preempt of those running, in order of admission."""

    def forget(self, request: int) -> None:
        """Take note that a request is done."""


class ArrivalQueue:
    """First come first served; preempted requests go to the front, the last admitted first."""

    arrival_may_lead = False

    def __init__(self) -> None:
        self.requests: deque[int] = deque()

    def __len__(self) -> int:
        return len(self.requests)

    def put(self, view: View, request: int) -> None:
        """Append the request."""
        self.requests.append(request)

    def put_back(self, request: int) -> None:
        """Let the request be the next."""
        self.requests.appendleft(request)

    def first(self) -> int:
        """Return the first request."""
        return self.requests[0]

    def pop(self) -> int:
        """Remove and return the first request."""
        return self.requests.popleft()

    def surrender(self) -> int:
        """Remove and return the last request."""
        return self.requests.pop()

    def oldest(self) -> int:
        """Return the first request."""
        return self.requests[0]

    def remove(self, request: int) -> None:
        """Remove a request, wherever it is."""
        self.requests.remove(request)

    def victim(self, running: Sequence[int]) -> int:
        """Return the request that was admitted last."""
        return running[-1]

    def forget(self, request: int) -> None:
        """Nothing is kept of requests that do not wait."""


class PriorityQueue:
    """Smallest level first, then arrival; the largest of both is preempted first.

    With aging, request i is served before j if ``level_i - wait_i / aging < level_j - wait_j /
    aging``. Both age equally from then on, so the order of two requests never changes, and
    ``level * aging_ns + arrival`` is the key: nothing is ever sorted again.
    """

    arrival_may_lead = True

    def __init__(self, level: Callable[[View, int], int], aging_ns: int | None) -> None:
        self.level = level
        self.aging_ns = aging_ns
        self.heap: list[Key] = []
        self.keys: dict[int, Key] = {}
        self.waits: set[int] = set()
        self.arrivals: deque[int] = deque()

    def __len__(self) -> int:
        return len(self.heap)

    def put(self, view: View, request: int) -> None:
        """Queue the request by its key."""
        level, arrival = self.level(view, request), view.arrival_ns[request]
        if self.aging_ns is not None:
            level = level * self.aging_ns + arrival
        self.keys[request] = (level, arrival, request)
        self.arrivals.append(request)
        self.put_back(request)

    def put_back(self, request: int) -> None:
        """Queue the request by the key that it has."""
        heappush(self.heap, self.keys[request])
        self.waits.add(request)

    def first(self) -> int:
        """Return the request of the smallest key."""
        return self.heap[0][2]

    def pop(self) -> int:
        """Remove and return the request of the smallest key."""
        request = heappop(self.heap)[2]
        self._leaves(request)
        return request

    def surrender(self) -> int:
        """Remove and return the request of the largest key."""
        request = max(self.heap)[2]
        self.remove(request)
        return request

    def remove(self, request: int) -> None:
        """Remove a request, wherever it is."""
        place = self.heap.index(self.keys.pop(request))
        self.heap[place] = self.heap[-1]
        self.heap.pop()
        heapify(self.heap)
        self._leaves(request)

    def _leaves(self, request: int) -> None:
        self.waits.remove(request)
        while self.arrivals and self.arrivals[0] not in self.waits:
            self.arrivals.popleft()

    def oldest(self) -> int:
        """Return the waiting request that arrived first, of those that never were preempted."""
        return self.arrivals[0]

    def victim(self, running: Sequence[int]) -> int:
        """Return the request of the largest key."""
        return max(running, key=self.keys.__getitem__)

    def forget(self, request: int) -> None:
        """Drop the key."""
        del self.keys[request]


def popped(queue: Queue, most: int) -> Iterator[int]:
    """Offer the first of a queue, and pop it when the next is asked for."""
    for _ in range(most):
        yield queue.first()
        queue.pop()


class GroupQueue:
    """Waiting requests by group: next is one of the group with the longest samples so far.

    A group's length is the mean of its samples that are done. One that has none done is before all
    others, first that with the fewest begun: each group is probed, and one whose samples run on
    without an end is long. Ties go by row. With ``shortest`` the least mean is next.
    """

    arrival_may_lead = True

    def __init__(self, order: str) -> None:
        self.sign = -1 if order == "longest" else 1
        self.waiting: dict[int, deque[int]] = {}
        self.begun: dict[int, int] = {}
        self.done: dict[int, tuple[int, int]] = {}  # group -> samples done, and their tokens
        self.group: dict[int, int] = {}  # of requests that are not done
        self.count = 0
        self.best: int | None = None  # the group that is next, if it is known

    def __len__(self) -> int:
        return self.count

    def _rank(self, group: int) -> tuple[float, int]:
        done, tokens = self.done.get(group, (0, 0))
        if not done:
            return float("-inf"), self.begun.get(group, 0)
        return self.sign * tokens / done, 0

    def _next(self) -> int:
        if self.best is None:
            self.best = min(self.waiting, key=lambda group: (self._rank(group), group))
        return self.best

    def put(self, view: View, request: int) -> None:
        """Queue a request that has arrived; without groups each is one of its own."""
        self.group[request] = request if view.group is None else view.group[request]
        self.waiting.setdefault(self.group[request], deque()).append(request)
        self.count, self.best = self.count + 1, None

    def put_back(self, request: int) -> None:
        """Let the request be the next of its group."""
        self.waiting.setdefault(self.group[request], deque()).appendleft(request)
        self.count, self.best = self.count + 1, None

    def first(self) -> int:
        """Return the first request of the group that is next."""
        return self.waiting[self._next()][0]

    def pop(self) -> int:
        """Remove and return the first request of the group that is next."""
        group = self._next()
        request = self.waiting[group].popleft()
        self.begun[group] = self.begun.get(group, 0) + 1
        self._shrink(group)
        return request

    def _shrink(self, group: int) -> None:
        if not self.waiting[group]:
            del self.waiting[group]
        self.count, self.best = self.count - 1, None

    def surrender(self) -> int:
        """Remove and return the last request of the group that is last."""
        group = max(self.waiting, key=lambda group: (self._rank(group), group))
        request = self.waiting[group].pop()
        self._shrink(group)
        return request

    def oldest(self) -> int:
        """Return the first of the waiting requests by row."""
        return min(requests[0] for requests in self.waiting.values())

    def victim(self, running: Sequence[int]) -> int:
        """Return the request that was admitted last."""
        return running[-1]

    def forget(self, request: int) -> None:
        """Drop the request, of which its group may have learned."""
        del self.group[request]

    def learn(self, request: int, tokens: int) -> None:
        """Take note of how long a request was."""
        group = self.group[request]
        done, total = self.done.get(group, (0, 0))
        self.done[group] = done + 1, total + tokens
        self.best = None
