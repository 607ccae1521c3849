"""Paged blocks: how many the caches fill, and how many rounds still fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


class Pages:
    """Blocks that caches fill on a worker with paged memory.

    A cache that grows has ``base + rounds`` tokens after so many rounds of the worker, and takes a
    new block in the round after one in which its size is a multiple of ``block_tokens``. So the
    caches that grow are kept by ``base`` modulo the block size, and what a run of rounds needs
    is a sum over residues.

    Attributes:
        blocks: blocks of the worker.
        used: blocks that are filled now.
    """

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.blocks = blocks
        self.size = block_tokens
        self.rounds = 0
        self.used = 0
        self.growing = 0
        self.residues: dict[int, dict[int, None]] = {}

    def put(self, tokens: int) -> None:
        """Let a cache of some tokens be there that does not grow."""
        self.used += -(-tokens // self.size)

    def drop(self, tokens: int) -> None:
        """Free a cache that does not grow."""
        self.used -= -(-tokens // self.size)

    def grow(self, base: int, request: int) -> None:
        """Let a request's cache of ``base + rounds`` tokens, which is there already, grow."""
        self.residues.setdefault(base % self.size, {})[request] = None
        self.growing += 1

    def stop(self, base: int, request: int) -> None:
        """Free a cache that grows."""
        self.used -= -(-(base + self.rounds) // self.size)
        del self.residues[base % self.size][request]
        self.growing -= 1

    def due(self) -> Collection[int]:
        """Return the requests of which the next round takes a new block."""
        return self.residues.get(-self.rounds % self.size, ())

    def advance(self, count: int) -> None:
        """Let rounds pass."""
        self.used += self.needed(count)
        self.rounds += count

    def needed(self, count: int, paused: Sequence[int] = ()) -> int:
        """Return the new blocks that the next rounds take.

        ``paused`` are caches of so many tokens that do not grow now, and would then. The next round
        takes one for each cache of residue ``-rounds``, the one after it for each of the residue
        before, and so on.
        """
        size, residues = self.size, self.residues
        if paused:
            more = sum(-(-(tokens + count) // size) + -tokens // size for tokens in paused)
            return more + self.needed(count)
        first = -self.rounds % size
        if count == 1:
            return len(residues.get(first, ()))
        cycles, rest = divmod(count, size)
        total = cycles * self.growing
        if rest < len(residues):
            for later in range(rest):
                total += len(residues.get((first - later) % size, ()))
            return total
        for residue, caches in residues.items():
            if (first - residue) % size < rest:
                total += len(caches)
        return total

    def most_rounds(self, count: int) -> int:
        """Return how many of the next rounds fit, at most ``count``."""
        free = self.blocks - self.used
        if self.growing * -(-count // self.size) <= free:
            return count
        return most(count, lambda rounds: self.needed(rounds) <= free)


class PaddedPages:
    """The same where every cache is as long as the longest one."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.blocks = blocks
        self.size = block_tokens
        self.rounds = 0
        self.still: dict[int, int] = {}
        self.bases: dict[int, int] = {}
        self.present = 0

    @property
    def used(self) -> int:
        """Blocks that are filled now."""
        return self._after(0)

    def needed(self, count: int, paused: Sequence[int] = ()) -> int:
        """Return the new blocks that the next rounds take, in which those paused grow as well."""
        return self._after(count, paused) - self._after(0)

    def due(self) -> Collection[int]:
        """Return no request: a cache counts as the longest, whichever that is."""
        return ()

    def _after(self, count: int, paused: Sequence[int] = ()) -> int:
        longest = max(max(self.still, default=0), max(paused, default=-count) + count)
        if self.bases:
            longest = max(longest, max(self.bases) + self.rounds + count)
        return self.present * -(-longest // self.size)

    def put(self, tokens: int) -> None:
        """Let a cache of some tokens be there that does not grow."""
        count_up(self.still, tokens)
        self.present += 1

    def drop(self, tokens: int) -> None:
        """Free a cache that does not grow."""
        count_down(self.still, tokens)
        self.present -= 1

    def grow(self, base: int, request: int) -> None:
        """Let a request's cache of ``base + rounds`` tokens, which is there already, grow."""
        count_down(self.still, base + self.rounds)
        count_up(self.bases, base)

    def stop(self, base: int, request: int) -> None:
        """Free a cache that grows."""
        count_down(self.bases, base)
        self.present -= 1

    def advance(self, count: int) -> None:
        """Let rounds pass."""
        self.rounds += count

    def most_rounds(self, count: int) -> int:
        """Return how many of the next rounds fit, at most ``count``."""
        return most(count, lambda rounds: self._after(rounds) <= self.blocks)


def most(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to ``count`` that fits, 0 if none does; fitting is monotone."""
    if fits(count):
        return count
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def count_up(counts: dict[int, int], key: int) -> None:
    """Count one more."""
    counts[key] = counts.get(key, 0) + 1


def count_down(counts: dict[int, int], key: int) -> None:
    """Count one less; what is counted no more leaves."""
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1
