"""Future memory: the blocks that caches will fill at every expected end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROOM = 16
"""Caches for which there is room at first; it doubles."""


class FutureMemory:
    """Blocks that growing caches fill, at the rounds in which requests are expected to end.

    Rounds are counted from the start of the run. A cache has ``base + t`` tokens in round t, up to
    and including the round of its end, and is freed then. What all of them fill grows from one end
    to the next, so it is within the memory in every round if it is at every end.

    The caches are columns in the order of their ends, with what all fill at each of these, so that
    a question, an addition or a removal is a handful of operations on whole columns.

    Args:
        blocks: blocks of the worker.
        block_tokens: tokens of a block.
    """

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.blocks, self.size = blocks, block_tokens
        self._end_of: dict[int, int] = {}  # request -> end
        self._requests: list[int] = []  # these three in the order of the ends
        self._ends: list[int] = []
        self._columns = np.zeros((3, _ROOM), np.int64)  # end, base, blocks filled at the end

    @property
    def first_end(self) -> int:
        """The first expected end; there is one."""
        return self._ends[0]

    def add(self, request: int, base: int, end: int, always: bool = True) -> bool:
        """Count a cache in, unless it does not fit and need not be; say whether it is in."""
        place = bisect_left(self._ends, end)
        own = self._filled_at(place, end) - (base + end) // -self.size
        filled = self._with(place, base)
        if not always and not self._within(own, filled):
            return False
        count = len(self._ends)
        if count == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        columns = self._columns
        if place < count:
            columns[:, place + 1 : count + 1] = columns[:, place:count]
            if self._ends[place] == end:  # of those that end with it
                columns[2, place + 1 : bisect_right(self._ends, end, place) + 1] = own
        columns[:, place] = end, base, own
        columns[2, :place] = filled
        self._ends.insert(place, end)
        self._requests.insert(place, request)
        self._end_of[request] = end
        return True

    def drop(self, request: int) -> None:
        """Count a cache out."""
        end = self._end_of.pop(request)
        place = self._requests.index(request, bisect_left(self._ends, end))
        columns, count = self._columns, len(self._ends)
        ends, _, filled = columns[:, : bisect_right(self._ends, end, place)]
        filled -= self._blocks(ends + columns[1, place])
        columns[:, place : count - 1] = columns[:, place + 1 : count]
        del self._ends[place], self._requests[place]

    def extend(self, moment: int) -> None:
        """Let those that were expected to end by a round, and have not, end in the next one."""
        late = bisect_right(self._ends, moment)
        ends, base, filled = self._columns[:, : len(self._ends)]
        self._end_of.update(dict.fromkeys(self._requests[:late], moment + 1))
        self._ends[:late] = [moment + 1] * late
        ends[:late] = moment + 1  # they stay before the others, whose ends are no earlier
        filled[: bisect_right(self._ends, moment + 1)] = self._blocks(base + (moment + 1)).sum()

    def _blocks(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the blocks of caches with so many tokens, rounded up."""
        return tokens if self.size == 1 else -(tokens // -self.size)

    def _filled_at(self, place: int, end: int) -> int:
        """Return the blocks that are filled in a round, before which that many caches end."""
        count = len(self._ends)
        if place == count:
            return 0
        if self._ends[place] == end:
            return int(self._columns[2, place])
        return int(self._blocks(self._columns[1, place:count] + end).sum())

    def _with(self, place: int, base: int) -> NDArray[np.int64]:
        """Return what is filled at the first so many ends with one more cache."""
        ends, _, filled = self._columns[:, :place]
        total: NDArray[np.int64] = filled + self._blocks(ends + base)
        return total

    def _within(self, own: int, filled: NDArray[np.int64]) -> bool:
        return own <= self.blocks and (not filled.size or int(filled.max()) <= self.blocks)
