"""The gate of the rolling policy."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from orsched.heuristics.shadow_price import ShadowPrice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.heuristics.gates import Waiting
    from orsched.policy import View

_ALL = 2**62
_PART = 16
"""A part is a stage; twice as large ones have parts of so many requests."""


class LaterPrice(ShadowPrice):
    """``shadow_price`` that takes note of starts later, in portions.

    While a plan is followed nobody asks for them, and a stage has little time. What the gate says
    is the same.
    """

    def start(self, view: View) -> None:
        """Read the fixed costs off the worker."""
        super().start(view)
        self._started: list[tuple[int, Sequence[int]]] = []
        self._later: deque[tuple[int, Sequence[int]]] = deque()

    def started(self, view: View, stage: Sequence[int]) -> None:
        """Remember requests that get their clients now."""
        self._started.append((view.rounds, stage))

    def finished(self, view: View, request: int) -> None:
        """Take note of a request's end."""
        assert self.known is not None
        if self._started:
            self.settle(0)
        while self._later and request not in self.known.end_of:
            self.settle(1)
        super().finished(view, request)

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Return 0 when waiting does not pay, else the rounds until the next look."""
        self.settle()
        return super().rounds_to_wait(view, waiting)

    def proven(self, view: View, tolerance: float) -> bool:
        """Whether the ends of requests are known within a share of the usual wait for a stage."""
        if not self.sighted:
            self.settle(0)
        return super().proven(view, tolerance)

    def settle(self, parts: int = _ALL) -> None:
        """Take note of the starts so far, and of the known ends of so many parts of them."""
        assert self.known is not None
        for now, stage in self._started:
            self.learned.start(now, stage)
        self._later += self._started
        self._started.clear()
        while self._later and parts > 0:
            now, stage = self._later.popleft()
            if len(stage) > 2 * _PART:
                self._later.appendleft((now, stage[_PART:]))
                stage = stage[:_PART]
            self.known.start(now, stage)
            parts -= 1
