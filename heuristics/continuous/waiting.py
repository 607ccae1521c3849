"""Queues of waiting requests, in order of arrival or by priority with aging."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

from orsched.common.errors import InputError
from orsched.simulator.policy import ClairvoyantView, PredictedView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.heuristics.continuous.params import Ordering
    from orsched.simulator.policy import Information, View

Key = tuple[int, int, int]


class Queue(Protocol):
    """Where requests wait, and which of the running ones is preempted first.

    Attributes:
        arrival_may_lead: whether an arriving request may become the first of several.
    """

    arrival_may_lead: bool

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

    def victim(self, running: Sequence[int]) -> int:
        """Return the request that was admitted last."""
        return running[-1]

    def forget(self, request: int) -> None:
        """Nothing is kept of requests that do not wait."""


class PriorityQueue:
    """Smallest level first, then arrival; the largest of both is preempted first.

    With aging a wait of ``aging_ns`` counts as much as one level: request i is served before j if
    ``level_i - wait_i / aging < level_j - wait_j / aging``. Both wait alike from then on, so the
    order of two requests never changes, and ``level * aging_ns + arrival`` is the key: nothing
    is ever sorted anew.
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
        place = max(range(len(self.heap)), key=self.heap.__getitem__)
        request = self.heap[place][2]
        self.heap[place] = self.heap[-1]
        self.heap.pop()
        heapify(self.heap)
        self._leaves(request)
        del self.keys[request]
        return request

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


def make_queue(instance: Instance, ordering: Ordering, information: Information) -> Queue:
    """Return an empty queue.

    Raises ``InputError`` when lengths should order it that the information class hides.
    """
    if ordering.policy == "fcfs":
        return ArrivalQueue()
    if ordering.priority == "length" and information == "none":
        raise InputError(
            "lengths are not known without information",
            field="priority",
            remedy="run with information predicted or clairvoyant, or order by something else",
        )
    return PriorityQueue(_level(instance, ordering.priority), ordering.aging_ns)


def _level(instance: Instance, priority: str) -> Callable[[View, int], int]:
    if priority == "length":
        return _known_tokens
    if priority == "service_class":
        classes = instance.requests.service_class
        return lambda view, request: int(classes[request])
    return lambda view, request: 0


def _known_tokens(view: View, request: int) -> int:
    if isinstance(view, PredictedView):
        return view.predicted_tokens[request]
    assert isinstance(view, ClairvoyantView)
    return view.output_tokens[request]
