"""How many requests fit into one batch on the workers: the memory estimator (SCLS, eq. 5-9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.models.batch import DEEPSPEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
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
