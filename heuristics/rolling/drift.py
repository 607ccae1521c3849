"""How far a run has drifted from what was known of it: early and late ends."""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Drift:
    """Known ends of the requests that run, and the clients that are free before or after them.

    Attributes:
        end: request -> round of its known end, of those that run.
        begin: request -> round of its start.
    """

    def __init__(self) -> None:
        self.end: dict[int, int] = {}
        self.begin: dict[int, int] = {}
        self._ends: list[int] = []
        self._early: list[int] = []

    def start(self, now: int, requests: Sequence[int], rounds: Sequence[int]) -> None:
        """Take note of starts, each with its known rounds."""
        ends = [now + each for each in rounds]
        self.begin.update(dict.fromkeys(requests, now))
        self.end.update(zip(requests, ends, strict=True))
        self._ends += ends
        self._ends.sort()

    def finish(self, now: int, request: int) -> None:
        """Take note of an end."""
        end = self.end.pop(request)
        del self.begin[request]
        self._ends.pop(bisect_left(self._ends, end))
        if end > now:
            heappush(self._early, end)

    def surplus(self, now: int) -> int:
        """Return how many more clients are free than the known ends say; negative: fewer."""
        early = self._early
        while early and early[0] <= now:
            heappop(early)
        return len(early) - bisect_left(self._ends, now)
