"""Which of vLLM's passes are prefill stages and which are rounds, and when a stage begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, known_names
from orsched.common.scalars import require_number
from orsched.data.workers import Worker
from orsched.files import load_cost
from orsched.heuristics.gates import Waiting, make_gate
from orsched.simulator.policy import View, WorkerState

if TYPE_CHECKING:
    from collections.abc import Sequence

GATES = ("prefill_first", "waited_time", "idle_cost")
"""Gates that need to know of an engine what ``StageGate`` sees."""

SAMPLE = 64
"""Waiting requests at the front whose mean prompt stands for all."""


class StageGate:
    """Keeps prefill stages apart from rounds, and begins a stage when its gate opens.

    A pass is a stage, of waiting prompts alone, or a round of all that decode. A stage begins when
    nothing decodes or when the gate opens (Pang et al., section IV-C); a prompt that is longer than
    a pass goes on in the next one. Where vLLM admits no request to a stage, a round follows.

    Args:
        gate: one of ``GATES``; ``prefill_first`` never waits.
        cost: a cost-model file, such as ``orsched calibrate`` writes.
        factor: multiplies the threshold of ``idle_cost``.
    """

    def __init__(self, gate: str, cost: str | None, factor: float = 1.0) -> None:
        if gate not in GATES:
            raise InputError(
                f"unknown gate {gate!r}", field="gate", remedy=known_names(gate, GATES, "one of ")
            )
        if cost is None:
            raise InputError(
                f"the gate {gate} needs the times of steps",
                field="cost",
                remedy="name a file that orsched calibrate writes",
            )
        require_number(factor, "gate_factor", 0, 1e6)
        self.gate, self.cost = make_gate(gate, factor), load_cost(cost)
        self.stage = self.stuck = False

    @classmethod
    def taken_from(cls, settings: dict[str, Any]) -> StageGate | None:
        """Take a gate out of the settings of an order, which keeps a ``cost`` that it needs."""
        gate, factor = settings.pop("gate", None), settings.pop("gate_factor", 1.0)
        if gate is None:
            return None
        own = settings.get("order") == "gittins"
        cost = settings.get("cost") if own else settings.pop("cost", None)
        return cls(gate, cost, factor)

    def start(self, clients: int, tokens: int) -> None:
        """See how many requests run at a time, and how many tokens are in a pass at most."""
        nothing = memoryview(b"")
        self.state = WorkerState(Worker(clients, self.cost, tokens), "prefill", 1)
        self.view, self.tokens = View(self.state, nothing, nothing, None), tokens
        self.gate.start(self.view)

    def choose(
        self, front: Sequence[int], queued: int, free: int, active: int, begun: bool, now_ns: int
    ) -> None:
        """Choose what the next pass is.

        Args:
            front: prompt tokens of requests at the front of the queue, of ``queued`` in all.
            free: requests that could be admitted beside those that run.
            active: requests that decode.
            begun: whether a prompt is processed in part.
            now_ns: the time.
        """
        clients = min(free, queued)
        self.stage = begun or (clients > 0 and not self.stuck)
        if begun or not self.stage or not active:
            return
        state, tokens = self.state, -(-clients * sum(front) // len(front))
        state.now_ns, state.running = now_ns, dict.fromkeys(range(active), 0)
        full = tokens >= self.tokens
        waiting = Waiting(clients, min(tokens, self.tokens), full, queued)
        self.stage = self.gate.rounds_to_wait(self.view, waiting) == 0

    def passed(self, tokens: int) -> None:
        """Record how many tokens vLLM took into the pass."""
        self.stuck = self.stage and not tokens
        if self.stage and tokens:
            self.gate.stage_taken(self.view)
        elif tokens:
            self.state.rounds += 1
