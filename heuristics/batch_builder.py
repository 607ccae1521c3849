"""Which requests a worker's next prefill still takes, by the limits of every policy that forms
batches: free clients, prompt tokens of a prefill step (on a padding worker each request counts as
long as the longest), and memory blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from orsched.data.step import Step

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable, Iterator

    from orsched.simulator.policy import View

UNLIMITED = 2**62


class BatchBuilder:
    """Admits requests to the next prefill of a worker, one after the other, while they fit.

    A policy keeps one for each worker and opens it for each batch. Memory is set aside for the
    whole answer, as far as the policy may know it (``View.blocks_of``); with paged memory on a
    padding worker every request counts with the most that is set aside for any of those there.
    Another rule for memory overrides ``reserve``.

    Args:
        view: the worker.
        padding: whether requests count as long as the longest; None: as the worker pads.
        memory: whether memory is a limit.

    Attributes:
        limit: most prompt tokens of a prefill.
        clients: most requests of the batch.
        present: requests that were on the worker before.
        count, tokens, longest: requests of the batch, their tokens (with padding), and the longest.
        blocks: memory blocks that are left.
    """

    def __init__(self, view: View, padding: bool | None = None, memory: bool = True) -> None:
        worker = view.worker
        model = worker.memory if memory else None
        limit = worker.prefill_limit
        self.view = view
        self.padding = worker.padding if padding is None else padding
        self.limit = UNLIMITED if limit is None else limit
        self.has_memory = model is not None
        self.paged = model is not None and model.is_paged
        self.most_blocks = UNLIMITED if model is None else model.blocks
        self.block_tokens = 1 if model is None else model.block_tokens
        self.one_by_one = self.padding  # what is left is no plain sum: each request is asked for

    def open(self, clients: int | None = None) -> Self:
        """Begin a batch of at most this many requests (None: as many as clients are free)."""
        view = self.view
        self.clients = view.free_clients if clients is None else clients
        self.count = self.tokens = self.longest = 0
        self.present = len(view.running)
        if self.has_memory:
            self.blocks = view.blocks_free or 0
            if self.padding and self.paged:  # all count with the most that is set aside for one
                self.largest = max(map(view.blocks_of, view.running), default=0)
        return self

    def admit(self, request: int, tokens: int | None = None) -> bool:
        """Count a request in if it fits beside those before it; return whether it does. It has
        ``tokens`` to prefill (None: ``View.to_prefill``). The first one may exceed the limit: the
        policy prefills it in chunks."""
        if tokens is None:
            tokens = self.view.to_prefill(request)
        count = self.count
        longest = tokens if tokens > self.longest else self.longest
        total = longest * (count + 1) if self.padding else self.tokens + tokens
        if count >= self.clients or (count and total > self.limit):
            return False
        if self.has_memory and not self.reserve(request, tokens):
            return False
        self.count, self.longest, self.tokens = count + 1, longest, total
        return True

    def reserve(self, request: int, tokens: int) -> bool:
        """Take the memory of a request if there is enough of it; return whether there is."""
        blocks = self.view.blocks_of(request)
        if self.paged and self.padding:
            largest = max(self.largest, blocks)
            if largest * (self.present + self.count + 1) > self.most_blocks:
                return False
            self.largest = largest
        elif blocks > self.blocks:
            return False
        self.blocks -= blocks
        return True

    def take(self, queue: deque[int], clients: int | None = None) -> list[int]:
        """Pop requests from the front of a queue, until the next does not fit; at most ``clients``
        (None: as many as are free). One alone may be longer than a stage, if its cache was lost
        with yielded tokens."""
        view, tokens = self.view, self.limit
        if clients is None:
            clients = view.free_clients
        stage: list[int] = []
        if self.one_by_one:
            self.open(clients)
            while queue and self.admit(queue[0]):
                stage.append(queue.popleft())
            return stage
        to_prefill = view.to_prefill  # more than the prompt after a loss: what was yielded, too
        blocks = view.blocks_free if self.has_memory else None
        while queue and clients > 0:
            request = queue[0]
            tokens -= to_prefill(request)
            if tokens < 0 and stage:
                break
            if blocks is not None:
                blocks -= view.blocks_of(request)
                if blocks < 0:
                    break
            stage.append(queue.popleft())
            clients -= 1
        return stage

    def take_offered(self, offered: Iterable[int], clients: int) -> list[int]:
        """Return the first of the requests that are offered, until one does not fit; an iterator
        that is asked for the next request knows that the one before was admitted."""
        if self.one_by_one:
            self.open(clients)
            return list(_admitted(self, offered))
        view, tokens = self.view, self.limit
        to_prefill, blocks_of = view.to_prefill, view.blocks_of
        blocks = view.blocks_free if self.has_memory else None
        stage: list[int] = []
        for request in offered:
            tokens -= to_prefill(request)
            if tokens < 0 and stage:
                break
            if blocks is not None:
                blocks -= blocks_of(request)
                if blocks < 0:
                    break
            stage.append(request)
        return stage

    def prefill(self, stage: list[int], decode: tuple[()] | None = ()) -> Step:
        """Return the prefill of a batch beside which nothing decodes, or all that run (``decode``
        None). Of one alone that is longer than a stage (its cache was lost) it is the first
        part."""
        if len(stage) == 1 and self.view.to_prefill(stage[0]) > self.limit:
            return Step(stage, [self.limit], None, decode)
        return Step(stage, None, None, decode)

    def next_part(self, decode: tuple[()] | None = ()) -> Step:
        """Return the next part of the request whose prefill was begun."""
        request = next(iter(self.view.prefilling))
        return Step([request], [min(self.limit, self.view.to_prefill(request))], None, decode)


def _admitted(batch: BatchBuilder, offered: Iterable[int]) -> Iterator[int]:
    for request in offered:
        if not batch.admit(request):
            break
        yield request
