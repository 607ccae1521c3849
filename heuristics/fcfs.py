"""First come first served, prefill first: vLLM V0's scheduler and Pang's baseline."""

from __future__ import annotations

from collections import deque

from orsched.data.step import Step, decode_rounds
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.simulator.policy import Information, Policy, View

_DECODE = decode_rounds()


class FirstComeFirstServed(Policy):
    """Prefill whenever a request waits and a client is free; else decode (Pang, section V-A).

    Requests are taken in the order of arrival (then row); the first that does not fit under the
    prefill cap or into memory ends the stage, as in vLLM V0.
    """

    name = "fcfs"
    information = Information.NONE

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.batch: BatchBuilder | None = None

    def on_arrival(self, view: View, request: int) -> None:
        """Append the request to the queue."""
        self.queue.append(request)

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.queue)

    def surrender(self) -> int:
        """Give up the request that came last."""
        return self.queue.pop()

    def decide(self, view: View) -> Step | None:
        """Return a prefill stage if one is possible, else decode until something happens."""
        if view.prefilling:
            return self._batch(view).next_part()
        clients = view.free_clients if self.queue else 0
        if clients:
            batch = self._batch(view)
            stage = batch.take(self.queue, clients)
            if stage:
                return batch.prefill(stage)
        return _DECODE if view.running else None

    def _batch(self, view: View) -> BatchBuilder:
        batch = self.batch
        if batch is None or batch.view is not view:  # not in start, which may be overridden
            batch = self.batch = BatchBuilder(view)
        return batch
