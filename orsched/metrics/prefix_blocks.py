"""The blocks of one worker's prefix cache: what they hold, who refers to them, which is taken next.
Keys are whole numbers: identifiers of prefixes are at least 0, a request's own keys below
``LOST``."""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.units import NEVER
from orsched.data.chains import chains_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline_stays import Stays


EMPTY = -1  # key of a block without content

LOST = -2  # key of content that no request can find any more: a finished request's own


def own_key(request: int, block: int) -> int:
    """Return the key of a block that only its request can find again."""
    return LOST - 1 - (request << 31 | block)


class CacheBlocks:
    """Blocks that are taken in the order in which they became free, those without content first."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.used = 0  # how many are referenced: more than there are in schedules that need more
        self.evicted = 0  # how many were taken that had content
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

    def clear(self) -> None:
        """Let the free blocks have no content any more."""
        while self.free:
            block = self.pop()
            self._forget(block)
            self.blank.append(block)

    def lowered(self, key: int) -> None:
        """Note that fewer requests will use a key."""


class RankedBlocks(CacheBlocks):
    """Blocks that are taken in the order of what they are worth, then that of becoming free:
    ``users`` maps a key to the requests that will use it, ``seen`` to how many more or fewer this
    worker sees, for what it does itself (the owner keeps both); ``left`` is what a block is worth
    that no request will use, by whether its last user was bulk."""

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


INTERACTIVE_WORTH = 0.5  # of content last used by an interactive request, if none waits (Echo)


class Users:
    """For each key the number of requests that wait and have it in the full blocks of what is due.
    A request waits from its arrival (for ``least_future_use`` from the beginning) to its first
    stay, and from the step before which it is evicted to its next stay. All workers see a wait in
    moments after its begin (from its arrival on) and up to its end; the worker that ends it, or
    begins it by an eviction, sees that at once."""

    def __init__(self, line: Stays) -> None:
        self.line = line
        self.bulk = line.instance.bulk
        memories = [w.memory for w in line.instance.workers if w.caches_prefixes]
        self.block_tokens = memories[0].block_tokens if memories and memories[0] else 1
        self.counts: dict[str, dict[int, int]] = {}
        self.caches: dict[str, list[CacheBlocks]] = {}
        self.log: list[tuple[int, str, int, int, int]] = []  # moment, rule, request, change, due
        self.waiting: dict[str, set[int]] = {}  # as all see it
        self.own: dict[int, Own] = {}

    @property
    def matter(self) -> bool:
        """Whether any cache asks."""
        return bool(self.counts)

    def ranked(
        self, worker: int, blocks: int, rule: str, make: Callable[..., RankedBlocks] = RankedBlocks
    ) -> RankedBlocks:
        """Return the blocks of a worker that are taken in the order of their users."""
        if rule not in self.counts:
            self.counts[rule], self.waiting[rule], self.caches[rule] = {}, set(), []
            self.log += self._changes(rule)
            self.log.sort(reverse=True)
        left = (INTERACTIVE_WORTH if rule == "task_aware" else 0.0, 0.0)
        own = self.own[worker] = Own(rule)
        cache = make(blocks, self.counts[rule], own.counts, left)
        self.caches[rule].append(cache)
        return cache

    # -- as time passes -------------------------------------------------------------------

    def until(self, moment: int) -> None:
        """Let all workers see the changes before a moment."""
        log = self.log
        while log and log[-1][0] < moment:
            _, rule, request, change, due = log.pop()
            counts, waiting = self.counts[rule], self.waiting[rule]
            (waiting.add if change > 0 else waiting.discard)(request)
            for key in self._keys(request, due):
                counts[key] = counts.get(key, 0) + change
                if change < 0:
                    for cache in self.caches[rule]:
                        cache.lowered(key)
        for own in self.own.values():
            if own.moment < moment:
                keys = list(own.counts)
                own.counts.clear()
                for key in keys:  # it may have seen a wait that, as all see it, never was
                    for cache in self.caches[own.rule]:
                        cache.lowered(key)
                own.begun.clear()
                own.ended.clear()

    def begins(self, worker: int, request: int, due: int, moment: int, cache: CacheBlocks) -> None:
        """Let a worker see that it has evicted a request."""
        own = self._own(worker, request, moment)
        if own is not None:
            own.begun.add(request)
            own.ended.discard(request)
            self._see(own, request, due, 1, cache)

    def ends(self, worker: int, request: int, due: int, moment: int, cache: CacheBlocks) -> None:
        """Let a worker see that it has begun a stay of a request."""
        own = self._own(worker, request, moment)
        if own is None:
            return
        known = request in self.waiting[own.rule] and request not in own.ended
        if known or request in own.begun:
            own.begun.discard(request)
            own.ended.add(request)
            self._see(own, request, due, -1, cache)

    def _own(self, worker: int, request: int, moment: int) -> Own | None:
        own = self.own.get(worker)
        if own is None or (own.rule == "task_aware" and not self.bulk[request]):
            return None
        own.moment = moment
        return own

    def _see(self, own: Own, request: int, due: int, change: int, cache: CacheBlocks) -> None:
        for key in self._keys(request, due):
            own.counts[key] = own.counts.get(key, 0) + change
            if change < 0:
                cache.lowered(key)

    def _keys(self, request: int, due: int) -> list[int]:
        """Keys of the full blocks of what is due."""
        chains = chains_of(self.line.instance.requests, self.block_tokens)
        begin = chains.offsets[request]
        shared: list[int] = chains.ids[begin : begin + chains.counts[request]].tolist()
        full = due // self.block_tokens
        return shared[:full] + [own_key(request, k) for k in range(len(shared), full)]

    # -- when requests wait ---------------------------------------------------------------

    def _changes(self, rule: str) -> list[tuple[int, str, int, int, int]]:
        """When requests begin and end to wait."""
        line = self.line
        requests = line.instance.requests
        counted = np.ones(len(requests), bool)
        begin: IntColumn = np.full(len(requests), -1, np.int64)
        if rule == "task_aware":
            counted = self.bulk
            begin = requests.arrival_ns - 1
        heads = np.flatnonzero(line.ordinal == 0)
        first = np.full(len(requests), NEVER, np.int64)
        first[line.stay_request[heads]] = line.start_ns[line.stay_first[heads]]
        every = np.arange(len(requests))
        changes = []
        for who, since, until, due in (
            (every, begin, first, requests.prompt_tokens),
            self._between(),
        ):
            some = np.flatnonzero(counted[who] & (since < until))
            for column, change in ((since, 1), (until, -1)):
                rows = (column[some].tolist(), who[some].tolist(), due[some].tolist())
                for moment, request, tokens in zip(*rows, strict=True):
                    if moment < NEVER:
                        changes.append((moment, rule, request, change, tokens))
        return changes

    def _between(self) -> tuple[IntColumn, IntColumn, IntColumn, IntColumn]:
        """Requests that are evicted, when, when their next stays begin, and what is due then."""
        line = self.line
        evicted = np.flatnonzero(~line.stay_finishes)
        free = line.stay_freed[evicted]
        inside = free < line.heads()[line.stay_worker[evicted] + 1]
        starts = np.append(line.start_ns, NEVER)
        since = np.where(inside, starts[np.where(inside, free, -1)], NEVER)
        following = np.append(line.ordinal[1:] > 0, False)[evicted]
        begins = np.append(line.start_ns[line.stay_first], NEVER)
        until = np.where(following, begins[np.where(following, evicted + 1, -1)], NEVER)
        request = line.stay_request[evicted]
        due = line.instance.requests.prompt_tokens[request] + line.yielded_then[evicted]
        return request, since, until, due


class Own:
    """What a worker has done at a moment, which others do not see yet."""

    def __init__(self, rule: str) -> None:
        self.rule = rule  # its eviction rule
        self.counts: dict[int, int] = {}  # by key, how many more requests wait for it
        self.begun: set[int] = set()  # requests whose wait it has begun
        self.ended: set[int] = set()  # and ended
        self.moment = -1
