"""How many requests that wait will ask for each block, as eviction rules count them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from orsched.data.eviction import TASK_AWARE
from orsched.simulator.prefix_chains import private_key

if TYPE_CHECKING:
    from orsched.data.eviction import Eviction
    from orsched.data.instance import Instance
    from orsched.simulator.prefix_chains import PrefixChains

Change = tuple[int, int, bool, int]
"""A request, the number of its stay from 1, whether that begins or is evicted, the tokens due."""


class Arrivals(Protocol):
    """What is read of a run: prompts, stays and the order of arrivals."""

    prompts: memoryview
    stays: dict[int, int]
    arrival_times: memoryview
    arrival_order: memoryview


class Falls(Protocol):
    """An order of free blocks that is told when the worth of one falls."""

    def fell(self, block: int) -> None:
        """Take note that the worth of a block fell."""
        ...


class CountedCache(Protocol):
    """What is read of a cache whose blocks are counted."""

    first: dict[int, int]
    others: dict[int, list[int]]
    key_of: list[int | None]
    releasing: int

    @property
    def order(self) -> Falls:
        """The free blocks."""
        ...


class FutureUsers:
    """Counts, by the key of a block, the requests without a client that have it in what is due.

    ``task_aware`` counts batch requests that have arrived, ``least_future_use`` all. A step knows
    of the stays that began or were evicted before it began, and of those of its own worker; what
    happens at the same moment elsewhere it does not: a schedule does not say which was first.

    Attributes:
        caches: the workers' caches, where a block is worth less when its count falls.
    """

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
