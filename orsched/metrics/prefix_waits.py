"""Who will use what a prefix cache holds: requests that wait, moment by moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.units import NEVER
from orsched.metrics.prefix_blocks import RankedBlocks, own_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.common.columns import IntColumn
    from orsched.metrics.prefix_blocks import CacheBlocks
    from orsched.metrics.timeline_stays import Stays

INTERACTIVE_WORTH = 0.5
"""What content is worth that an interactive request has used last, and nobody waits for (Echo)."""


class Users:
    """For each key the number of requests that wait and have it in the full blocks of what is due.

    A request waits from its arrival (for ``least_future_use`` from the beginning) to its first
    stay, and from the step before which it is evicted to its next stay. All workers see a wait in
    moments after its begin (from its arrival on) and up to its end; the worker that ends it, or
    begins it by an eviction, sees that at once.
    """

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
        requests, size = self.line.instance.requests, self.block_tokens
        shared: list[int] = []
        if requests.prefixes is not None:
            prompt = int(requests.prompt_tokens[request])
            shared = requests.prefixes.of(request)[: prompt // size].tolist()
        full = due // size
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
    """What a worker has done at a moment, which others do not see yet.

    Attributes:
        rule: its eviction rule.
        counts: by key, how many more requests wait for it.
        begun, ended: requests whose wait it has begun or ended.
        moment: when.
    """

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.counts: dict[int, int] = {}
        self.begun: set[int] = set()
        self.ended: set[int] = set()
        self.moment = -1
