"""The caches on a worker: contexts in a round, and the memory blocks that they fill."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from orsched.common.errors import PolicyError
from orsched.simulator.paging import PaddedPages, Pages
from orsched.simulator.shared_pages import SharedPages

if TYPE_CHECKING:
    from orsched.simulator.block_cache import BlockCache
    from orsched.simulator.policy import WorkerState


class Caches:
    """Sizes of caches, kept up to date only as far as cost and memory model ask for them.

    A cache that grows has ``base + rounds`` tokens, where the base is the request's prompt less
    the round from which its tokens count: so nothing changes from round to round.

    Attributes:
        context_matters: whether the cost model asks for contexts.
        pages: the filled blocks under paged memory, else None.
        shared: the same where the worker has a prefix cache, else None.
        blocks: blocks of the worker, 0 without a memory model.
        tracks: whether anything is kept.
    """

    def __init__(self, state: WorkerState, block_cache: BlockCache | None = None) -> None:
        worker, memory = state.worker, state.worker.memory
        self.state = state
        self.padding = worker.padding
        self.context_matters = worker.cost.context_matters
        self.blocks = 0 if memory is None else memory.blocks
        self.pages: Pages | PaddedPages | None = None
        self.shared: SharedPages | None = None
        if block_cache is not None:
            self.pages = self.shared = state.pages = SharedPages(block_cache)
        elif memory is not None and memory.is_paged:
            kind = PaddedPages if worker.padding else Pages
            self.pages = state.pages = kind(memory.blocks, memory.block_tokens)
        self.tracks = self.context_matters or self.pages is not None
        self.base_sum = 0
        self.largest: list[tuple[int, int]] = []
        self.bases: dict[int, int] = {}

    def put(self, tokens: int) -> None:
        """Let a cache be there that does not grow."""
        if self.pages is not None:
            self.pages.put(tokens)

    def drop(self, tokens: int) -> None:
        """Free a cache that does not grow."""
        if self.pages is not None:
            self.pages.drop(tokens)

    def grow(self, request: int, tokens: int) -> None:
        """Let a request's cache of so many tokens, which is there already, grow from now on."""
        self.bases[request] = base = tokens - self.state.rounds
        if self.context_matters:
            self.base_sum += base
            heappush(self.largest, (-base, request))
        if self.pages is not None:
            self.pages.grow(base, request)

    def stop(self, request: int) -> None:
        """Free a cache that grows."""
        base = self.bases.pop(request)
        if self.context_matters:
            self.base_sum -= base
        if self.pages is not None:
            self.pages.stop(base, request)

    def contexts(self, active: int) -> tuple[int, int]:
        """Sum and maximum of the contexts in the next round, over the caches that grow."""
        if not self.context_matters:
            return 0, 0
        heap, bases = self.largest, self.bases
        while bases.get(heap[0][1]) != -heap[0][0]:
            heappop(heap)
        next_round = self.state.rounds + 1
        longest = next_round - heap[0][0]
        if self.padding:
            return active * longest, longest
        return self.base_sum + active * next_round, longest

    @property
    def held(self) -> int:
        """Blocks that caches fill now under paged memory."""
        return 0 if self.pages is None else self.pages.used

    def require_room(self, rounds: int) -> None:
        """Raise ``PolicyError`` unless memory holds what is there, after some rounds (0 or 1)."""
        if not self.blocks:
            return
        pages, blocks = self.pages, self.blocks
        if pages is None:
            if self.state.blocks_set_aside > blocks:
                raise PolicyError(f"{self.state.blocks_set_aside} memory blocks of {blocks}")
        elif pages.used > blocks or pages.most_rounds(rounds) < rounds:
            more = " and a round more" if rounds else ""
            raise PolicyError(f"caches of {pages.used} memory blocks{more}, of {blocks}")
