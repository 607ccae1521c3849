"""The queue of a worker that takes requests over: what has just come is not preempted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.continuous.waiting import ArrivalQueue

if TYPE_CHECKING:
    from collections.abc import Sequence


class DecodeQueue(ArrivalQueue):
    """First come first served; the victim is the last admitted that has decoded here.

    Attributes:
        fresh: request -> tokens by the time it was taken over, until it has decoded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fresh: dict[int, int] = {}

    def victim(self, running: Sequence[int]) -> int:
        """Return the last admitted request that is not fresh.

        There is one where memory is short: blocks for its next token are kept with a fresh one.
        """
        return next((each for each in reversed(running) if each not in self.fresh), running[-1])

    def forget(self, request: int) -> None:
        """Take note that a request is done."""
        self.fresh.pop(request, None)
