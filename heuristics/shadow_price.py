"""The gate that prices an idle client-round by what it still costs (the page *Gates*).

Makespan = constants + fixed stage time x K + fixed round time x R. An idle client-round costs what
it adds to R: 1/J of a round while work is left for every client, more where it delays what ends
last, nothing when no request is left for the client. Against that stands what a stage costs for
each client that it serves. The gate waits as long as the clients about to become free are worth
more than the idle time until then.
"""

from __future__ import annotations

from collections import deque
from math import sqrt
from typing import TYPE_CHECKING

from orsched.heuristics.forecast import ArrivalRate, KnownEnds, LearnedEnds
from orsched.heuristics.gates import fixed_costs
from orsched.simulator.policy import ClairvoyantView, PredictedView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.heuristics.gates import Waiting
    from orsched.simulator.policy import View

_TRUSTED = 0.5
"""Predicted ends count as known while their mean error is within this share of a usual wait."""
_PROVEN = 16
"""Ends after which predictions have proved right, or not."""
_ALL = 2**62
_PART = 16
"""A part of the starts to record is a stage, or so many requests of one twice as large."""


class ShadowPrice:
    """Prefill when the next free clients are not worth the idle time until they are free.

    Knows the ends of running requests when clairvoyant, or as long as predictions prove true; else
    it learns how long requests take, and that none outlives the output limit. While arrivals are
    expected it prices the waiting requests' time (mean JCT), afterwards the makespan.

    It records starts when it is asked or an end comes: a decision that forms a stage has
    enough to do.
    """

    def start(self, view: View) -> None:
        """Read the fixed costs off the worker."""
        self.stage_ns, self.round_ns = fixed_costs(view.worker)
        self.cost, self.clients = view.worker.cost, view.worker.clients
        self.has_memory = view.worker.memory is not None
        self.arrivals = ArrivalRate()
        self.learned = LearnedEnds(view)
        self.known: KnownEnds | None = None
        if isinstance(view, ClairvoyantView):
            self.known = KnownEnds(view, view.output_tokens)
        elif isinstance(view, PredictedView):
            self.known = KnownEnds(view, view.predicted_tokens)
        self.sighted = isinstance(view, ClairvoyantView)
        self.idle_rounds = self.idle = self.last_round = 0
        self._started: list[tuple[int, Sequence[int]]] = []
        self._later: deque[tuple[int, Sequence[int]]] = deque()  # only known ends are to be noted

    def arrived(self, view: View, request: int) -> None:
        """Record a request in the queue."""
        self.arrivals.note(view.arrival_ns[request])
        if self.known is not None:
            self.known.queue(request)

    def started(self, view: View, stage: Sequence[int]) -> None:
        """Remember requests that get their clients now."""
        self._started.append((view.rounds, stage))

    @property
    def unsettled(self) -> bool:
        """Whether there are starts that are not taken note of."""
        return bool(self._started or self._later)

    def settle(self, parts: int = _ALL) -> None:
        """Record a number of the starts so far, and a number of parts of their known ends."""
        self._note(parts)
        later, known = self._later, self.known
        while later and parts > 0 and known is not None:
            now, stage = later.popleft()
            if len(stage) > 2 * _PART and parts < _ALL:
                later.appendleft((now, stage[_PART:]))
                stage = stage[:_PART]
            known.start(now, stage)
            parts -= 1

    def _note(self, count: int = _ALL) -> None:
        """Record a number of the starts so far, but no known ends."""
        noted = self._started[:count]
        for entry in noted:
            self.learned.start(*entry)
        if self.known is not None:
            self._later += noted
        del self._started[:count]

    def running(self) -> tuple[dict[int, list[int]], list[tuple[int, Sequence[int]]]]:
        """Return what runs: lists that begin with the start round; starts not taken note of."""
        return self.learned.stage_of.copy(), self._started.copy()

    def finished(self, view: View, request: int) -> None:
        """Record a request's end."""
        now = view.rounds
        if self._started:
            self._note()
        while self._later and self.known is not None and request not in self.known.end_of:
            self.settle(1)
        self.learned.finish(now, request)
        if self.known is not None:
            self.known.finish(now, request)

    def stage_taken(self, view: View) -> None:
        """Start a new count."""
        self.idle_rounds = self.idle = 0
        self.last_round = view.rounds

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Return 0 when waiting does not pay, else the rounds until the next look."""
        if self._started or self._later:
            self.settle()
        now, active, clients = view.rounds, len(view.running), waiting.clients
        idle_rounds = self.idle_rounds + self.idle * (now - self.last_round)
        self.idle_rounds, self.last_round, self.idle = idle_rounds, now, clients
        stage_ns, most = self.stage_ns, self.clients
        if waiting.full or stage_ns == 0:
            return 0
        if self.has_memory:
            clients, most = within_memory(view, clients)
        left = max(0, waiting.queued - clients)
        a_round = self.cost.round_ns(active, active, 1)
        arrivals = self.expected_arrivals(view) * a_round
        price = self.round_ns / most
        if arrivals > 0:  # mean JCT: those who stay are delayed by idle time, all by the stage
            price = (price * left + a_round) / (active + waiting.queued)
        budget = stage_ns - price * idle_rounds
        if price <= 0 or budget <= 0 or (left == 0 and arrivals <= 0):
            return 0
        rounds = max(1, int(budget / (price * clients)))
        if left == 0:
            worth = sqrt(2 * stage_ns * price / arrivals)
            return rounds if price * clients < worth * arrivals else 0
        hazard = self.learned.hazard(now, active)
        rate = active * hazard
        if rate <= 0:
            return 0
        worth = sqrt(2 * stage_ns * price / rate)
        if self.known is not None and self._trusts(worth / price):
            delay = self.round_ns if arrivals <= 0 else 0
            worth = min(worth, stage_ns / clients)
            return self.known.wait(now, clients, left, most, price, worth, delay)
        if price * clients >= worth * rate:
            return 0
        return int(self.learned.expects_one(now, rounds, hazard))

    def expected_arrivals(self, view: View) -> float:
        """Return the arrivals a nanosecond that are expected."""
        if self.sighted and self.arrivals.count == len(view.arrival_ns):
            return 0.0
        return self.arrivals.rate(view.now_ns)

    def _trusts(self, usual_wait: float) -> bool:
        assert self.known is not None
        return self.known.mean_error <= _TRUSTED * usual_wait

    def proven(self, view: View, tolerance: float) -> bool:
        """Whether the ends of requests are known within a share of the usual wait for a stage.

        Clairvoyant: they are. Else the mean error of those that have ended decides.
        """
        if self.sighted:
            return True
        if self._started:
            self._note()
        active = len(view.running)
        rate = active * self.learned.hazard(view.rounds, active)
        if self.known is None or self.learned.count < _PROVEN or not (rate and self.round_ns):
            return False
        price = self.round_ns / view.worker.clients
        usual = sqrt(2 * self.stage_ns / (price * rate))
        return self.known.mean_error <= tolerance * usual


def within_memory(view: View, clients: int) -> tuple[int, int]:
    """Return how many of the clients memory leaves room for, and how many it has room for at most.

    By the mean blocks of those that run.
    """
    free, memory, active = view.blocks_free, view.worker.memory, len(view.running)
    if free is None or memory is None or not active:
        return clients, view.worker.clients
    used = memory.blocks - free
    fit = free * active // used if used else clients
    return max(1, min(clients, fit)), max(1, min(view.worker.clients, active + fit))
