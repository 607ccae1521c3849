"""How far a run has drifted from what was known of it: early and late ends."""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Running(NamedTuple):
    """Who runs.

    Attributes:
        requests: those whose ends are worked out.
        end: round of the known end of each.
        started: others, as rounds of the start and who started then.
    """

    requests: list[int]
    end: list[int]
    started: Sequence[tuple[int, Sequence[int]]] = ()


class Drift:
    """Known ends of the requests that run, and the clients that are free before or after them.

    Starts are worked out in a later decision, or when somebody asks: a stage has enough to do.

    Args:
        lengths: column of the view; of requests that wait or run it does not change.
        limit: output limit.
        first: 1 if prefill yields the first token, else 0.
    """

    def __init__(self, lengths: Sequence[int], limit: int, first: int) -> None:
        self.lengths, self.limit, self.first = lengths, limit, first
        self._end: dict[int, int] = {}
        self._ends: list[int] = []
        self._early: list[int] = []
        self._started: list[tuple[int, Sequence[int]]] = []

    def start(self, now: int, requests: Sequence[int]) -> None:
        """Take note of starts."""
        self._started.append((now, requests))

    @property
    def unsettled(self) -> bool:
        """Whether there are starts that are not worked out."""
        return bool(self._started)

    def settle(self, but: int = 0) -> None:
        """Work out the ends of those that have started, but for so many of the last stages."""
        count = len(self._started) - but
        if count <= 0:
            return
        lengths, first = self.lengths, self.first
        most = max(1, self.limit - first)
        for now, requests in self._started[:count]:
            rounds = [lengths[request] - first for request in requests]
            if not 1 <= min(rounds) <= max(rounds) <= most:
                rounds = [max(1, min(each, most)) for each in rounds]
            ends = [now + each for each in rounds]
            self._end.update(zip(requests, ends, strict=True))
            self._ends += ends
            self._ends.sort()  # two runs that are in order, or nearly: one pass
        del self._started[:count]

    def finish(self, now: int, request: int) -> None:
        """Take note of an end."""
        self.settle()
        end = self._end.pop(request)
        self._ends.pop(bisect_left(self._ends, end))
        if end > now:
            heappush(self._early, end)

    def surplus(self, now: int) -> int:
        """Return how many more clients are free than the known ends say; negative: fewer."""
        if self._started and self._started[0][0] < now:  # who starts now ends later
            self.settle()
        early = self._early
        while early and early[0] <= now:
            heappop(early)
        return len(early) - bisect_left(self._ends, now)

    def running(self) -> Running:
        """Return who runs."""
        return Running(list(self._end), list(self._end.values()), self._started.copy())
