"""The memory of a worker while a step is planned, with its prefix cache where it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orsched.simulator.policy import View

UNLIMITED = 2**62


class Room:
    """Blocks that are free while a step is planned, changed by what is planned.

    With ``whole`` allocation a request takes all its blocks at its admission, with ``paged`` those
    that its tokens fill. Opened for each decision and closed after it: a trial of the prefix
    cache is undone then.

    Attributes:
        size: tokens of a block under paged memory, else 0.
        blocks: all blocks of the worker.
        free: blocks that nobody refers to.
    """

    def __init__(self, view: View) -> None:
        memory = view.worker.memory
        self.view = view
        self.size = memory.block_tokens if memory is not None and memory.is_paged else 0
        self.blocks = UNLIMITED if memory is None else memory.blocks
        self.cache = view.prefixes
        self.trial = None if self.cache is None else self.cache.trial()
        unused = view.blocks_unused
        self.plain_free = UNLIMITED if unused is None else unused

    @property
    def free(self) -> int:
        """Return how many blocks are free."""
        return self.plain_free if self.trial is None else self.trial.free_blocks

    def close(self) -> None:
        """Undo the trial."""
        if self.trial is not None:
            self.trial.close()

    def peek(self, request: int) -> tuple[int, int]:
        """Return the tokens that a waiting request would find, and the free blocks they are in."""
        return (0, 0) if self.trial is None else self.trial.hit(request)

    def needed(self, request: int, hit: int, tokens: int) -> int:
        """Return the new blocks for so many computed tokens of a waiting request."""
        if not self.size:
            return self.view.blocks_of(request)
        return -(-(hit + tokens) // self.size) - hit // self.size

    def more(self, request: int, tokens: int) -> int:
        """Return the new blocks for further tokens of a running request."""
        if not self.size:
            return 0
        cached = self.view.cached(request)
        return -(-(cached + tokens) // self.size) + (-cached // self.size)

    def extend(self, request: int, tokens: int) -> bool:
        """Take the blocks for further tokens of a running request, if they are there."""
        new = self.more(request, tokens)
        if new > self.free:
            return False
        if self.trial is None:
            self.plain_free -= new
        elif request in self.view.prefilling:
            self.trial.extend(request, tokens)
        elif new:
            self.trial.grow(new)
        return True

    def admit(self, request: int, tokens: int) -> None:
        """Take the blocks of a waiting request for its first chunk."""
        if self.trial is None:
            self.plain_free -= self.needed(request, 0, tokens)
        else:
            self.trial.admit(request, tokens)

    def release(self, request: int) -> None:
        """Give back the blocks of a running request; before any are taken."""
        if self.trial is not None:
            self.trial.release(request)
        elif self.size:
            self.plain_free += -(-self.view.cached(request) // self.size)
        elif self.blocks < UNLIMITED:
            self.plain_free += self.view.blocks_of(request)

    def promised(self, prefills: Iterable[int], chunks: Mapping[int, int]) -> int:
        """Return the blocks that begun prefills will take beyond the chunks of this step."""
        left = self.view.to_prefill
        return sum(
            self.more(each, left(each)) - self.more(each, chunks.get(each, 0)) for each in prefills
        )
