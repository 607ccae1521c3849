"""The second stage: requests in a planned order, whatever their lengths turn out to be."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple

from orsched.errors import PolicyError
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.heuristics.gates import Waiting, make_gate
from orsched.heuristics.sample_average.chance import ChanceMemory
from orsched.policy import Information, Policy, View
from orsched.step import Step, decode_rounds, evict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.columns import IntColumn

_DECODE, _ROUND = decode_rounds(), decode_rounds(1)
GATES = ("prefill_first", "idle_cost")
"""What a plan chooses from: gates that learn nothing from a run, so that each scenario is alike."""


class Plan(NamedTuple):
    """The first stage: what is decided before any length is known.

    Attributes:
        order: all requests, the first to be served first.
        gate: one of ``GATES``.
    """

    order: tuple[int, ...]
    gate: str


class PlannedOrder(Policy):
    """Gives free clients the next requests of the plan, when its gate opens.

    With paged memory an admission is a chance constraint (``ChanceMemory``), and where the caches
    outgrow memory all the same the last in the order is evicted. Else memory is set aside as for
    every policy with its information.

    Args:
        plan: the order and the gate.
        scenarios: lengths for the chance constraint, of shape (scenarios, requests).
        risk: the share of them that may break it.
        information: what the plan was made with.
    """

    name = "sample_average"

    def __init__(
        self, plan: Plan, scenarios: IntColumn, risk: float, information: Information
    ) -> None:
        self.plan, self.scenarios, self.risk = plan, scenarios, risk
        self.information = information
        self.rank = [0] * len(plan.order)
        for place, request in enumerate(plan.order):
            self.rank[request] = place
        self.queue: list[tuple[int, int]] = []

    def start(self, view: View) -> None:
        """Know the worker."""
        memory = view.worker.memory
        self.chance = None
        if memory is not None and memory.is_paged:
            self.chance = ChanceMemory(view, self.scenarios, self.risk)
        self.batch = BatchBuilder(view, memory=self.chance is None)
        self.gate = make_gate(self.plan.gate)
        self.gate.start(view)
        self.evicted = -1

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request at its place in the order."""
        insort(self.queue, (self.rank[request], request))

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again."""
        self.on_arrival(view, request)

    def decide(self, view: View) -> Step | None:
        """Return the next part of a prefill, an eviction, a stage or rounds."""
        if view.prefilling:
            return self.batch.next_part()
        if self.chance is not None and (view.blocks_left(1) or 0) < 0:
            return self._evict(view)
        clients = min(view.free_clients, len(self.queue))
        if clients and self.evicted != view.rounds:
            rounds = 0
            if view.running:
                rounds = self.gate.rounds_to_wait(view, self._waiting(view, clients))
            if rounds:
                return _ROUND if self.chance is not None else decode_rounds(rounds)
            stage = self._take(view, clients)
            if stage:
                self.gate.stage_taken(view)
                return self.batch.prefill(stage)
        if not view.running:
            return None
        return _DECODE if self.chance is None else _ROUND

    def _waiting(self, view: View, clients: int) -> Waiting:
        tokens = sum(view.to_prefill(request) for _, request in self.queue[:clients])
        limit = self.batch.limit
        return Waiting(clients, min(tokens, limit), tokens >= limit, len(self.queue))

    def _take(self, view: View, clients: int) -> list[int]:
        """Take requests off the queue, in order, until one does not fit."""
        stage: list[int] = []
        batch = self.batch.open(clients)
        free = view.blocks_unused or 0
        for _, request in self.queue[:clients]:
            if self.chance is not None:
                needed = -(-view.to_prefill(request) // self.chance.size)
                together = [*view.running, *stage, request]
                # Alone it may start whatever the scenarios say: nobody else is to be waited for.
                if needed > free or (len(together) > 1 and not self.chance.holds(together)):
                    break
                free -= needed
            if not batch.admit(request):
                break
            stage.append(request)
            if view.to_prefill(request) > batch.limit:
                break
        del self.queue[: len(stage)]
        return stage

    def _evict(self, view: View) -> Step:
        """Evict the last in the order, until a round has room."""
        self.evicted = view.rounds
        assert self.chance is not None
        missing, size = -(view.blocks_left(1) or 0), self.chance.size
        victims: list[int] = []
        for request in sorted(view.running, key=lambda each: -self.rank[each]):
            if missing <= 0:
                break
            victims.append(request)
            missing -= -(-view.cached(request) // size) + (view.cached(request) % size == 0)
        if len(victims) == len(view.running) == 1:
            raise PolicyError(
                f"request {victims[0]} does not fit into memory, even alone: give more blocks"
            )
        return evict(victims)


def plan_values(plan: Plan) -> dict[str, Sequence[int] | str]:
    """Return a plan as JSON values."""
    return {"order": list(plan.order), "gate": plan.gate}
