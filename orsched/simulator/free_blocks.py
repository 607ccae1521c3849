"""Free blocks of a prefix cache that keep their content, in the order in which they are taken.

Each order undoes what it did, the last first: plans are tried on the cache itself.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orsched.simulator.future_users import BlockWorth

_BLOCK_BITS = 32
_BLOCK_MASK = 2**_BLOCK_BITS - 1
_NOWHERE = -1


class FreeBlocks(Protocol):
    """Blocks with content that no request holds."""

    def put(self, block: int) -> None:
        """Let a block that was freed just now be the last of its kind."""

    def unput(self, block: int) -> None:
        """Undo ``put``, the last that there was."""

    def remove(self, block: int) -> int:
        """Let a block leave, since a request holds it again; return what ``restore`` needs."""

    def restore(self, block: int, entry: int) -> None:
        """Undo ``remove``."""

    def take(self) -> int:
        """Remove and return the block whose content is to be lost."""

    def untake(self, block: int) -> None:
        """Undo ``take``, the last that there was."""

    def settle(self) -> None:
        """Forget what was kept to be undone: nothing will be."""

    def fell(self, block: int) -> None:
        """Take note that a block may be worth less."""


class LeastRecent:
    """The block that was freed first is taken first (vLLM's queue).

    The queue holds an entry for each time that a block was freed; those of blocks that were hit
    since are stale. ``entry`` has the one of each block that counts.
    """

    def __init__(self, blocks: int) -> None:
        self.entry = [_NOWHERE] * blocks
        self.queue: deque[int] = deque()
        self.number = 0
        self.most = 4 * blocks + 64
        self.taken: list[int] = []  # entries that left the queue, stale ones inverted

    def put(self, block: int) -> None:
        """Let the block be the last."""
        self.number = number = self.number + 1
        self.entry[block] = entry = number << _BLOCK_BITS | block
        self.queue.append(entry)

    def unput(self, block: int) -> None:
        """Let the block have no place."""
        self.queue.pop()
        self.entry[block] = _NOWHERE

    def remove(self, block: int) -> int:
        """Let the block's entry be stale."""
        entry = self.entry[block]
        self.entry[block] = _NOWHERE
        return entry

    def restore(self, block: int, entry: int) -> None:
        """Let the entry count again."""
        self.entry[block] = entry

    def take(self) -> int:
        """Take the first one."""
        queue, entries, taken = self.queue, self.entry, self.taken
        while True:
            entry = queue.popleft()
            block: int = entry & _BLOCK_MASK
            if entries[block] == entry:
                entries[block] = _NOWHERE
                taken.append(entry)
                return block
            taken.append(~entry)

    def untake(self, block: int) -> None:
        """Put the block's entry back, and the stale ones before it: they may count again."""
        taken, queue = self.taken, self.queue
        self.entry[block] = entry = taken.pop()
        queue.appendleft(entry)
        while taken and taken[-1] < 0:
            queue.appendleft(~taken.pop())

    def fell(self, block: int) -> None:
        """Do nothing: worth does not matter."""

    def settle(self) -> None:
        """Forget the entries that were taken, and now and then those that are stale."""
        self.taken.clear()
        if len(self.queue) > self.most:
            entries = self.entry
            self.queue = deque(e for e in self.queue if entries[e & _BLOCK_MASK] == e)


class LeastWorth:
    """The block of the least worth is taken first, ties by the time of their freeing.

    Entries of a heap are (worth, number, block) as of when they were made. Where a block's worth
    falls ``fell`` is called; where it rises, that shows when its entry comes up.
    """

    def __init__(self, blocks: int, worth: BlockWorth) -> None:
        self.number_of = [_NOWHERE] * blocks
        self.heap: list[tuple[float, int, int]] = []
        self.number = 0
        self.most = 8 * blocks + 64
        self.worth = worth
        self.taken: list[int] = []

    def put(self, block: int) -> None:
        """Let the block be free."""
        self.worth.freed(block)
        self.number = number = self.number + 1
        self.number_of[block] = number
        heappush(self.heap, (self.worth(block), number, block))

    def unput(self, block: int) -> None:
        """Let the block have no place; its entry is stale."""
        self.number_of[block] = _NOWHERE

    def remove(self, block: int) -> int:
        """Let the block's entries be stale."""
        number = self.number_of[block]
        self.number_of[block] = _NOWHERE
        return number

    def restore(self, block: int, entry: int) -> None:
        """Let the block have its place again."""
        self.number_of[block] = entry
        heappush(self.heap, (self.worth(block), entry, block))

    def fell(self, block: int) -> None:
        """Take note that a block's worth fell."""
        number = self.number_of[block]
        if number != _NOWHERE:
            heappush(self.heap, (self.worth(block), number, block))

    def take(self) -> int:
        """Take the block of the least worth."""
        heap, number_of = self.heap, self.number_of
        while True:
            worth, number, block = heappop(heap)
            if number_of[block] != number:
                continue
            now = self.worth(block)
            if now > worth:
                heappush(heap, (now, number, block))
                continue
            self.taken.append(number)
            number_of[block] = _NOWHERE
            return block

    def untake(self, block: int) -> None:
        """Let the block have its place again."""
        self.restore(block, self.taken.pop())

    def settle(self) -> None:
        """Forget what was taken, and now and then what is stale."""
        self.taken.clear()
        if len(self.heap) > self.most:
            self.heap = [
                (self.worth(block), number, block)
                for block, number in enumerate(self.number_of)
                if number != _NOWHERE
            ]
            heapify(self.heap)
