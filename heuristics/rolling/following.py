"""Following a plan while the run may drift from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.heuristics.rolling.drift import Drift
    from orsched.heuristics.rolling.snapshot import DueStage, Plan
    from orsched.heuristics.rolling.waiting import WaitingRequests

_LATE_PART = 4
"""A plan is dropped when more than one part in this of the clients are missing."""


class Follower:
    """The plan that is followed.

    Clients that are free although the plan has them busy (early ends) are *surplus*: their idle
    rounds are added up, and when they have paid for a stage, one takes place out of turn.

    Attributes:
        stages: the stages that are left, the next one last.
        late: planned for an earlier stage that had no client for them.
        pulled: of those chosen last, the ones with a later turn.
        whole: the stage that was chosen last, where it is just that of the plan.
    """

    def __init__(self, waiting: WaitingRequests, drift: Drift, clients: int, budget: float) -> None:
        """Take the surplus client-rounds that pay for a stage as ``budget``."""
        self.waiting, self.drift = waiting, drift
        self.clients, self.budget = clients, budget
        self.stages: list[DueStage] = []
        self.whole: DueStage | None = None
        self.late: list[int] = []
        self.pulled: list[int] = []
        self.reset(0)

    def adopt(self, plan: Plan, now: int) -> None:
        """Follow another plan."""
        self.waiting.retire(self.stages)
        self.waiting.plan(plan.everyone, plan.spare)
        self.stages, self.late = plan.stages, []
        self.reset(now)
        self.fresh = True

    def drop(self) -> None:
        """Follow none."""
        self.waiting.retire(self.stages)
        self.waiting.unplan()
        self.stages, self.late = [], []
        self.reset(0)

    def reset(self, now: int) -> None:
        """Start a new count of surplus client-rounds."""
        self.surplus = self.surplus_rounds = 0
        self._checked: DueStage | None = None  # all of it waited
        self._takes = 0  # after so many takes
        self.since, self.fresh = now, False

    def rounds_left(self, now: int, idle: int) -> int:
        """Return the rounds until the next stage, 0 when it is due (perhaps out of turn)."""
        self.surplus_rounds += self.surplus * max(0, now - self.since)
        self.since = now
        left = self.stages[-1].round - now
        if left <= 0:
            return 0
        surplus = self.surplus = self._surplus(idle)
        self.fresh = False
        if surplus and self.surplus_rounds >= self.budget:
            return 0
        if surplus:
            return max(1, min(left, int((self.budget - self.surplus_rounds) / surplus) + 1))
        return left

    def _surplus(self, idle: int) -> int:
        """Return how many clients are free too early.

        None in the decision that adopts the plan, which has enough to do.
        """
        if self.fresh:
            return 0
        return min(idle, max(0, self.drift.surplus(self.since, self.clients - idle)))

    def check(self) -> None:
        """See whether all of the next stage still wait: the decision about it has enough to do."""
        if self.stages and not self._is_checked(self.stages[-1]):
            stage = self.stages[-1]
            all_there = self._there(stage.requests) is stage.requests
            self._checked = stage if all_there else None
            self._takes = self.waiting.takes

    def _is_checked(self, stage: DueStage) -> bool:
        return stage is self._checked and self._takes == self.waiting.takes

    def choose(self, now: int, idle: int, likely: int) -> list[int]:
        """Return what starts now: the late requests, those planned, others for surplus clients.

        Others as long as no more than a ``likely`` number of requests are chosen.
        """
        wanted: Sequence[int] = self._there(self.late) if self.late else ()
        self.whole, self.pulled = None, []
        if self.stages[-1].round <= now:
            stage = self.stages.pop()
            checked = self._is_checked(stage)
            planned = stage.requests if checked else self._there(stage.requests)
            if not wanted and planned is stage.requests:
                self.whole = stage
            wanted = [*wanted, *planned]
            spare = stage.spare
        else:
            spare = max(0, idle - self.surplus - len(wanted))
        chosen, self.late = list(wanted[:idle]), list(wanted[idle:])
        if len(self.late) > max(1, self.clients // _LATE_PART):
            self.drop()
        more = min(idle - spare, likely) - len(chosen)
        if more > 0:
            found = self.waiting.unplanned(more)
            if len(found) < more:
                more = min(more - len(found), self._surplus(idle))
                self.pulled = self._pull(more, {*chosen, *found})
            chosen += found + self.pulled
        if self.whole is not None and len(chosen) != len(self.whole.requests):
            self.whole = None
        return chosen

    def _there(self, requests: Sequence[int]) -> Sequence[int]:
        """Return those that have not started before their turn; the same object if all."""
        there = self.waiting.there
        if 0 not in [there[request] for request in requests]:
            return requests
        return [request for request in requests if there[request]]

    def postpone(self, requests: Sequence[int]) -> None:
        """Let chosen requests start later: they do not fit now.

        Those that were pulled out of a later stage start with it.
        """
        if self.pulled:
            pulled = set(self.pulled)
            requests = [request for request in requests if request not in pulled]
        self.late.extend(requests)
        self.waiting.postpone(requests)

    def _pull(self, count: int, taken: set[int]) -> list[int]:
        """Return planned requests of the next stages, for clients that are free too early."""
        pulled: list[int] = []
        requests = (request for stage in reversed(self.stages) for request in stage.requests)
        for request in requests:
            if len(pulled) == count:
                break
            if self.waiting.there[request] and request not in taken:
                pulled.append(request)
        return pulled

    def owed(self) -> list[DueStage]:
        """Return the stages that are left, what is late joining the next."""
        stages = list(self.stages)
        if stages and self.late:
            following = stages[-1]
            stages[-1] = following._replace(requests=(*self.late, *following.requests))
        return stages
