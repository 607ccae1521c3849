"""Blocks of prefixes beside the slots: copied out of a slot once, into others at each hit.

A slot's cache is one piece of memory, so that a round reads it without a table of blocks. The price
of reuse is a copy of each block that is stored or hit, and the memory of the store; the price of
not having it would be to compute the block again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    import torch

    from orsched.runner.worker.chunk import Chunk
    from orsched.runner.worker.slots import Slots


class PrefixStore:
    """Room for some blocks of keys and values of every layer.

    Args:
        slots: whose blocks are stored.
        blocks: how many blocks there is room for.
        block_tokens: tokens a block.
        to_device: brings numbers of the host to the slots' device.
    """

    def __init__(
        self,
        slots: Slots,
        blocks: int,
        block_tokens: int,
        to_device: Callable[[np.ndarray], torch.Tensor],
    ) -> None:
        self.slots, self.size, self.to_device = slots, block_tokens, to_device
        self.layers = [
            tuple(each.new_zeros(blocks * block_tokens, *each.shape[1:]) for each in pair)
            for pair in slots.rows
        ]

    def bytes(self) -> int:
        """Return the memory that the store takes."""
        return sum(each.nbytes for pair in self.layers for each in pair)

    def save(self, chunks: Iterable[Chunk]) -> None:
        """Copy blocks of the chunks' slots into the store, as their ``saves`` say."""
        self._copy([(row, c.slot, block) for c in chunks for block, row in c.saves], False)

    def load(self, chunks: Iterable[Chunk]) -> None:
        """Copy blocks of the store into the chunks' slots, as their ``loads`` say."""
        self._copy([(row, c.slot, block) for c in chunks for block, row in c.loads], True)

    def _copy(self, moves: Sequence[tuple[int, int, int]], into_slots: bool) -> None:
        import numpy as np

        if not moves:
            return
        row, slot, block = np.array(moves, np.int64).T
        tokens, length = np.arange(self.size), self.slots.length
        stored = (row * self.size)[:, None] + tokens
        placed = (slot * length + block * self.size)[:, None] + tokens
        at, there = self.to_device(np.stack([stored.ravel(), placed.ravel()]))
        for own, slots in zip(self.layers, self.slots.rows, strict=True):
            for mine, theirs in zip(own, slots, strict=True):
                if into_slots:
                    theirs.index_copy_(0, there, mine[at])
                else:
                    mine.index_copy_(0, at, theirs[there])


def in_waves(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Return chunks as they must follow one another: whoever loads a block after who stores it.

    Requests that are admitted together may share a block that the first of them computes.
    """
    waves: list[list[Chunk]] = []
    stored: dict[int, int] = {}  # row of the store -> wave that fills it
    for chunk in chunks:
        wave = max((stored.get(row, -1) + 1 for _, row in chunk.loads), default=0)
        while len(waves) <= wave:
            waves.append([])
        waves[wave].append(chunk)
        stored |= {row: wave for _, row in chunk.saves}
    return waves
