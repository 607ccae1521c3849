"""A policy that hears of a request when its length has been predicted."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from orsched.data.step import Step, Wait
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from orsched.heuristics.continuous.continuous_batching import ContinuousBatching
    from orsched.heuristics.continuous.static_batching import StaticBatching
    from orsched.simulator.policy import View


class AfterPrediction(Policy):
    """Hold each request back for the predictor's latency, which passes beside what is served.

    Predictions are made side by side: each takes the same time. While one is awaited, rounds are
    taken one by one, so that a request can join at the first border after its prediction.
    """

    def __init__(self, inner: ContinuousBatching | StaticBatching, latency_ns: int) -> None:
        self.inner = inner
        self.latency_ns = latency_ns
        self.name = inner.name
        self.information = Information(inner.information)
        self.chunks = inner.chunks
        self.awaited: deque[int] = deque()

    def start(self, view: View) -> None:
        """Pass the worker on."""
        self.inner.start(view)

    def on_arrival(self, view: View, request: int) -> None:
        """Await the prediction; a request taken over from another worker may have it already."""
        if view.arrival_ns[request] + self.latency_ns <= view.now_ns:
            self.inner.on_arrival(view, request)
        else:
            self.awaited.append(request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Pass it on."""
        self.inner.on_finish(view, request, client)

    def on_preempt(self, view: View, request: int) -> None:
        """Pass it on: a request that has run needs no further prediction."""
        self.inner.on_preempt(view, request)

    def hears_of_evictions(self) -> bool:
        """Return whether the policy does to which they are passed on."""
        return self.inner.hears_of_evictions()

    def waiting(self) -> int:
        """Return how many requests with a prediction wait."""
        return self.inner.waiting()

    def surrender(self) -> int:
        """Give up the request that is last."""
        return self.inner.surrender()

    def decide(self, view: View) -> Step | Wait | None:
        """Tell of the predictions that are there by now, and ask."""
        awaited, now, latency = self.awaited, view.now_ns, self.latency_ns
        while awaited and view.arrival_ns[awaited[0]] + latency <= now:
            self.inner.on_arrival(view, awaited.popleft())
        step = self.inner.decide(view)
        if not awaited:
            return step
        due = view.arrival_ns[awaited[0]] + latency
        if step is None:
            return Wait(due)
        if isinstance(step, Wait):
            return Wait(min(due, step.until_ns))
        if step.rounds > 1 and not step.hold:
            return step._replace(rounds=1)
        return step
