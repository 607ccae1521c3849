"""What work costs on a worker, and how long its rounds take at present."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from orsched.costs import knows_cached, mixed_ns, prefill_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.simulator.policy import View

_CONTEXT = 1024  # context at which rounds are priced


class Prices:
    """Prices of a worker's cost model: of a prompt token, of a round and of a request in it."""

    def __init__(self, view: View) -> None:
        self.cost = cost = view.worker.cost
        self.tells_cached = knows_cached(cost)
        self.rounds: dict[int, int] = {}  # active requests -> time of a round
        most = min(_CONTEXT, view.worker.prefill_limit or _CONTEXT)
        tokens = cost.prefill_ns([most])
        self.token_ns = (tokens - cost.prefill_ns([1])) / (most - 1) if most > 1 else float(tokens)
        if self.token_ns <= 0:  # levels: a stage costs what it costs
            self.token_ns = tokens / most
        clients = max(2, view.worker.clients)
        one = cost.round_ns(1, _CONTEXT, _CONTEXT)
        all_of_them = cost.round_ns(clients, clients * _CONTEXT, _CONTEXT)
        self.client_ns = max(0.0, (all_of_them - one) / (clients - 1))  # a request's part
        self.round_ns = max(one - self.client_ns, 1.0)  # what a round takes for any requests

    def prefill(
        self, chunks: Sequence[int], active: int, cached: Sequence[int] = ()
    ) -> tuple[bool, int]:
        """Return whether chunks go beside a round, and about how long their step takes. They do
        unless a stage of its own and a round take less time than both in one step. ``cached`` are
        the tokens in the cache before each chunk; empty: all 0."""
        alone = prefill_ns(self.cost, chunks, cached)
        if not active:
            return False, alone
        one_round = self.rounds.get(active)
        if one_round is None:
            one_round = self.cost.round_ns(active, active * _CONTEXT, _CONTEXT)
            self.rounds[active] = one_round
        both = mixed_ns(self.cost, chunks, active, active * _CONTEXT, _CONTEXT, cached)
        return (False, alone) if alone + one_round < both else (True, both)


class Pace:
    """Time that passes on a worker for each round, prefills between the rounds included."""

    def __init__(self, least_ns: float, window_ns: float) -> None:
        self.least_ns = least_ns  # the time of a round of one request and nothing else
        self.window_ns = window_ns
        self.time = self.done = 0.0
        self.now_ns = self.rounds = 0
        self.busy = False
        self.ns = least_ns

    def update(self, now_ns: int, rounds: int, busy: bool) -> None:
        """Record the worker's rounds up to now; the past counts less and less."""
        passed = now_ns - self.now_ns
        if self.busy and passed:
            kept = exp(-passed / self.window_ns)
            time = self.time = self.time * kept + passed
            done = self.done = self.done * kept + rounds - self.rounds
            if done:
                ns = time / done
                self.ns = ns if ns > self.least_ns else self.least_ns
        if not busy:
            self.ns, self.time, self.done = self.least_ns, 0.0, 0.0
        self.now_ns, self.rounds, self.busy = now_ns, rounds, busy
