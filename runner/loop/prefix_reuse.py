"""Blocks that a device copies between slots and store: it holds what the prefix cache says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.runner.worker.chunk import Chunk

if TYPE_CHECKING:
    from orsched.simulator.block_cache import BlockCache


class PrefixReuse:
    """Follows the blocks of a worker's prefix cache: each has a row in the device's store.

    A block that others may hit is stored when it is full, one that only its own request can hit
    when that request is evicted.

    Args:
        cache: the worker's blocks.
    """

    def __init__(self, cache: BlockCache) -> None:
        self.cache = cache
        self.stored: dict[int, int] = {}  # running request -> its first blocks that are stored
        self.leaving: list[Chunk] = []

    def chunk(self, request: int, chunk: Chunk, found: int | None) -> Chunk:
        """Return a chunk of a prefill with what it loads and stores.

        ``found``: tokens that the request found in the cache; None if its prefill had begun.
        """
        table, size = self.cache.tables[request], self.cache.size
        loads: list[tuple[int, int]] = []
        if found is not None:
            self.stored[request] = found // size
            loads = list(enumerate(table[: found // size]))
        first = self.stored[request]
        last = min((chunk.start + len(chunk.tokens)) // size, self.cache.chains.shared[request])
        if last > first:
            self.stored[request] = last
        return chunk._replace(loads=loads, saves=[(k, table[k]) for k in range(first, last)])

    def leave(self, request: int, slot: int, cached: int) -> None:
        """Let the full blocks of a request be stored that is evicted from its slot."""
        table, first = self.cache.tables[request], self.stored[request]
        saves = [(k, table[k]) for k in range(first, cached // self.cache.size)]
        if saves:
            self.leaving.append(Chunk(slot, 0, (), False, saves=saves))

    def left(self) -> list[Chunk]:
        """Return what is to be stored of those that have left since the last step."""
        leaving, self.leaving = self.leaving, []
        return leaving

    def forget(self, request: int) -> None:
        """Take note that a request has left its slot."""
        self.stored.pop(request, None)
