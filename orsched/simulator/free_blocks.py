"""Which free block of a prefix cache loses its content: by time, or by who will ask for it. Each
order of the free blocks undoes what it did, the last first: plans are tried on the cache itself."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

import numpy as np

from orsched.common.columns import read_only
from orsched.data.chains import chains_of
from orsched.data.memory import TASK_AWARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.data.memory import Eviction


_PLACE_BITS = 32


class PrefixChains:
    """The hash chains of all requests, and keys for the blocks that no other request shares. A
    block has a key when it is full: its identifier (``data.chains``) if it has one, else a private
    one, below 0. ``shared`` are each request's blocks that have identifiers, ``of_prompt`` those
    that are full of prompt tokens."""

    def __init__(self, instance: Instance, block_tokens: int) -> None:
        self.size = block_tokens
        chains = chains_of(instance.requests, block_tokens)
        self.ids, self.offsets = read_only(chains.ids), read_only(chains.offsets)
        full = instance.requests.prompt_tokens // block_tokens
        self.shared = read_only(chains.counts)
        self.of_prompt = read_only(np.minimum(chains.counts, full))

    def keys(self, request: int, most: int) -> list[int]:
        """Return the identifiers of a request's first blocks, at most so many."""
        count, first = self.shared[request], self.offsets[request]
        return self.ids[first : first + (count if count < most else most)].tolist()


def private_key(request: int, place: int) -> int:
    """Return the key of a full block that one request alone can hit."""
    return ~(request << _PLACE_BITS | place)


_BLOCK_BITS = 32
_BLOCK_MASK = 2**_BLOCK_BITS - 1
_NOWHERE = -1


class FreeBlocks(Protocol):
    """Blocks with content that no request holds."""

    def put(self, block: int) -> None:
        """Let a block that was freed now be the last of its kind."""

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
    """The block that was freed first is taken first (vLLM's queue). The queue holds an entry for
    each time that a block was freed; those of blocks that were hit since are stale. ``entry`` has
    the one of each block that counts."""

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
    """The block of the least worth is taken first, ties by the time of their freeing. Entries of a
    heap are (worth, number, block) as of when they were made. Where a block's worth falls ``fell``
    is called; where it rises, that shows when its entry comes up."""

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


Change = tuple[int, int, bool, int]  # request, stay from 1, begins or is evicted, tokens due


class Arrivals(Protocol):
    """What is read of a run: prompts, stays and the order of arrivals."""

    prompts: memoryview
    stays: dict[int, int]
    arrival_times: Sequence[int]
    arrival_order: Sequence[int]


class CountedCache(Protocol):
    """What is read of a cache whose blocks are counted."""

    first: dict[int, int]
    others: dict[int, list[int]]
    key_of: list[int | None]
    releasing: int
    order: FreeBlocks


