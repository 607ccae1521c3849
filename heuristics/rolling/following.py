"""Following a plan while the run may drift from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.heuristics.rolling.drift import Drift
    from orsched.heuristics.rolling.remaining import Stage
    from orsched.heuristics.rolling.snapshot import Plan
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
        pulled: of those chosen last, who has their turn later.
    """

    def __init__(self, waiting: WaitingRequests, drift: Drift, clients: int, budget: float) -> None:
        """Take the surplus client-rounds that pay for a stage as ``budget``."""
        self.waiting, self.drift = waiting, drift
        self.clients, self.budget = clients, budget
        self.stages: list[Stage] = []
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
        self.since, self.fresh = now, False

    def rounds_left(self, now: int, idle: int) -> int:
        """Return the rounds until the next stage, 0 when it is due (perhaps out of turn).

        The surplus is not looked at in the decision that adopts the plan, which has enough to do.
        """
        self.surplus_rounds += self.surplus * max(0, now - self.since)
        self.since = now
        self.surplus = 0 if self.fresh else min(idle, max(0, self.drift.surplus(now)))
        self.fresh = False
        left = self.stages[-1].round - now
        if left <= 0 or (self.surplus and self.surplus_rounds >= self.budget):
            return 0
        if self.surplus:
            missing = self.budget - self.surplus_rounds
            return max(1, min(left, int(missing / self.surplus) + 1))
        return left

    def choose(self, now: int, idle: int, likely: int) -> list[int]:
        """Return who starts now: the late ones, those planned, others for surplus clients.

        Others as long as no more than a ``likely`` number of requests are chosen.
        """
        there = self.waiting.there
        wanted = [request for request in self.late if request in there] if self.late else []
        if self.stages[-1].round <= now:
            stage = self.stages.pop()
            wanted += self._still_waiting(stage)
            spare = stage.spare
        else:
            spare = max(0, idle - self.surplus - len(wanted))
        chosen, self.late = wanted[:idle], wanted[idle:]
        if len(self.late) > max(1, self.clients // _LATE_PART):
            self.drop()
        more = min(idle - spare, likely) - len(chosen)
        if more > 0:
            chosen += self.waiting.unplanned(more)
            more = min(idle - spare - len(chosen), self.surplus)
        self.pulled = self._pull(more, set(chosen)) if more > 0 else []
        return chosen + self.pulled

    def _still_waiting(self, stage: Stage) -> Sequence[int]:
        """Return those of a stage that have not started before their turn."""
        gone, there = self.waiting.gone, self.waiting.there
        if not gone or gone.isdisjoint(stage.requests):
            return stage.requests
        return [request for request in stage.requests if request in there]

    def postpone(self, requests: Sequence[int]) -> None:
        """Let chosen requests start later: they do not fit now.

        Those that were pulled out of a later stage start with it.
        """
        if self.pulled:
            pulled = set(self.pulled)
            requests = [request for request in requests if request not in pulled]
        self.late.extend(requests)
        self.waiting.late.update(requests)

    def _pull(self, count: int, taken: set[int]) -> list[int]:
        """Return planned requests of the next stages, for clients that are free too early."""
        pulled: list[int] = []
        requests = (request for stage in reversed(self.stages) for request in stage.requests)
        for request in requests:
            if len(pulled) == count:
                break
            if request in self.waiting.there and request not in taken:
                pulled.append(request)
        self.waiting.gone.update(pulled)
        return pulled

    def owed(self) -> list[Stage]:
        """Return the stages that are left, what is late joining the next."""
        stages = list(self.stages)
        if stages and self.late:
            following = stages[-1]
            stages[-1] = following._replace(requests=(*self.late, *following.requests))
        return stages
