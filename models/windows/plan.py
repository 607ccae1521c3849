"""A plan: which requests start at which round, and the policy that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.data.step import FOREVER, Step, decode_rounds, prefill_stage
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.models.windows.assignment import Assigned
    from orsched.models.windows.structure import Windows

    Divide = Callable[[list[int]], list[list[int]]]


@dataclass(frozen=True)
class PlannedStage:
    """One prefill stage of a plan.

    Attributes:
        round: decode rounds before it.
        requests: rows of the instance.
        clients: the client of each.
    """

    round: int
    requests: Sequence[int]
    clients: Sequence[int]


def plan_of(state: Windows, assigned: Assigned, divide: Divide | None = None) -> list[PlannedStage]:
    """Return the stages of a state with its requests; empty stages are left out.

    ``divide`` says which of the requests of one moment share a stage.
    """
    tables = state.tables
    client = [0] * len(tables.start)
    for number, path in enumerate(state.paths()):
        for window in path:
            client[window] = number
    stages = []
    for stage, count in enumerate(tables.counts):
        first = stage * tables.width
        chosen = sorted(tables.at[first : first + count])
        if chosen:
            requests = [int(assigned.request[w]) for w in chosen]
            of = {int(assigned.request[w]): client[w] for w in chosen}
            for part in [requests] if divide is None else divide(requests):
                stages.append(PlannedStage(tables.times[stage], part, [of[r] for r in part]))
    return stages


class FollowPlan(Policy):
    """Prefill each planned stage at its round; decode in between.

    Where nothing runs before a planned stage, the plan moves forward by the rounds saved.
    """

    information = Information.CLAIRVOYANT

    def __init__(self, stages: Sequence[PlannedStage], name: str = "plan") -> None:
        self.name = name
        self.stages = stages
        self.position = 0
        self.saved = 0

    def decide(self, view: View) -> Step | None:
        """Return the next planned stage, or the rounds until it."""
        if self.position == len(self.stages):
            return decode_rounds(FOREVER) if view.running else None
        stage = self.stages[self.position]
        wait = stage.round - self.saved - view.rounds
        if wait > 0 and view.running:
            return decode_rounds(wait, until=0)
        self.saved += max(0, wait)
        self.position += 1
        return prefill_stage(stage.requests, stage.clients)
