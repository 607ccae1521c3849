"""What the blocks of prefix caches are used for over time, by class of request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.metrics.prefix_blocks import CacheBlocks, RankedBlocks
from orsched.metrics.prefix_replay import FREE_FINISHED, FREE_GOING, PrefixReplay

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.memory import Eviction
    from orsched.data.schedule import Schedule
    from orsched.data.workers import Worker
    from orsched.metrics.prefix_blocks import Users
    from orsched.metrics.timeline import Timeline


class CacheUse(NamedTuple):
    """Blocks of a worker (index); column k of the tables holds from ``time_ns[k]`` to the next."""

    worker: int
    time_ns: IntColumn  # where each step starts and where it ends, in turn
    running: IntColumn  # by class; shared blocks once, of the class that referred to them first
    cached: IntColumn  # free ones with content, by the class that used them last
    empty: IntColumn  # the other free ones


def cache_use(
    instance: Instance, schedule: Schedule, timeline: Timeline | None = None
) -> list[CacheUse]:
    """Return the use of each worker's prefix cache; workers without one are left out. Classes are
    the places in ``instance.classes``. In a step there are the blocks that it takes, behind it
    those that its finished requests leave: what runs in a step is what ``kv_blocks`` counts."""
    from orsched.metrics.timeline import Timeline

    line = Timeline(instance, schedule) if timeline is None else timeline
    replay = _WatchedReplay(line)
    times = np.column_stack([line.start_ns, line.end_ns]).reshape(-1)
    heads = line.heads()
    found = []
    for index, cache in replay.caches.items():
        here = slice(2 * int(heads[index]), 2 * int(heads[index + 1]))
        running, cached = (
            np.cumsum(replay.changes[kind][:, here], axis=1) for kind in ("running", "cached")
        )
        empty = cache.blocks - running.sum(axis=0) - cached.sum(axis=0)
        found.append(CacheUse(index, times[here], running, cached, empty))
    return found


class _WatchedReplay(PrefixReplay):
    """Notes after each event how many blocks each class has."""

    def __init__(self, line: Timeline) -> None:
        classes = len(line.instance.classes)
        shape = (classes, 2 * len(line.worker) + 2)
        self.changes = {kind: np.zeros(shape, np.int64) for kind in ("running", "cached")}
        self.many = classes
        self.class_of = line.instance.requests.service_class.tolist()
        super().__init__(line, self._make)

    def _make(self, index: int, worker: Worker, rule: Eviction, users: Users) -> CacheBlocks:
        assert worker.memory is not None
        if rule.rule == "lru":
            return _Watched(worker.memory.blocks, self.many)
        return users.ranked(index, worker.memory.blocks, rule.rule, _watched_ranks(self.many))

    def _happen_now(self, place: int, kind: int, stay: int, tokens: int, moment: int) -> None:
        cache = self.cache_of[stay]
        assert isinstance(cache, _Counts)
        cache.user = self.class_of[self.request_of[stay]]
        before = cache.running[:], cache.cached[:]
        super()._happen_now(place, kind, stay, tokens, moment)
        self._note(2 * place + (kind in (FREE_GOING, FREE_FINISHED)), cache, before)

    def _free_soon(self, worker: int) -> None:
        cache, place = self.caches[worker], self.soon[worker][0][0]
        assert isinstance(cache, _Counts)
        before = cache.running[:], cache.cached[:]
        super()._free_soon(worker)
        self._note(2 * place, cache, before)

    def _evict(self, stay: int, tokens: int) -> None:
        cache = self.cache_of[stay]
        assert isinstance(cache, _Counts)
        acts, cache.user = cache.user, self.class_of[self.request_of[stay]]
        super()._evict(stay, tokens)
        cache.user = acts

    def _note(self, slot: int, cache: _Counts, before: tuple[list[int], list[int]]) -> None:
        for name, then, now in zip(
            self.changes, before, (cache.running, cache.cached), strict=True
        ):
            for each, (a, b) in enumerate(zip(then, now, strict=True)):
                if a != b:
                    self.changes[name][each, slot] += b - a


class _Counts(CacheBlocks):
    """Counts blocks by the class that they belong to."""

    def watch(self, classes: int) -> None:
        self.user = 0  # class of the request that acts now
        self.owner: dict[int, int] = {}
        self.running = [0] * classes
        self.cached = [0] * classes

    def take(self, many: int) -> list[int]:
        taken = super().take(many)
        for block in taken:
            self.owner[block] = self.user
        self.running[self.user] += many
        return taken

    def pop(self) -> int:
        block = super().pop()
        self.cached[self.owner[block]] -= 1
        return block

    def refer(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.references[block] == 0:
                self.cached[self.owner[block]] -= 1
                self.owner[block] = self.user
                self.running[self.user] += 1
        super().refer(blocks)

    def release(self, blocks: list[int], bulk: int) -> None:
        super().release(blocks, bulk)
        for block in blocks:
            if self.references[block] == 0:
                self.running[self.owner[block]] -= 1
                self.owner[block] = self.user
                self.cached[self.user] += block in self.free


class _Watched(_Counts):
    def __init__(self, blocks: int, classes: int) -> None:
        super().__init__(blocks)
        self.watch(classes)


class _WatchedRanks(_Counts, RankedBlocks):
    pass


def _watched_ranks(classes: int) -> Callable[..., RankedBlocks]:
    def make(*args: object) -> RankedBlocks:
        cache = _WatchedRanks(*args)  # type: ignore[arg-type]
        cache.watch(classes)
        return cache

    return make
