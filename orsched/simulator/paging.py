"""Paged blocks: how many the caches fill, how many rounds still fit, and what is shared: policies
see the contents of a prefix cache by ``PrefixView`` and try steps on it by a ``Trial``."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

from orsched.common.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Self

    from orsched.simulator.block_cache import BlockCache, Log


class Pages:
    """Blocks that caches fill on a worker with paged memory. A cache that grows has ``base +
    rounds`` tokens after so many rounds of the worker, and takes a new block in the round after one
    in which its size is a multiple of ``block_tokens``. So the caches that grow are kept by
    ``base`` modulo the block size, and what a run of rounds needs is a sum over residues. ``used``
    blocks of ``blocks`` are filled now."""

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
        """Let a request's cache of ``base + rounds`` tokens, already in memory, grow."""
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
        """Return the new blocks that the next rounds take. ``paused`` are caches of so many tokens
        that do not grow now, and would then. The next round takes one for each cache of residue
        ``-rounds``, the one after it for each of the residue before, and so on."""
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


class SharedPages(Pages):
    """Counts rounds as ``Pages`` does; the blocks themselves are those of a cache. Tokens in the
    cache of a request that does not grow are known to who calls: its blocks stay until
    ``release``."""

    def __init__(self, cache: BlockCache) -> None:
        super().__init__(cache.blocks, cache.size)
        self.cache = cache
        self.places: dict[int, int] = {}  # request -> how many were admitted here before it
        self.admitted = 0
        self.bases: dict[int, int] = {}
        self.begun = False  # whether the blocks of the next round are taken already
        self.wanting: list[int] = []  # requests that are to take one, the last one first
        self.busy = False  # whether a step is in progress

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

    def forget(self) -> None:
        """Let the cache be empty; no request is on the worker any more."""
        self.cache.forget()
        self.places.clear()
        self.begun = self.busy = False
        self._counted()

    def hold_left(self) -> None:
        """Give what finished in the last step its blocks again: evictions go before it."""
        if self.cache.left:
            self.cache.hold()
            self._counted()

    def free_left(self) -> None:
        """Free those blocks when the step has its own."""
        self.cache.evict_one_by_one(False)
        if self.cache.left:
            self.cache.let_go()
            self._counted()

    def free_one_left(self, request: int) -> None:
        """Free the blocks of one of them for good."""
        self.cache.let_one_go(request)
        del self.cache.left[request]
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
        """Let a request's cache of ``base + rounds`` tokens, already in memory, grow."""
        super().grow(base, request)
        self.bases[request] = base

    def stop(self, base: int, request: int) -> None:
        """Let a cache not grow; its blocks stay."""
        del self.residues[base % self.size][request]
        del self.bases[request]
        self.growing -= 1

    def begin_round(self) -> None:
        """Take the blocks of the next round before it is over: a mixed step does."""
        self.wanting = sorted(self.due(), key=self.places.__getitem__, reverse=True)
        self.begun = True
        if not self.cache.soon:
            self.go_on_with_round()

    def go_on_with_round(self, before: int = 2**62) -> None:
        """Let the requests take those blocks that were admitted before one."""
        while self.wanting and self.places[self.wanting[-1]] < before:
            self.cache.grow(self.wanting.pop(), 1)
        self._counted()

    def advance(self, count: int) -> None:
        """Let rounds pass."""
        if self.begun:
            assert count == 1  # a mixed step has one round
            self.begun = False
        else:
            self._take(count)
            self.free_left()
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
        """Let a request's cache of ``base + rounds`` tokens, already in memory, grow."""
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
    return bisect_left(range(1, count), True, key=lambda number: not fits(number))


def count_up(counts: dict[int, int], key: int) -> None:
    """Count one more."""
    counts[key] = counts.get(key, 0) + 1


def count_down(counts: dict[int, int], key: int) -> None:
    """Count one less; what is counted no more leaves."""
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1


_ROUNDS = -1  # in trials: who takes the blocks of all rounds


class SeenWorker(Protocol):
    """What is read of the view of a worker with a prefix cache."""

    @property
    def now_ns(self) -> int:
        """The time."""

    @property
    def prompt_tokens(self) -> memoryview:
        """Prompt tokens of each request."""

    @property
    def prefilling(self) -> Mapping[int, int]:
        """Request -> tokens prefilled, while not complete."""

    def generated(self, request: int) -> int:
        """Tokens that a request has yielded."""

    def cached(self, request: int) -> int:
        """Tokens of a request in its cache."""


