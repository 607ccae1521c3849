"""Lengths that show themselves: samples of one prompt are as long as those of it that are done."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.heuristics.continuous.continuous_batching import ContinuousBatching

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.step import Step
    from orsched.heuristics.continuous.params import VllmParams
    from orsched.simulator.policy import Information, View


class GroupQueue:
    """Waiting requests by group: next is one of the group with the longest samples so far.

    A group's length is the mean of its samples that are done. One that has none done is before all
    others, first that with the fewest begun: each group is probed, and one whose samples run on
    without an end is long. Ties go by row. With ``shortest`` the least mean is next.
    """

    arrival_may_lead = True

    def __init__(self, order: str) -> None:
        self.sign = -1 if order == "longest" else 1
        self.waiting: dict[int, deque[int]] = {}
        self.begun: dict[int, int] = {}
        self.done: dict[int, tuple[int, int]] = {}  # group -> samples done, and their tokens
        self.group: dict[int, int] = {}  # of requests that are not done
        self.count = 0
        self.best: int | None = None  # the group that is next, if it is known

    def __len__(self) -> int:
        return self.count

    def _rank(self, group: int) -> tuple[float, int]:
        done, tokens = self.done.get(group, (0, 0))
        if not done:
            return float("-inf"), self.begun.get(group, 0)
        return self.sign * tokens / done, 0

    def _next(self) -> int:
        if self.best is None:
            self.best = min(self.waiting, key=lambda group: (self._rank(group), group))
        return self.best

    def put(self, view: View, request: int) -> None:
        """Queue a request that has arrived; without groups each is one of its own."""
        self.group[request] = request if view.group is None else view.group[request]
        self.waiting.setdefault(self.group[request], deque()).append(request)
        self.count, self.best = self.count + 1, None

    def put_back(self, request: int) -> None:
        """Let the request be the next of its group."""
        self.waiting.setdefault(self.group[request], deque()).appendleft(request)
        self.count, self.best = self.count + 1, None

    def first(self) -> int:
        """Return the first request of the group that is next."""
        return self.waiting[self._next()][0]

    def pop(self) -> int:
        """Remove and return the first request of the group that is next."""
        group = self._next()
        request = self.waiting[group].popleft()
        self.begun[group] = self.begun.get(group, 0) + 1
        self._shrink(group)
        return request

    def _shrink(self, group: int) -> None:
        if not self.waiting[group]:
            del self.waiting[group]
        self.count, self.best = self.count - 1, None

    def surrender(self) -> int:
        """Remove and return the last request of the group that is last."""
        group = max(self.waiting, key=lambda group: (self._rank(group), group))
        request = self.waiting[group].pop()
        self._shrink(group)
        return request

    def oldest(self) -> int:
        """Return the first of the waiting requests by row."""
        return min(requests[0] for requests in self.waiting.values())

    def victim(self, running: Sequence[int]) -> int:
        """Return the request that was admitted last."""
        return running[-1]

    def forget(self, request: int) -> None:
        """Drop the request, of which its group may have learned."""
        del self.group[request]

    def learn(self, request: int, tokens: int) -> None:
        """Take note of how long a request was."""
        group = self.group[request]
        done, total = self.done.get(group, (0, 0))
        self.done[group] = done + 1, total + tokens
        self.best = None


class GroupBatching(ContinuousBatching):
    """``vllm`` with ``lengths=group``: it learns from each finish, and knows nothing before."""

    def __init__(self, params: VllmParams, information: Information) -> None:
        if params.by not in ("longest", "shortest") or params.async_scheduling:
            raise InputError(
                "lengths=group orders requests longest or shortest first, as steps end",
                field="lengths",
                remedy="give order=longest or order=shortest, and no async_scheduling",
            )
        super().__init__(params, information, GroupQueue(params.by))
        self.fresh: dict[int, None] = {}  # being prefilled
        self.origin: dict[int, int] = {}  # request -> the round from which its tokens count

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again."""
        self.fresh.pop(request, None)
        self.origin.pop(request, None)
        super().on_preempt(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Learn how long the request was."""
        self.fresh.pop(request, None)
        origin = self.origin.pop(request, None)
        learned: GroupQueue = self.queue  # type: ignore[assignment]  # shared by workers
        learned.learn(request, 1 if origin is None else view.rounds - origin)
        super().on_finish(view, request, client)

    def decide(self, view: View) -> Step | None:
        """Return the next step."""
        for request in [each for each in self.fresh if view.decodes(each)]:
            del self.fresh[request]
            self.origin[request] = view.rounds - view.generated(request)
        step = super().decide(view)
        if step is not None:
            self.fresh.update(dict.fromkeys(step.prefill))
        return step
