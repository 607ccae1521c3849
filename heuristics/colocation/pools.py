"""Bulk requests that wait, by arrival or by the prefixes that they share."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.instance import Instance


class Pool(Protocol):
    """Where bulk requests wait."""

    def __len__(self) -> int:
        """Return how many requests wait."""

    def add(self, request: int) -> None:
        """Take a request that has arrived."""

    def put_back(self, request: int) -> None:
        """Take a request that was preempted."""

    def take(self, request: int) -> None:
        """Let go of a request that is admitted."""

    def last(self) -> int:
        """Return the request that would be served last."""


class ArrivalPool:
    """First come first served; preempted requests go to the front, the last admitted first."""

    def __init__(self) -> None:
        self.requests: deque[int] = deque()

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, request: int) -> None:
        """Append the request."""
        self.requests.append(request)

    def put_back(self, request: int) -> None:
        """Let the request be the next."""
        self.requests.appendleft(request)

    def take(self, request: int) -> None:
        """Let go of a request."""
        if self.requests[0] == request:
            self.requests.popleft()
        else:
            self.requests.remove(request)

    def first(self) -> int:
        """Return the request that is next."""
        return self.requests[0]

    def last(self) -> int:
        """Return the request that came last."""
        return self.requests[-1]


class PrefixGroups:
    """Requests by the whole shared prefix that they have, in the order of a walk of the tree.

    Requests with the same chain of prefix identifiers are a *group*. Sorted by their chains the
    groups stand in the order in which a depth-first walk of the radix tree meets them: groups that
    share a long prefix are neighbours. Requests without prefixes are one group, by arrival.

    Attributes:
        groups: chain -> its waiting requests, those that were preempted first.
        chains: the chains with waiting requests, sorted.
    """

    def __init__(self, instance: Instance) -> None:
        prefixes = instance.requests.prefixes
        self.ids = None if prefixes is None else prefixes.ids.astype(">i8")
        self.offsets = [] if prefixes is None else prefixes.offsets.tolist()
        self.known: dict[int, bytes] = {}  # last identifier -> chain
        self.chains: list[bytes] = []
        self.groups: dict[bytes, deque[int]] = {}
        self.waits = 0

    def __len__(self) -> int:
        return self.waits

    def chain(self, request: int) -> bytes:
        """Return the chain of a request; chains compare as their identifiers do."""
        if self.ids is None:
            return b""
        begin, end = self.offsets[request], self.offsets[request + 1]
        if begin == end:
            return b""
        last = int(self.ids[end - 1])
        if last not in self.known:
            self.known[last] = np.ascontiguousarray(self.ids[begin:end]).tobytes()
        return self.known[last]

    def _group(self, request: int) -> deque[int]:
        chain = self.chain(request)
        group = self.groups.get(chain)
        if group is None:
            group = self.groups[chain] = deque()
            insort(self.chains, chain)
        self.waits += 1
        return group

    def add(self, request: int) -> None:
        """Put the request behind those of its group."""
        self._group(request).append(request)

    def put_back(self, request: int) -> None:
        """Put the request before those of its group."""
        self._group(request).appendleft(request)

    def take(self, request: int) -> None:
        """Let go of a request."""
        chain = self.chain(request)
        group = self.groups[chain]
        if group[0] == request:
            group.popleft()
        else:
            group.remove(request)
        self.waits -= 1
        if not group:
            del self.groups[chain]
            del self.chains[bisect_left(self.chains, chain)]

    def last(self) -> int:
        """Return the last request of the last group."""
        return self.groups[self.chains[-1]][-1]

    def heads(self) -> Iterator[int]:
        """Yield the first request of each group, in the order of the walk."""
        for chain in self.chains:
            yield self.groups[chain][0]

    def next_after(self, chain: bytes) -> int:
        """Return the first request of the group of a chain, or of the next one in the walk."""
        place = bisect_left(self.chains, chain)
        return self.groups[self.chains[place % len(self.chains)]][0]