class PrefixView:
    """The prefix cache of a worker as a policy may see it."""

    def __init__(self, view: SeenWorker, pages: SharedPages) -> None:
        self._view = view
        self._pages = pages

    @property
    def block_tokens(self) -> int:
        """Tokens a block; hits are multiples of it."""
        return self._pages.size

    def hit_tokens(self, request: int) -> int:
        """Return the tokens that a waiting request would find now, 0 before it arrives. As of
        now: a step may take the blocks before the request starts. With the prefill chunks of a
        step in progress, and without the tokens of its rounds. Closes a trial that is open."""
        self._pages.cache.undo()
        due = due_tokens(self._view, request)
        return len(self._pages.cache.lookup(request, due)) * self._pages.size if due else 0

    def trial(self, ahead: bool = False) -> Trial:
        """Begin to try a step on the cache; one that was begun before is closed. ``ahead``: as it
        was planned while the last step ran: what finished in it still has its blocks."""
        if self._pages.busy:
            raise PolicyError("a step is tried on a worker that is in the middle of one")
        self._pages.see(self._view.now_ns)
        found = Trial(self._view, self._pages.cache)
        if ahead:
            self._pages.cache.hold()
        return found

    @property
    def held_by_left(self) -> int:
        """Free blocks that requests have in a trial ``ahead``, which finished in the last step."""
        return self._pages.cache.held_by_left()


def due_tokens(view: SeenWorker, request: int) -> int:
    """Return the tokens to prefill before a request that waits can decode (its prompt and what it
    has yielded), hits included; 0 before it arrives."""
    prompt = view.prompt_tokens[request]
    return prompt + view.generated(request) if prompt else 0


class Trial:
    """A step that is tried on a worker's prefix cache, and undone by ``close``.

    Do what the step will do, in its order: evictions, blocks for a round and for prefills that have
    begun, then new requests in the order of ``Step.prefill``. So hits are exact, those on blocks
    of the same step as well. The executor closes a trial that the policy did not. Raises
    ``PolicyError`` where blocks are missing, or a request is not where it must be.
    """

    def __init__(self, view: SeenWorker, cache: BlockCache) -> None:
        self._log: Log = []
        cache.log = self._log
        self._view = view
        self._cache = cache
        self._new: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        return self._open().free

    def hit(self, request: int) -> tuple[int, int]:
        """Return the tokens that a waiting request would find, and the free blocks they are in."""
        cache, due = self._open(), due_tokens(self._view, request)
        blocks = cache.lookup(request, due) if due else []
        return len(blocks) * cache.size, cache.leaving(blocks)

    def admit(self, request: int, tokens: int | None = None) -> int:
        """Let a waiting request start with some tokens (None: all); return the tokens it finds."""
        cache, due = self._open(), due_tokens(self._view, request)
        if not due or request in cache.tables:
            raise PolicyError(f"request {request} does not wait, or has not arrived")
        hit = cache.admit(request, due)
        chunk = due - hit if tokens is None else tokens
        if not 1 <= chunk <= due - hit:
            raise PolicyError(
                f"{chunk} tokens of request {request}, which has {due - hit} left to prefill"
            )
        cache.extend(request, hit, chunk)
        self._new.add(request)
        return hit

    def extend(self, request: int, tokens: int) -> None:
        """Let a prefill that has begun go on with some tokens."""
        cache, begun = self._open(), self._view.prefilling
        if request not in begun or request not in cache.tables:
            raise PolicyError(f"request {request} is not in its prefill")
        cache.extend(request, begun[request], tokens)

    def grow(self, blocks: int) -> None:
        """Take some blocks for a round."""
        cache = self._open()
        cache.tables.setdefault(_ROUNDS, [])
        cache.grow(_ROUNDS, blocks)

    def release(self, request: int) -> None:
        """Evict a request that is on the worker."""
        cache = self._open()
        if request not in cache.tables or request in self._new:
            raise PolicyError(f"request {request} is not on the worker: it cannot be evicted")
        if request in cache.left:
            cache.let_one_go(request)
            return
        view = self._view
        due = view.prompt_tokens[request] + view.generated(request)
        cache.release(request, view.cached(request), due)

    def close(self) -> None:
        """Undo it all; a closed trial stays closed."""
        if self._cache.log is self._log:
            self._cache.undo()
            self._cache.tables.pop(_ROUNDS, None)

    def _open(self) -> BlockCache:
        if self._cache.log is not self._log:
            raise PolicyError("a trial is used that was closed")
        return self._cache
