"""How far a run has drifted from what was known of it: early and late ends."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Started = tuple[int, Sequence[int], Sequence[int]]


class Drift:
    """Known ends of the requests that started, and the clients that are free before or after them.

    It need not be known which requests ended: as many should run as have known ends ahead of them.
    Starts are worked out in a later decision, or when they are asked for: a stage has enough to do.

    Args:
        lengths: column of the view; of requests that wait or run it does not change.
        limit: output limit.
        first: 1 if prefill yields the first token, else 0.
    """

    def __init__(self, lengths: Sequence[int] | dict[int, int], limit: int, first: int) -> None:
        self.lengths, self.limit, self.first = lengths, limit, first
        self._ends: list[int] = []  # in order
        self._started: list[_Started] = []

    def start(self, now: int, requests: Sequence[int], rounds: Sequence[int] = ()) -> None:
        """Record starts, and their rounds, in order, where they are worked out."""
        self._started.append((now, requests, rounds))

    @property
    def unsettled(self) -> bool:
        """Whether there are starts that are not worked out."""
        return bool(self._started)

    def settle(self, but: int = 0) -> None:
        """Work out the ends of those that have started, but for a number of the last stages."""
        count = len(self._started) - but
        if count <= 0:
            return
        ends = self._ends
        for now, requests, known in self._started[:count]:
            ends += [now + each for each in known or self._rounds(requests)]
            ends.sort()  # two or three runs that are in order: one pass
        self._forget(self._started[count - 1][0])
        del self._started[:count]

    def _rounds(self, requests: Sequence[int]) -> list[int]:
        lengths, first, most = self.lengths, self.first, max(1, self.limit - self.first)
        rounds = [lengths[request] - first for request in requests]
        if not 1 <= min(rounds) <= max(rounds) <= most:
            rounds = [max(1, min(each, most)) for each in rounds]
        rounds.reverse()  # stages begin with their longest requests
        return rounds

    def _forget(self, now: int) -> None:
        ends = self._ends
        if ends and ends[0] <= now:
            del ends[: bisect_right(ends, now)]

    def surplus(self, now: int, active: int) -> int:
        """Return how many more than those that run should run by the known ends; or fewer: < 0."""
        if self._started and self._started[0][0] < now:  # who starts now ends later
            self.settle()
        self._forget(now)
        just = sum([len(requests) for _, requests, _ in self._started])
        return len(self._ends) + just - active
