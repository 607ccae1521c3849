"""The offloader: batches to workers, the longest to the least loaded (SCLS, eq. 11), or in turn."""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

from orsched.models.batch.result import serving_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.costs import BilinearCost
    from orsched.heuristics.scls.batching import SlicedBatch
    from orsched.simulator.policy import View


class Offloader:
    """Chooses a worker for each batch, and keeps the loads: estimated time of what is not done.

    Attributes:
        loads_ns: T_load by worker.
    """

    def __init__(
        self, views: Sequence[View], costs: Sequence[BilinearCost], slice_tokens: int, max_min: bool
    ) -> None:
        self.views = views
        self.costs = costs
        self.slice_tokens = slice_tokens
        self.max_min = max_min
        self.loads_ns = [0] * len(views)
        self.next = 0
        first = views[0].worker
        self.alike = all(
            (v.worker.memory, cost) == (first.memory, costs[0])
            for v, cost in zip(views, costs, strict=True)
        )

    def offload(self, batches: list[SlicedBatch]) -> Iterator[tuple[int, SlicedBatch]]:
        """Yield (worker, batch, with the time that it is estimated to take there)."""
        if not self.max_min:
            for each in batches:
                worker = self.in_turn(each.requests)
                yield worker, self._add(worker, each)
            return
        ordered = sorted(batches, key=lambda each: -each.serving_ns)
        if not self.alike:
            for each in ordered:
                worker = min(self._able(each.requests), key=lambda w: (self.loads_ns[w], w))
                yield worker, self._add(worker, each)
            return
        heap = [(load, worker) for worker, load in enumerate(self.loads_ns)]
        heapify(heap)
        for each in ordered:
            worker = heap[0][1]
            self.loads_ns[worker] += each.serving_ns
            heapreplace(heap, (self.loads_ns[worker], worker))
            yield worker, each

    def in_turn(self, requests: Sequence[int]) -> int:
        """Return the next worker in turn that can hold the requests."""
        count = len(self.views)
        able = range(count) if self.alike else self._able(requests)
        worker = self.next
        while worker not in able:
            worker = (worker + 1) % count
        self.next = (worker + 1) % count
        return worker

    def done(self, worker: int, served: SlicedBatch) -> None:
        """Take a batch that was served off its worker's load."""
        self.loads_ns[worker] -= served.serving_ns

    def _add(self, worker: int, each: SlicedBatch) -> SlicedBatch:
        if not self.alike:
            time_ns = serving_ns(
                self.costs[worker], len(each.requests), each.longest, self.slice_tokens
            )
            each = each._replace(serving_ns=time_ns)
        self.loads_ns[worker] += each.serving_ns
        return each

    def _able(self, requests: Sequence[int]) -> Sequence[int]:
        """Return the workers that hold a batch; several fit everywhere, one may be too large."""
        return range(len(self.views)) if len(requests) > 1 else able(self.views, requests[0])


def able(views: Sequence[View], request: int) -> Sequence[int]:
    """Return the workers that hold a request up to the output limit, else those with most room."""
    found = [w for w, view in enumerate(views) if _room(view, request) >= 0]
    if found:
        return found
    sizes = [_tokens(view) for view in views]
    return [w for w, size in enumerate(sizes) if size == max(sizes)]


def _room(view: View, request: int) -> int:
    memory = view.worker.memory
    return 0 if memory is None else memory.blocks - view.blocks_of(request)


def _tokens(view: View) -> int:
    memory = view.worker.memory
    return 0 if memory is None else memory.tokens
