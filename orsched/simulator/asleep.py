"""The workers that wait to be asked, in order of their numbers."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.simulator.policy import WorkerState
    from orsched.simulator.run_state import RunState

NOBODY = 2**62
"""Comes after every worker."""


class Asleep(set[int]):
    """The workers that sleep, and which of them are to be asked.

    Whoever sleeps may be woken together with all others. They are then asked one by one, the first
    first, and as a rule the first that is asked takes what there is: nothing is done for those
    that are not asked any more.

    The views of those that sleep show the time of the run.
    """

    def __init__(self, run_state: RunState, states: Sequence[WorkerState]) -> None:
        super().__init__()
        self.run_state, self.states = run_state, states
        self.order: list[int] = []
        self.since = [0] * len(states)  # which sleep it is, counted over all workers
        self.count = 0
        self.woken = 0  # those are woken whose sleep is not a later one
        self.next = NOBODY  # the first that may have been woken

    def add(self, index: int) -> None:
        """Let a worker sleep."""
        if index not in self:
            super().add(index)
            insort(self.order, index)
            self.states[index].clock = self.run_state
        self.count += 1
        self.since[index] = self.count

    def remove(self, index: int) -> None:
        """Let a worker sleep no longer."""
        super().remove(index)
        del self.order[bisect_left(self.order, index)]
        self.states[index].clock = None

    def discard(self, index: object) -> None:
        """Let a worker sleep no longer, if it does."""
        if isinstance(index, int) and index in self:
            self.remove(index)

    def wake(self) -> None:
        """Let all be asked that sleep now."""
        self.woken, self.next = self.count, 0

    def settle(self) -> None:
        """Let those that were woken and not asked yet sleep on."""
        self.next = NOBODY

    def first_woken(self) -> int | None:
        """Return the first that is to be asked; it stays the first until it is removed."""
        if self.next == NOBODY:
            return None
        order, since, woken = self.order, self.since, self.woken
        for place in range(bisect_left(order, self.next), len(order)):
            index = order[place]
            if since[index] <= woken:
                self.next = index
                return index
        self.next = NOBODY
        return None