class FutureUsers:
    """Counts, by the key of a block, the requests without a client that have it in what is due:
    ``task_aware`` batch requests that have arrived, ``least_future_use`` all. A step knows of the
    stays that began or were evicted before it began, and of those of its own worker; what happens
    at the same moment elsewhere it does not: a schedule does not say which was first. In ``caches``
    a block is worth less when its count falls."""

    def __init__(
        self, instance: Instance, run_state: Arrivals, chains: PrefixChains, rule: Eviction
    ) -> None:
        requests = instance.requests
        self.run_state = run_state
        self.chains = chains
        self.size = chains.size
        self.caches: dict[int, CountedCache] = {}
        self.counts: dict[int, int] = {}
        self.begun = [0] * len(requests)  # stays that all see begun, and ended by an eviction
        self.ended = [0] * len(requests)
        self.counted: dict[int, int] = {}  # request -> tokens due, of those that are counted
        self.due: dict[int, int] = {}
        self.now_ns = -1
        self.arrival = 0
        self.pending: list[tuple[int, Change]] = []
        self.held: dict[int, list[Change]] = {}  # by worker, until its next step begins
        self.own: dict[int, dict[int, int]] = {}  # by worker: its counts beyond the common ones
        self.own_begun: dict[int, dict[int, int]] = {}
        self.own_ended: dict[int, dict[int, int]] = {}
        task_aware = rule == TASK_AWARE
        self.counts_all = not task_aware
        self.eligible = bytearray(bulk or not task_aware for bulk in instance.bulk.tolist())
        if self.counts_all:
            for request in range(len(requests)):
                self._count(request, run_state.prompts[request])

    def watch(self, worker: int, cache: CountedCache) -> None:
        """Tell a worker's cache of counts that fall."""
        self.caches[worker] = cache
        self.held[worker] = []
        self.own[worker], self.own_begun[worker], self.own_ended[worker] = {}, {}, {}

    def of(self, worker: int, key: int) -> int:
        """Return the count of a key as a worker sees it."""
        own = self.own[worker]
        return self.counts.get(key, 0) + (own.get(key, 0) if own else 0)

    # -- time -----------------------------------------------------------------------------

    def advance(self, now_ns: int) -> None:
        """See what happened before a moment, and arrivals up to it."""
        if now_ns > self.now_ns:
            self.now_ns = now_ns
            if self.pending:
                self._apply()
        run_state = self.run_state
        times, order = run_state.arrival_times, run_state.arrival_order
        if self.counts_all:
            return
        while self.arrival < len(times) and times[self.arrival] <= now_ns:
            request = order[self.arrival]
            self.arrival += 1
            if not self.begun[request]:
                self._count(request, run_state.prompts[request])

    def started(self, worker: int, now_ns: int) -> None:
        """Let a step of a worker begin: what it did is seen elsewhere from then on."""
        held = self.held[worker]
        if held:
            self.pending += [(now_ns, change) for change in held]
            held.clear()

    def _apply(self) -> None:
        """Let all see the changes before now."""
        later = [entry for entry in self.pending if entry[0] >= self.now_ns]
        for moment, (request, stays, is_begin, due) in self.pending:
            if moment < self.now_ns:
                if is_begin:
                    self.begun[request] = max(self.begun[request], stays)
                elif stays > self.ended[request]:
                    self.ended[request] = stays
                    self.due[request] = due
                self._recount(request)
        self.pending = later
        for worker, own in self.own.items():
            fallen = list(own)
            own.clear()
            self.own_begun[worker].clear()
            self.own_ended[worker].clear()
            for entry in self.held[worker]:
                self._see(worker, entry)
            self._fell(worker, fallen)

    # -- changes --------------------------------------------------------------------------

    def change(self, worker: int, request: int, is_begin: bool, due: int) -> None:
        """Let a request's stay on a worker begin, or be evicted, with so many tokens due."""
        entry = (request, self.run_state.stays.get(request, 0) + 1, is_begin, due)
        self.held[worker].append(entry)
        self._see(worker, entry)

    def unchange(self, worker: int) -> None:
        """Undo a worker's last change."""
        request, stays, is_begin, due = self.held[worker].pop()
        self._see(worker, (request, stays - 1, is_begin, due))

    def _see(self, worker: int, entry: Change) -> None:
        """Let a worker see a change of its own."""
        request, stays, is_begin, due = entry
        if not self.eligible[request]:
            return
        before = self._waits(worker, request)
        (self.own_begun if is_begin else self.own_ended)[worker][request] = stays
        after = self._waits(worker, request)
        if before == after:
            return
        own, delta = self.own[worker], 1 if after else -1
        keys = self._keys(request, due)
        for key in keys:
            own[key] = own.get(key, 0) + delta
        if delta < 0:
            self._fell(worker, keys)

    def _waits(self, worker: int, request: int) -> bool:
        """Whether a request has no stay in progress as a worker sees it: its last one is over."""
        begun = max(self.begun[request], self.own_begun[worker].get(request, 0))
        return max(self.ended[request], self.own_ended[worker].get(request, 0)) >= begun

    def _recount(self, request: int) -> None:
        """Count a request, or not, as it waits now."""
        if not self.eligible[request]:
            return
        waits = self.ended[request] >= self.begun[request]
        if waits and request not in self.counted:
            prompt = self.run_state.prompts[request]
            self._count(request, self.due.get(request, prompt))
        elif not waits and request in self.counted:
            keys = self._keys(request, self.counted.pop(request))
            for key in keys:
                left = self.counts[key] - 1
                if left:
                    self.counts[key] = left
                else:
                    del self.counts[key]
            for worker in self.caches:
                self._fell(worker, keys)

    def _count(self, request: int, due: int) -> None:
        if not self.eligible[request]:
            return
        self.counted[request] = due
        for key in self._keys(request, due):
            self.counts[key] = self.counts.get(key, 0) + 1

    def _keys(self, request: int, due: int) -> list[int]:
        """Return the keys of the full blocks of what is due."""
        full = due // self.size
        keys = self.chains.keys(request, full)
        if full > len(keys):
            keys += [private_key(request, place) for place in range(len(keys), full)]
        return keys

    def _fell(self, worker: int, keys: list[int]) -> None:
        """Tell a cache of the free blocks whose count may have fallen."""
        cache = self.caches[worker]
        first, others, fell = cache.first, cache.others, cache.order.fell
        for key in keys:
            if key in first:
                fell(first[key])
                for block in others.get(key, ()):
                    fell(block)


class BlockWorth:
    """What a free block of one worker is worth: its future users, or what its last user leaves."""

    def __init__(self, instance: Instance, users: FutureUsers, worker: int, rule: Eviction) -> None:
        self.users = users
        self.worker = worker
        self.cache: CountedCache | None = None
        bulk = instance.bulk.tolist()
        self.left = [0.5 if rule == TASK_AWARE and not each else 0.0 for each in bulk]
        self.last: dict[int, float] = {}

    def freed(self, block: int) -> None:
        """Take note of who frees a block."""
        assert self.cache is not None
        self.last[block] = self.left[self.cache.releasing]

    def __call__(self, block: int) -> float:
        """Return the worth of a free block with content."""
        assert self.cache is not None
        key = self.cache.key_of[block]
        assert key is not None
        return self.users.of(self.worker, key) or self.last[block]
