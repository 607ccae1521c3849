"""Continuous batching of a limited number of requests, however many clients the worker has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.data.step import FINISH, Step
from orsched.heuristics.continuous.continuous_batching import ContinuousBatching
from orsched.heuristics.continuous.running import UNLIMITED
from orsched.heuristics.continuous.waiting import PriorityQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.heuristics.continuous.params import ContinuousParams
    from orsched.heuristics.continuous.running import Plan
    from orsched.simulator.policy import Information, View


class LimitedQueue(PriorityQueue):
    """A queue by priority that seems to hold no more requests than there is room for.

    Attributes:
        room: how many requests may be taken.
    """

    def __init__(self, level: Callable[[View, int], int], aging_ns: int | None) -> None:
        super().__init__(level, aging_ns)
        self.room = UNLIMITED

    def __len__(self) -> int:
        """Return how many requests may be taken."""
        return min(len(self.heap), self.room)

    def pop(self) -> int:
        """Remove and return the request of the smallest key."""
        self.room -= 1
        return super().pop()


class LimitedBatching(ContinuousBatching):
    """Iterations of at most ``most`` requests; early finishers are replaced from the queue (Orca).

    No request is preempted for a shorter one; where paged memory runs out, the largest key is.
    """

    def __init__(
        self,
        params: ContinuousParams,
        information: Information,
        queue: LimitedQueue,
        most: int | None,
    ) -> None:
        super().__init__(params, information, queue)
        self.limited = queue
        self.most = UNLIMITED if most is None else most

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.limited.heap)

    def decide(self, view: View) -> Step | None:
        """Return the next step, with the queue closed at the limit."""
        self.limited.room = self.most - len(view.running)
        return super().decide(view)

    def _rounds(self, view: View, plan: Plan) -> Step:
        """Return rounds that arrivals do not end when the batch is full."""
        step = super()._rounds(view, plan)
        if step.rounds > 1 and self.limited.room <= 0:
            return step._replace(until=FINISH)
        return step
