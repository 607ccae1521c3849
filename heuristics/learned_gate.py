"""The gate that looks its threshold up in a table, which a search has learned (*Learned gates*).

Its state is the one of Pang, section VI: time waited for a prefill, clients that decode, expected
decode time until one more is free, expected time of the prefill. No output length is asked for.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from math import sqrt
from typing import TYPE_CHECKING

from orsched.heuristics.forecast import ArrivalRate, LearnedEnds
from orsched.heuristics.gate_table import GateTable, load_gate
from orsched.heuristics.gates import fixed_costs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.heuristics.gates import Waiting
    from orsched.policy import View


class LearnedGate:
    """Prefill when the weighted signs reach the threshold of the state.

    The signs, each 1 where the rule that it is from says prefill:

    * ``idle``: cost of the idle client-rounds since the last stage, over the stage's fixed time
      (``IdleCost``);
    * ``waited``: decode time since the first client fell idle, over the expected time of the
      prefill (``WaitedTime``, Pang's C_d over C_p);
    * ``lot``: idle clients over the economic lot, sqrt(2 s v / price) with the fixed time s of a
      stage and v clients that are expected to end a round (``ShadowPrice``).

    Args:
        table: weights and thresholds.
    """

    def __init__(self, table: GateTable) -> None:
        self.table = table

    def start(self, view: View) -> None:
        """Read the fixed costs off the worker."""
        self.stage_ns, self.round_ns = fixed_costs(view.worker)
        self.clients = view.worker.clients
        self.arrivals, self.learned = ArrivalRate(), LearnedEnds(view)
        self.since_ns = -1
        self.idle_rounds = self.idle = self.last_round = 0
        self._stage: tuple[int, int] = (0, 0)
        self._stage_ns = 0

    def arrived(self, view: View, request: int) -> None:
        """Record an arrival."""
        self.arrivals.note(view.arrival_ns[request])

    def started(self, view: View, stage: Sequence[int]) -> None:
        """Record requests that get their clients now."""
        self.learned.start(view.rounds, stage)

    def finished(self, view: View, request: int) -> None:
        """Record a request's end."""
        self.learned.finish(view.rounds, request)

    def stage_taken(self, view: View) -> None:
        """Start a new count."""
        self.since_ns = -1
        self.idle_rounds = self.idle = 0
        self.last_round = view.rounds

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Return 0 to prefill now, else 1: the state is looked at before every round."""
        now, clients = view.rounds, waiting.clients
        self.idle_rounds += self.idle * (now - self.last_round)
        self.last_round, self.idle = now, clients
        if self.since_ns < 0:
            self.since_ns = view.now_ns
        if waiting.full or self.stage_ns == 0:
            return 0
        active, table = len(view.running), self.table
        threshold = table.threshold(
            self.arrivals.rate(view.now_ns) > 0,
            max(0, waiting.queued - clients) / self.clients,
            active / self.clients,
        )
        if threshold <= 0:
            return 0
        idle, waited, lot = table.weights
        price = self.round_ns / self.clients
        score = idle * price * self.idle_rounds / self.stage_ns
        if waited:
            score += waited * (view.now_ns - self.since_ns) / self._prefill_ns(view, waiting)
        if lot:
            ends = active * self.learned.hazard(now, active)
            score += lot * clients * sqrt(price / (2 * self.stage_ns * ends)) if ends else lot
        return int(score < threshold)

    def _prefill_ns(self, view: View, waiting: Waiting) -> int:
        """Return the expected time of the stage that would be taken, over equal prompts."""
        stage = waiting.clients, waiting.tokens
        if stage != self._stage:
            each, more = divmod(waiting.tokens, waiting.clients)
            prompts = [each + 1] * more + [each] * (waiting.clients - more)
            self._stage = stage
            self._stage_ns = max(1, view.worker.cost.prefill_ns([p for p in prompts if p]))
        return self._stage_ns


@cache
def shipped_table() -> GateTable:
    """Return the table that comes with orsched; the page *Learned gates* says how it was made."""
    with as_file(files("orsched.heuristics").joinpath("data", "learned_gate.json")) as path:
        return load_gate(path)
