"""The workers of a large fleet in columns: whether any of them takes a request for less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.heuristics.gittins.worker_model import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.heuristics.gittins.worker_model import WorkerModel

MANY = 32
"""Workers from which on columns are faster than lists."""

_NONE = -1


class Rivals:
    """What counts of each worker when a request could be served there, one column each.

    A worker's entries are made anew before they are read if it has decided since, if a request has
    left it, or if it has come or gone: nothing else changes them. The arithmetic is that of single
    workers, in the same order, so that both agree to the last bit.
    """

    def __init__(self, workers: list[WorkerModel]) -> None:
        many = len(workers)
        self.workers = workers
        self.changed = set(range(many))
        self.space, self.slept, self.seen, self.until_ns = np.zeros((4, many), np.int64)
        self.count, self.pace_ns, self.weight, self.token_ns, self.client_ns = np.zeros((5, many))
        for index, worker in enumerate(workers):
            self.token_ns[index] = worker.prices.token_ns
            self.client_ns[index] = worker.prices.client_ns

    def update(self) -> None:
        """Make the entries anew that may have changed."""
        if not self.changed:
            return
        for index in self.changed:
            worker = self.workers[index]
            running = len(worker.view.running)
            view = worker.view
            free = running < worker.clients and view.available and not view.draining
            room = worker.prompt_room() if free else 0
            self.space[index] = room if room > 0 else _NONE
            self.slept[index] = worker.slept
            # Rounds alone end when a request arrives: it waits for no more of them.
            self.seen[index] = UNLIMITED if worker.prefills else worker.seen
            self.until_ns[index] = worker.until_ns
            self.count[index] = running
            self.pace_ns[index] = pace_ns = worker.pace.ns
            self.weight[index] = pace_ns / worker.prices.round_ns
        self.changed.clear()

    def running(self) -> int:
        """Return how many requests all workers serve."""
        self.update()
        return int(self.count.sum())

    def cheaper(
        self,
        worker: WorkerModel,
        now_ns: int,
        theirs: float,
        left: int,
        stamp: int,
        tokens: float,
        work: float | None,
        own: float,
    ) -> Iterator[WorkerModel]:
        """Yield the workers that serve a request for less than ``own``, the cheapest first.

        ``work`` is None where it differs from worker to worker. Those without a free client or
        memory are left out, and so are those that had the choice and nothing to do.
        """
        self.update()
        self.changed.add(worker.view.index)  # its own entries change by this decision
        costs = tokens * self.pace_ns
        # All further parts are at least 0: who is dearer by its pace alone is out of the question.
        able = (costs < own) & (self.space >= left) & (self.slept < stamp)
        able[worker.view.index] = False
        (few,) = able.nonzero()
        if not len(few):
            return
        costs = costs[few]
        late = self.seen[few] >= stamp
        if late.any():
            late_ns = np.maximum(0.0, (self.until_ns[few] - now_ns).astype(float))
            costs = np.where(late, late_ns + costs, costs)
        works: Any = work
        if works is None:
            works = self.token_ns[few] * left + self.client_ns[few] * tokens
        costs += (self.count[few] + theirs) * works * self.weight[few]
        if costs[best := int(costs.argmin())] < own:
            yield self.workers[few[best]]  # as a rule it takes the request
            for place in costs.argsort(kind="stable").tolist():
                if not costs[place] < own:
                    return
                yield self.workers[few[place]]
