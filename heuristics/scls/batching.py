"""The batcher: waiting requests into batches, by the DP of Algorithm 1 or in the order given."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.models.batch import DEEPSPEED, batch
from orsched.models.batch.result import serving_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.common.columns import IntColumn
    from orsched.costs import BilinearCost
    from orsched.data.workers import Worker


MILLION = 1_000_000
RULES = ("worker", "deepspeed")


class SliceMemory:
    """The largest batch that every worker can serve for a slice, by the tokens it is padded to.

    Under paged memory a batch of N padded to L + S tokens holds ``N ceil((L + S) / block)`` blocks
    (eq. 5, in blocks); under ``whole`` memory each request is set aside the output limit instead of
    the slice. The clients bound the batch as well; a cap on prefill stages does not, a batch can be
    prefilled in several. A request alone is always admitted: it is served as long as its true
    tokens fit.

    Attributes:
        slice_tokens: S, rounds of a slice.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        slice_tokens: int,
        output_limit_tokens: int,
        rule: str = "worker",
        share: float = 1.0,
    ) -> None:
        self.workers = list(dict.fromkeys(workers))
        self.slice_tokens = slice_tokens
        self.output_limit_tokens = output_limit_tokens
        self.table = DEEPSPEED if rule == "deepspeed" else None
        self.share_ppm = round(share * MILLION)
        self.known: dict[int, int] = {}

    def most(self, tokens: IntColumn) -> IntColumn:
        """Return the most requests in a batch padded to these tokens (longest + slice)."""
        sizes = np.full(len(tokens), min(w.clients for w in self.workers), dtype=np.int64)
        if self.table is not None:
            sizes = np.minimum(sizes, self.table.most(tokens))
        for worker in self.workers:
            self._bound(worker, tokens, sizes)
        return np.maximum(sizes, 1)

    def _bound(self, worker: Worker, tokens: IntColumn, sizes: IntColumn) -> None:
        memory = worker.memory
        if memory is not None:
            held = tokens
            if not memory.is_paged:
                held = tokens - self.slice_tokens + self.output_limit_tokens
            blocks = self.share_ppm * memory.blocks // MILLION
            np.minimum(sizes, blocks // -(-held // memory.block_tokens), out=sizes)

    def most_of(self, longest: int) -> int:
        """Return the most requests in a batch whose longest has this many tokens."""
        found = self.known.get(longest)
        if found is None:
            found = int(self.most(np.array([longest + self.slice_tokens], dtype=np.int64))[0])
            self.known[longest] = found
        return found


class SlicedBatch(NamedTuple):
    """Requests that are served together for a slice.

    Attributes:
        requests: their rows.
        longest: the tokens that all are padded to.
        serving_ns: estimated serving time, by the cost that the batcher was given.
    """

    requests: list[int]
    longest: int
    serving_ns: int


class Batcher:
    """Cuts a pool of requests into batches that fit into memory.

    Attributes:
        batch_size: most requests in a batch, or None.
    """

    def __init__(
        self, cost: BilinearCost, memory: SliceMemory, batch_size: int | None, adaptive: bool
    ) -> None:
        self.cost = cost
        self.memory = memory
        self.batch_size = batch_size
        self.slice_tokens = memory.slice_tokens
        self.adaptive = adaptive

    def cut(self, requests: Sequence[int], lengths: Sequence[int]) -> list[SlicedBatch]:
        """Return the batches of requests with these lengths (prompt and yielded tokens)."""
        return (self._least_time if self.adaptive else self._in_order)(requests, lengths)

    def _least_time(self, requests: Sequence[int], lengths: Sequence[int]) -> list[SlicedBatch]:
        """Cut for the least total serving time; as in Algorithm 1, the longest come first."""
        column = np.array(lengths, dtype=np.int64)
        found = batch(column, self.cost, self.slice_tokens, self.memory, self.batch_size)
        ordered = np.array(requests, dtype=np.int64)[found.order].tolist()
        cuts = found.boundaries.tolist()
        times = found.serving_ns.tolist()
        longest = found.longest.tolist()
        return [
            SlicedBatch(ordered[cuts[i] : cuts[i + 1]], longest[i], times[i])
            for i in reversed(range(len(longest)))
        ]

    def _in_order(self, requests: Sequence[int], lengths: Sequence[int]) -> list[SlicedBatch]:
        """Cut by count, in the order given."""
        batches, start, end = [], 0, len(requests)
        while start < end:
            count, longest = self.front(lengths[i] for i in range(start, end))
            batches.append(self.price(requests[start : start + count], longest))
            start += count
        return batches

    def front(self, lengths: Iterable[int]) -> tuple[int, int]:
        """Return how many requests from the front make a batch, and the longest of them."""
        count = longest = 0
        for length in lengths:
            padded = max(longest, length)
            if count and (count == self.batch_size or count >= self.memory.most_of(padded)):
                break
            count, longest = count + 1, padded
        return count, longest

    def price(self, requests: Sequence[int], longest: int) -> SlicedBatch:
        """Return the batch of these requests with its estimated time (eq. 1-4)."""
        time_ns = serving_ns(self.cost, len(requests), longest, self.slice_tokens)
        return SlicedBatch(list(requests), longest, time_ns)
