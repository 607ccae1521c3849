"""The blocks of one worker's prefix cache: what they hold, who refers to them, which is taken next.

Keys are whole numbers: identifiers of prefixes are at least 0, a request's own keys below ``LOST``.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush

EMPTY = -1
"""Key of a block without content."""

LOST = -2
"""Key of content that nobody can find any more: a finished request's own."""


def own_key(request: int, block: int) -> int:
    """Return the key of a block that only its request can find again."""
    return LOST - 1 - (request << 31 | block)


class CacheBlocks:
    """Blocks that are taken in the order in which they became free, those without content first.

    Attributes:
        blocks: how many there are.
        used: how many are referenced. More than there are in schedules that need more.
        evicted: how many were taken that had content.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.used = 0
        self.evicted = 0
        self.key: list[int] = []  # of the blocks that were taken so far: the others come first
        self.references: list[int] = []
        self.blank: list[int] = []  # free ones without content
        self.free: OrderedDict[int, int] = OrderedDict()  # the others: if its last user was bulk
        self.holder: dict[int, int] = {}
        self.copies: dict[int, list[int]] = {}  # key -> blocks, where there are several

    def take(self, many: int) -> list[int]:
        """Return so many blocks, now referenced once and without content."""
        taken = [self._next() for _ in range(many)]
        self.used += many
        return taken

    def _next(self) -> int:
        if self.blank:
            block = self.blank.pop()
        elif len(self.key) < self.blocks or not self.free:
            block = len(self.key)
            self.key.append(EMPTY)
            self.references.append(0)
        else:
            block = self.pop()
            self.evicted += 1
            self._forget(block)
        self.references[block] = 1
        return block

    def pop(self) -> int:
        """Remove and return the free block with content that is taken next."""
        return self.free.popitem(last=False)[0]

    def name(self, block: int, key: int) -> None:
        """Give a block a key, now that it is full."""
        self.key[block] = key
        if self.holder.setdefault(key, block) != block:
            self.copies.setdefault(key, [self.holder[key]]).append(block)

    def _forget(self, block: int) -> None:
        key, self.key[block] = self.key[block], EMPTY
        if key == LOST:
            return
        copies = self.copies.get(key)
        if copies is None:
            del self.holder[key]
            return
        copies.remove(block)
        self.holder[key] = copies[0]
        if len(copies) == 1:
            del self.copies[key]

    def refer(self, blocks: list[int]) -> None:
        """Add a reference to each of some blocks."""
        references, free = self.references, self.free
        for block in blocks:
            if references[block] == 0:
                del free[block]
                self.used += 1
            references[block] += 1

    def release(self, blocks: list[int], bulk: int) -> None:
        """Drop a reference to each block, the last first; ``bulk``: whether who does it is."""
        references, free = self.references, self.free
        for block in reversed(blocks):
            references[block] -= 1
            if references[block] == 0:
                self.used -= 1
                if self.key[block] == EMPTY:
                    self.blank.append(block)
                else:
                    free[block] = bulk

    def lowered(self, key: int) -> None:
        """Note that fewer requests will use a key."""


class RankedBlocks(CacheBlocks):
    """Blocks that are taken in the order of what they are worth, then that of becoming free.

    Args:
        blocks: how many there are.
        users: key -> requests that will use it, kept by the owner.
        seen: key -> how many more or fewer this worker sees, for what it does itself; likewise.
        left: what a block is worth that nobody will use, by whether its last user was bulk.
    """

    def __init__(
        self, blocks: int, users: dict[int, int], seen: dict[int, int], left: tuple[float, float]
    ) -> None:
        super().__init__(blocks)
        self.users = users
        self.seen = seen
        self.left = left
        self.number: dict[int, int] = {}  # free block -> when it became free
        self.freed = 0
        self.heap: list[tuple[float, int, int]] = []

    def worth(self, block: int) -> float:
        """Return what the content of a free block is worth now."""
        key = self.key[block]
        waiting = self.users.get(key, 0) + self.seen.get(key, 0)
        return waiting or self.left[self.free[block]]

    def pop(self) -> int:
        """Remove and return the free block whose content is worth least."""
        while True:
            worth, number, block = heappop(self.heap)
            if self.number.get(block) != number:
                continue
            now = self.worth(block)
            if now == worth:
                del self.number[block], self.free[block]
                return block
            if now > worth:
                heappush(self.heap, (now, number, block))

    def refer(self, blocks: list[int]) -> None:
        """As before."""
        for block in blocks:
            self.number.pop(block, None)
        super().refer(blocks)

    def release(self, blocks: list[int], bulk: int) -> None:
        """As before."""
        super().release(blocks, bulk)
        for block in reversed(blocks):
            if block in self.free:
                self.freed += 1
                self.number[block] = self.freed
                heappush(self.heap, (self.worth(block), self.freed, block))

    def lowered(self, key: int) -> None:
        """Note that fewer requests will use a key: its free blocks may be the next ones."""
        block = self.holder.get(key)
        if block is None:
            return
        for each in self.copies.get(key, (block,)):
            if each in self.number:
                heappush(self.heap, (self.worth(each), self.number[each], each))
