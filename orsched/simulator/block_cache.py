"""The blocks of a worker with a prefix cache: who holds them, what is in them, what is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import PolicyError
from orsched.simulator.free_blocks import private_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Log = list[tuple[Callable[..., None], tuple[Any, ...]]]

    from orsched.simulator.free_blocks import FreeBlocks, FutureUsers, PrefixChains

LOST_KEY = -(2**127)  # of a full block that no request will ask for: it has content all the same

Eviction = tuple[int, int, int]  # block, its key, place among further ones of that key or -1


class BlockCache:
    """Reference counts, contents and the free blocks of one worker.

    A block is held by some requests, or free. A free block without content is taken first, then
    those with content in the order of the eviction rule. Several blocks may have one key: a hit
    takes the one that got it first. While ``log`` is a list, each operation adds what undoes it: so
    a plan is tried on the cache itself. ``releasing`` is the request whose blocks were freed last.
    ``ahead``: steps are planned ahead (``Eviction.ahead``); ``left`` then has the blocks of the
    requests that finished in the last step, which ``hold`` gives back to them while a step is
    planned, and while others are evicted before it.
    """

    def __init__(
        self,
        blocks: int,
        block_tokens: int,
        chains: PrefixChains,
        order: FreeBlocks,
        ahead: bool = False,
    ) -> None:
        self.blocks = self.free = blocks
        self.size = block_tokens
        self.chains = chains
        self.order = order
        self.counts = [0] * blocks
        self.key_of: list[int | None] = [None] * blocks
        self.empty = list(range(blocks - 1, -1, -1))
        self.first: dict[int, int] = {}  # key -> the block that got it first
        self.others: dict[int, list[int]] = {}  # key -> further blocks, in order
        self.tables: dict[int, list[int]] = {}  # request -> its blocks, first to last
        self.returning: set[int] = set()  # requests that may have private keys here
        self.evictions = 0  # how often content was lost so far
        self.users: FutureUsers | None = None  # where the eviction rule counts who will ask
        self.worker = self.releasing = 0
        self.ahead = ahead
        self.began: dict[int, int] = {}  # request -> what it had to prefill, if planned ahead
        self.left: dict[int, list[int]] = {}  # request that has just finished -> its blocks
        self.one_by_one = False  # evictions go when a block is wanted, until the step has its own
        self.soon: list[list[int]] = []  # blocks of those that have not gone
        self.log: Log | None = None

    def lookup(self, request: int, due: int) -> list[int]:
        """Return the blocks that a request with so many tokens to prefill would hit: the longest
        run from the start that leaves at least one token to compute."""
        most = (due - 1) // self.size
        first = self.first
        found: list[int] = []
        for key in self.chains.keys(request, most):
            block = first.get(key)
            if block is None:
                return found
            found.append(block)
        if request in self.returning:
            for place in range(len(found), most):
                block = first.get(private_key(request, place))
                if block is None:
                    break
                found.append(block)
        return found

    def leaving(self, blocks: Sequence[int]) -> int:
        """Return how many of some blocks are free now."""
        counts = self.counts
        return sum(not counts[block] for block in blocks)

    def admit(self, request: int, due: int) -> int:
        """Let a request start with the blocks that it hits; return their tokens."""
        if self.users is not None:
            self._tell(request, True, due)
        while self.soon:
            self._evict_next()
        blocks = self.lookup(request, due)
        counts, remove, removed = self.counts, self.order.remove, []
        for block in blocks:
            if not counts[block]:
                removed.append((block, remove(block)))
            counts[block] += 1
        self.free -= len(removed)
        hit = len(blocks) * self.size
        self.tables[request] = blocks
        if self.ahead and self.log is None:
            self.began[request] = due
        if self.log is not None:
            self.log.append((self._unadmit, (request, blocks[:], removed)))
        return hit

    def extend(self, request: int, cached: int, tokens: int) -> None:
        """Let a request prefill some tokens behind those cached, and take the blocks for them;
        those that they fill get their keys at once, if others may ask."""
        table, size = self.tables[request], self.size
        last = cached + tokens
        more = -(-last // size) - len(table)
        if more > 0:
            self.grow(request, more)
        full, shared = last // size, self.chains.shared[request]
        if full > shared:
            full = shared
        begin = cached // size
        if begin < full:
            self._give_keys(self.chains.keys(request, full)[begin:], table[begin:full])

    def grow(self, request: int, count: int) -> None:
        """Let a request take some blocks."""
        if count > self.free:
            raise PolicyError(
                f"request {request} takes {count} more memory blocks, where {self.free} of "
                f"{self.blocks} are free: evict requests first"
            )
        while self.soon and count > self.free - sum(map(len, self.soon)):
            self._evict_next()
        empty, counts = self.empty, self.counts
        begin = max(len(empty) - count, 0)
        taken = empty[begin:]
        del empty[begin:]
        evicted = [self._evict() for _ in range(count - len(taken))]
        table = self.tables[request]
        table += taken
        for block in taken:
            counts[block] = 1
        for block, _, _ in evicted:
            table.append(block)
            counts[block] = 1
        self.free -= count
        if self.log is not None:
            self.log.append((self._ungrow, (table, taken, evicted)))
        elif evicted:
            self.order.settle()

    def release(self, request: int, cached: int, due: int | None = None) -> None:
        """Free the blocks of a request with so many tokens in its cache, the last one first.
        ``due``: what it has to prefill when it resumes after an eviction; None: it is done. One
        that resumes will ask again for what only itself can hit."""
        table, key_of = self.tables.pop(request), self.key_of
        self.releasing = request
        if due is not None and self.users is not None:
            self._tell(request, False, due)
        if self.ahead and due is not None:
            cached -= cached > self.began[request]  # what its last round fills has no content
        full, shared = cached // self.size, self.chains.shared[request]
        places = range(self.chains.of_prompt[request], full)
        own = [place for place in places if key_of[table[place]] is None]
        if own and own[0] < shared:  # of an answer that turns continue
            keys = self.chains.keys(request, full)
            of_turns = [place for place in own if place < shared]
            self._give_keys([keys[place] for place in of_turns], [table[p] for p in of_turns])
            del own[: len(of_turns)]
        if due is not None:
            self.returning.add(request)
            keys = [private_key(request, place) for place in own]
            self._give_keys(keys, [table[place] for place in own])
        else:
            self.returning.discard(request)
            for place in own:
                key_of[table[place]] = LOST_KEY
        freed = self._free(table)
        if self.log is not None:
            self.log.append((self._unrelease, (request, table, freed)))
        elif self.ahead and due is None:
            self.left[request] = table

    def _free(self, table: Sequence[int]) -> int:
        """Drop a reference to each of some blocks, the last first; return how many are free now."""
        counts, freed = self.counts, list[int]()
        for block in reversed(table):
            counts[block] = count = counts[block] - 1
            if not count:
                freed.append(block)
        if self.one_by_one and self.log is None:
            self.soon.append(freed)
        else:
            while self.soon:
                self._evict_next()
            self._queue(freed)
        self.free += len(freed)
        return len(freed)

    def _queue(self, blocks: Sequence[int]) -> None:
        """Let free blocks be taken when it is their turn."""
        empty, put, key_of = self.empty, self.order.put, self.key_of
        for block in blocks:
            if key_of[block] is None:
                empty.append(block)
            else:
                put(block)

    def evict_one_by_one(self, whether: bool = False) -> None:
        """Let evictions go as blocks are wanted, or all at once: those that have not gone, too."""
        self.one_by_one = whether and self.users is None
        while self.soon and not whether:
            self._evict_next()

    def _evict_next(self) -> None:
        blocks = self.soon.pop(0)
        self._queue(blocks)
        if self.log is not None:
            self.log.append((self._unevict, (blocks,)))

    def _unevict(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            if self.key_of[block] is None:
                self.empty.pop()
            else:
                self.order.unput(block)
        self.soon.insert(0, blocks)

    def hold(self) -> None:
        """Give requests that have just finished their blocks again."""
        counts, empty, key_of = self.counts, self.empty, self.key_of
        for request, table in self.left.items():
            removed: list[tuple[int, int]] = []
            for block in table:
                if not counts[block]:
                    if key_of[block] is None:
                        place = len(empty) - 1 - empty[::-1].index(block)
                        del empty[place]
                        removed.append((block, place))
                    else:
                        removed.append((block, self.order.remove(block)))
                counts[block] += 1
            self.free -= len(removed)
            self.tables[request] = table
            if self.log is not None:
                self.log.append((self._unhold, (request, removed)))

    def let_go(self) -> None:
        """Free what ``hold`` gave back."""
        for request in self.left:
            if request in self.tables:
                self.let_one_go(request)
        self.left.clear()

    def let_one_go(self, request: int) -> None:
        """Free the blocks of one request that has finished."""
        table = self.tables.pop(request)
        freed = self._free(table)
        if self.log is not None:
            self.log.append((self._unfree, (request, table, freed)))

    def forget(self) -> None:
        """Let all blocks be free and without content: the worker is gone."""
        self.undo()
        self.evict_one_by_one(False)
        self.let_go()
        for request in list(self.tables):
            self._free(self.tables.pop(request))
        lost = len(self.key_of) - len(self.empty)
        self.empty += [self._evict()[0] for _ in range(lost)]
        self.evictions -= lost
        self.order.settle()
        self.returning.clear()
        self.began.clear()

    def held_by_left(self) -> int:
        """Return how many free blocks ``hold`` would give back."""
        counts = self.counts
        return len({block for table in self.left.values() for block in table if not counts[block]})

    def _unhold(self, request: int, removed: list[tuple[int, int]]) -> None:
        for block in self.tables.pop(request):
            self.counts[block] -= 1
        for block, entry in reversed(removed):
            if self.key_of[block] is None:
                self.empty.insert(entry, block)
            else:
                self.order.restore(block, entry)
        self.free += len(removed)

    def _tell(self, request: int, is_begin: bool, due: int) -> None:
        """Tell who counts future users of a stay that begins or is evicted."""
        assert self.users is not None
        self.users.change(self.worker, request, is_begin, due)
        if self.log is not None:
            self.log.append((self.users.unchange, (self.worker,)))

    def _evict(self) -> Eviction:
        """Take the free block that is first in order; its content is lost."""
        block = self.order.take()
        key = self.key_of[block]
        assert key is not None  # a block without content is in no order
        self.key_of[block] = None
        self.evictions += 1
        if key == LOST_KEY:
            return block, key, -1
        others = self.others.get(key)
        if others is None:
            del self.first[key]
            return block, key, -1
        if self.first[key] == block:
            place, self.first[key] = -1, others.pop(0)
        else:
            place = others.index(block)
            del others[place]
        if not others:
            del self.others[key]
        return block, key, place

    def _give_keys(self, keys: list[int], blocks: list[int]) -> None:
        key_of, first = self.key_of, self.first
        for key, block in zip(keys, blocks, strict=True):
            key_of[block] = key
            if key in first:
                self.others.setdefault(key, []).append(block)
            else:
                first[key] = block
        if self.log is not None:
            self.log.append((self._take_keys, (keys, blocks)))

    def undo(self) -> None:
        """Undo what the log has; nothing is logged afterwards."""
        if self.log is None:
            return
        log, self.log = self.log, None
        for function, values in reversed(log):
            function(*values)
        self.order.settle()

    def _unadmit(self, request: int, blocks: list[int], removed: list[tuple[int, int]]) -> None:
        del self.tables[request]
        for block in blocks:
            self.counts[block] -= 1
        for block, entry in reversed(removed):
            self.order.restore(block, entry)
        self.free += len(removed)

    def _ungrow(self, table: list[int], taken: list[int], evicted: list[Eviction]) -> None:
        count = len(taken) + len(evicted)
        del table[len(table) - count :]
        for block, key, place in reversed(evicted):
            self.counts[block] = 0
            self._regain(block, key, place)
            self.order.untake(block)
        for block in taken:
            self.counts[block] = 0
        self.empty += taken
        self.free += count
        self.evictions -= len(evicted)

    def _regain(self, block: int, key: int, place: int) -> None:
        """Let a block have the key that it lost."""
        self.key_of[block] = key
        if key == LOST_KEY:
            return
        if place >= 0:
            self.others.setdefault(key, []).insert(place, block)
            return
        if key in self.first:
            self.others.setdefault(key, []).insert(0, self.first[key])
        self.first[key] = block

    def _take_keys(self, keys: list[int], blocks: list[int]) -> None:
        for key, block in zip(reversed(keys), reversed(blocks), strict=True):
            self.key_of[block] = None
            others = self.others.get(key)
            if others is None:
                del self.first[key]
                continue
            others.pop()
            if not others:
                del self.others[key]

    def _unrelease(self, request: int, table: list[int], freed: int) -> None:
        self._unfree(request, table, freed)
        key_of = self.key_of
        for block in table:
            if key_of[block] == LOST_KEY:
                key_of[block] = None

    def _unfree(self, request: int, table: list[int], freed: int) -> None:
        counts = self.counts
        for block in table:
            if not counts[block]:
                if self.key_of[block] is None:
                    self.empty.pop()
                else:
                    self.order.unput(block)
            counts[block] += 1
        self.tables[request] = table
        self.free -= freed
