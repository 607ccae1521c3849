"""Paged blocks on a worker with a prefix cache: requests with equal prefixes share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.simulator.paging import Pages

if TYPE_CHECKING:
    from orsched.simulator.block_cache import BlockCache


class SharedPages(Pages):
    """Counts rounds as ``Pages`` does; the blocks themselves are those of a cache.

    Tokens in the cache of a request that does not grow are known to who calls: its blocks stay
    until ``release``.

    Attributes:
        cache: the worker's blocks.
        busy: whether a step is in progress.
        places: request -> how many were admitted on this worker before it.
    """

    def __init__(self, cache: BlockCache) -> None:
        super().__init__(cache.blocks, cache.size)
        self.cache = cache
        self.places: dict[int, int] = {}
        self.admitted = 0
        self.bases: dict[int, int] = {}
        self.begun = False  # whether the blocks of the next round are taken already
        self.busy = False

    # -- steps ----------------------------------------------------------------------------

    def see(self, now_ns: int) -> None:
        """Undo what was tried, and know of what happened elsewhere before now."""
        self.cache.undo()
        if self.cache.users is not None:
            self.cache.users.advance(now_ns)

    def start(self, now_ns: int) -> None:
        """Let a step begin."""
        self.busy = True
        if self.cache.users is not None:
            self.cache.users.started(self.cache.worker, now_ns)

    def end(self, now_ns: int) -> None:
        """Let a step end; then its rounds take their blocks, with what is known then."""
        self.see(now_ns)
        self.busy = False

    # -- prefill --------------------------------------------------------------------------

    def admit(self, request: int, due: int) -> int:
        """Let a request start; return the tokens that it finds."""
        self.places[request] = self.admitted
        self.admitted += 1
        return self._counted(self.cache.admit(request, due))

    def extend(self, request: int, cached: int, tokens: int) -> None:
        """Let a request prefill some tokens behind those cached."""
        self.cache.extend(request, cached, tokens)
        self._counted()

    def release(self, request: int, cached: int, due: int | None = None) -> None:
        """Free the blocks of a request; ``due``: what it will prefill when it resumes."""
        del self.places[request]
        self.cache.release(request, cached, due)
        self._counted()

    def _counted(self, value: int = 0) -> int:
        """Keep count of the blocks that are held; return the value."""
        self.used = self.blocks - self.cache.free
        return value

    # -- rounds ---------------------------------------------------------------------------

    def put(self, tokens: int) -> None:
        """Let a cache be there that does not grow: its blocks are known by request."""

    def drop(self, tokens: int) -> None:
        """Let a cache go that does not grow: ``release`` frees its blocks."""

    def grow(self, base: int, request: int) -> None:
        """Let a request's cache of ``base + rounds`` tokens, which is there already, grow."""
        super().grow(base, request)
        self.bases[request] = base

    def stop(self, base: int, request: int) -> None:
        """Let a cache not grow; its blocks stay."""
        del self.residues[base % self.size][request]
        del self.bases[request]
        self.growing -= 1

    def begin_round(self) -> None:
        """Take the blocks of the next round before it is over: a mixed step does."""
        grow = self.cache.grow
        for request in self.due():
            grow(request, 1)
        self.begun = True
        self._counted()

    def advance(self, count: int) -> None:
        """Let rounds pass."""
        if self.begun:
            assert count == 1  # a mixed step has one round
            self.begun = False
        else:
            self._take(count)
        self.rounds += count

    def _take(self, count: int) -> None:
        """Let all caches that grow take the blocks of the next rounds."""
        size, rounds, grow = self.size, self.rounds, self.cache.grow
        if count < size and count < self.growing:
            for later in range(count):
                for request in self.residues.get(-(rounds + later) % size, ()):
                    grow(request, 1)
        else:
            for request, base in self.bases.items():
                tokens = base + rounds
                more = -(-(tokens + count) // size) + -tokens // size
                if more:
                    grow(request, more)
        self._counted()
