"""The batcher: waiting requests into batches, by the DP of Algorithm 1 or in the order given."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.costs import BilinearCost, as_bilinear
from orsched.costs.bilinear import COEFFICIENTS
from orsched.costs.exact import FS_PER_NS, MAX_COEFFICIENT_FS
from orsched.models.batch import DEEPSPEED, batch
from orsched.models.batch.batcher import serving_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.workers import Worker


LONGEST = 2048  # other cost models are sampled up to the longest total of the paper's settings


def bilinear_of(worker: Worker) -> BilinearCost:
    """Return the bilinear model by which a worker's batches are estimated.

    A bilinear cost is its own estimate. Any other is sampled at the four corners of 1 to J requests
    by 1 to 2,048 tokens, and the bilinear function through them is taken: exact where the cost is
    one, as the affine model is. Negative coefficients count as 0, so that no estimate is negative.
    """
    cost, known = worker.cost, as_bilinear(worker.cost)
    if known is not None:
        names = [f.name for f in fields(known) if f.name.endswith("_fs")]
        negative = {name: 0 for name in names if getattr(known, name) < 0}
        return replace(known, **negative) if negative else known
    most, longest = _ranges(worker)
    rounds = _through_corners(lambda n, c: cost.round_ns(n, n * c, c), max(2, worker.clients))
    if longest < 2:
        stages = [0, 0, 0, min(MAX_COEFFICIENT_FS, cost.prefill_ns([1]) * FS_PER_NS)]
    else:
        stages = _through_corners(lambda n, c: cost.prefill_ns([c] * n), most, longest)
    return BilinearCost(**dict(zip(COEFFICIENTS, (*stages, *rounds), strict=True)))


def _ranges(worker: Worker) -> tuple[int, int]:
    """Return how many requests of how many tokens a sampled prefill stage may have."""
    limit = worker.prefill_limit
    most = min(64, max(2, worker.clients))
    if limit is None:
        return most, LONGEST
    longest = min(LONGEST, limit // 2)
    return (max(2, min(most, limit // longest)) if longest else 2), longest


def _through_corners(
    value_ns: Callable[[int, int], int], most: int, longest: int = LONGEST
) -> list[int]:
    """Return the four coefficients, in femtoseconds, through the values at the corners."""
    low, long = value_ns(1, 1) * FS_PER_NS, value_ns(1, longest) * FS_PER_NS
    many, both = value_ns(most, 1) * FS_PER_NS, value_ns(most, longest) * FS_PER_NS
    wide, tall = most - 1, longest - 1
    cross = (both - many - long + low) // (wide * tall)
    each = (many - low) // wide - cross
    token = (long - low) // tall - cross
    alone = low - cross - each - token
    return [min(max(value, 0), MAX_COEFFICIENT_FS) for value in (cross, each, token, alone)]


MILLION = 1_000_000
RULES = ("worker", "deepspeed")


class SliceMemory:
    """The largest batch that every worker can serve for a slice, by the tokens it is padded to.

    Under paged memory a batch of N padded to L + S tokens holds ``N ceil((L + S) / block)`` blocks
    (eq. 5, in blocks); under ``whole`` memory each request is set aside the output limit instead of
    the slice. Clients bound the batch as well; a cap on prefill stages does not: there can be
    several. A request alone is always admitted: it is served as long as its true tokens fit.
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
        self.slice_tokens = slice_tokens  # S, rounds of a slice
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
    """Requests that are served together for a slice."""

    requests: list[int]  # their rows
    longest: int  # the tokens that all are padded to
    serving_ns: int  # estimated serving time, by the cost that the batcher was given


class Batcher:
    """Cuts a pool of requests into batches that fit into memory."""

    def __init__(
        self, cost: BilinearCost, memory: SliceMemory, batch_size: int | None, adaptive: bool
    ) -> None:
        self.cost = cost
        self.memory = memory
        self.batch_size = batch_size  # most requests in a batch, or None
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
