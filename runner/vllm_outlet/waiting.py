"""A waiting queue with the methods of vLLM's ``RequestQueue``, in the order of given keys."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Key = tuple[int, int]


class OrderedRequests:
    """Requests by key, the smallest first; those put back keep their places.

    All operations are logarithmic but removal, which looks at all, as in vLLM's own queues.
    """

    def __init__(self, key: Callable[[Any], Key]) -> None:
        self._key = key
        self._heap: list[tuple[Key, Any]] = []

    def add_request(self, request: Any) -> None:
        """Queue a request by its key."""
        heappush(self._heap, (self._key(request), request))

    def pop_request(self) -> Any:
        """Remove and return the next request; ``IndexError`` if there is none."""
        return heappop(self._heap)[1]

    def peek_request(self) -> Any:
        """Return the next request; ``IndexError`` if there is none."""
        return self._heap[0][1]

    def prepend_request(self, request: Any) -> None:
        """Queue a request that was preempted or passed over, by the key that it has."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Queue several such requests."""
        for request in requests:
            self.add_request(request)

    def remove_request(self, request: Any) -> None:
        """Remove a request; ``ValueError`` if it does not wait."""
        left = [entry for entry in self._heap if entry[1] is not request]
        if len(left) == len(self._heap):
            raise ValueError("the request does not wait")
        self._heap = left
        heapify(self._heap)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Remove those of some requests that wait."""
        gone = {id(request) for request in requests}
        self._heap = [entry for entry in self._heap if id(entry[1]) not in gone]
        heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the requests, the next one first."""
        return (request for _, request in sorted(self._heap, key=lambda entry: entry[0]))
