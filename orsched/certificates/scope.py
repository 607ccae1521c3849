"""For which schedules a bound holds (``data.schedule_classes``), and what caches can hold for them.

A block of a prompt that is full, and whose key another request has too, may be found in a
prefix cache; everything else a request computes itself (docs/proofs.md, under prefix caches).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.costs import floor_of
from orsched.data.chains import chains_of
from orsched.data.schedule_classes import ALL_SCHEDULES, ALLOWANCES, ScheduleClass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.common.columns import IntColumn
    from orsched.costs import Floor
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker


FOR_ALL = ("empty", "last_arrival", "arrivals")
"""Bounds that hold for every schedule, whatever steps take."""


SEES_CACHES = ("kv_volume", "fleet_prices")
"""Bounds that look at what prefix caches may hold themselves."""

STAYING = ("fleet_prices",)
"""Bounds for which no request moves to another worker, even if it restarts."""


def has_prefix_cache(instance: Instance) -> bool:
    """Whether some worker keeps blocks that are freed, and finds them again."""
    memories = (worker.memory for worker in instance.workers)
    return any(memory is not None and memory.prefix_cache is not None for memory in memories)


def cut_tokens(instance: Instance) -> IntColumn:
    """Return the most tokens of each prompt that a cache can hold before the request computes them.

    Full blocks whose key also is that of a full block of another request, or of its answer where
    turns continue it; at least one token is left. All 0 where no worker has a prefix cache, or no
    request has prefixes or a parent.
    """
    shared = _SharedBlocks.of(instance)
    return np.zeros(len(instance), np.int64) if shared is None else shared.hits


def prefills_grow(instance: Instance) -> bool:
    """Whether every cost model states that no prompt takes less for being longer."""
    floors = (floor_of(worker.cost) for worker in instance.workers)
    return all(floor is not None and floor.stage.grows for floor in floors)


def relaxed(instance: Instance) -> Instance:
    """Return the instance for bounds: itself, or with prompts without what a cache may hold."""
    cut = cut_tokens(instance)
    if not cut.any():
        return instance
    left = instance.requests.prompt_tokens - cut
    plain = {"prefixes": None, "parent": None, "delay_ns": None}
    return instance.replace(requests=instance.requests.replace(prompt_tokens=left, **plain))


def without_cache(instance: Instance, claim: dict[str, Any]) -> tuple[Instance, dict[str, Any]]:
    """Return the instance that a certificate is about, and the certificate without that statement.

    Raises ``ValueError`` for another cut than what a cache can hold, or if less proves nothing.
    """
    if claim["bound"] in (*FOR_ALL, *SEES_CACHES):
        return instance, claim
    cut = int(cut_tokens(instance).sum())
    if claim.get("cut_tokens", 0) != cut or (not cut and "cut_tokens" in claim):
        raise ValueError(f"cut_tokens is {claim.get('cut_tokens', 0)}, re-derived {cut}")
    if not cut:
        return instance, claim
    if not prefills_grow(instance):
        raise ValueError("prompts that are cut may take longer")
    return relaxed(instance), {k: v for k, v in claim.items() if k != "cut_tokens"}


@dataclass(frozen=True)
class Segment:
    """A run of blocks, of so many tokens, that the same requests (``sharers``, two or more) share.

    ``parent`` is the segment before it, or -1. ``once``: tokens of it that one of the requests
    computes before all others find them: all, less those that some request always computes itself.
    """

    parent: int
    tokens: int
    sharers: int
    once: int


@dataclass(frozen=True)
class Sharing:
    """The tree of the segments that requests share, parents first, and what each request has of it.

    ``last`` and ``shared``: segments in which the blocks end that a request may find in the cache,
    and that it shares, or -1; a prompt that is shared whole computes the last of them all the same.
    ``hits``: tokens that a request may find in the cache, by row.
    """

    segments: list[Segment]
    last: list[int]
    shared: list[int]
    hits: IntColumn

    @classmethod
    def of(cls, instance: Instance) -> Sharing:
        """Return what the requests of an instance share on workers with a prefix cache."""
        n, shared = len(instance), _SharedBlocks.of(instance)
        if shared is None:
            return cls([], [-1] * n, [-1] * n, np.zeros(n, np.int64))
        ends, tree = shared.followed()
        blocks = (shared.hits // shared.size).tolist()
        pairs = zip(ends, blocks, strict=True)
        last = [chain[count - 1] if count else -1 for chain, count in pairs]
        return cls(tree, last, [chain[-1] if chain else -1 for chain in ends], shared.hits)


@dataclass(frozen=True)
class Findable:
    """The blocks that requests may find in a cache, one entry for each request that has one.

    Left out are those that some request always computes for itself: its copy may be the one that
    others find. ``row``, ``place``: of an entry; ``key``: its number, from 0 on; ``sharers``: how
    many requests have the block; ``since``: when the first of them arrives, by key.
    """

    size: int
    row: IntColumn
    place: IntColumn
    key: IntColumn
    sharers: IntColumn
    since: IntColumn

    @classmethod
    def of(cls, instance: Instance) -> Findable | None:
        """Return them, or None where there are none."""
        shared = _SharedBlocks.of(instance)
        if shared is None:
            return None
        counts = np.diff(shared.begins)
        row = np.repeat(np.arange(len(instance)), counts)
        place = np.arange(len(row)) - np.repeat(shared.begins[:-1], counts)
        common = (shared.sharers > 1) & (shared.sharers == shared.finders)
        chosen = np.flatnonzero(common[shared.key])
        row, place = row[chosen], place[chosen]
        keys, key = np.unique(shared.key[chosen], return_inverse=True)
        since = np.full(len(keys), 2**62, np.int64)
        np.minimum.at(since, key, instance.requests.arrival_ns[row])
        return cls(shared.size, row, place, key, shared.sharers[keys][key], since)


@dataclass(frozen=True)
class _SharedBlocks:
    """The full blocks of all prompts, one after the other, of ``size`` tokens.

    ``begins``: first block of each request, and their number. ``key``: number of each block's key.
    ``sharers``, ``finders``: by key, requests that have it, and those that may find it in a cache.
    ``hits``: tokens that a request may find, by row.
    """

    size: int
    begins: IntColumn
    key: IntColumn
    sharers: IntColumn
    finders: IntColumn
    hits: IntColumn

    @classmethod
    def of(cls, instance: Instance) -> _SharedBlocks | None:
        """Return them, or None where there is no cache or nothing to share."""
        requests, n = instance.requests, len(instance)
        nothing = requests.prefixes is None and requests.parent is None
        if nothing or n == 0 or not has_prefix_cache(instance):
            return None
        memories = [worker.memory for worker in instance.workers if worker.caches_prefixes]
        size = next(memory.block_tokens for memory in memories if memory is not None)
        prompts = requests.prompt_tokens
        ids, offsets, _ = chains_of(requests, size)
        counts = np.diff(offsets)
        full = np.minimum(counts, prompts // size)
        places = np.arange(len(ids)) - np.repeat(offsets[:-1], counts)
        kept = places < np.repeat(full, counts)
        keys, key = np.unique(ids[kept], return_inverse=True)
        owner = np.repeat(np.arange(n), full)
        sharers = np.bincount(key, minlength=len(keys))
        if requests.parent is not None:  # a block of an answer: its request computes it in rounds
            sharers += np.isin(keys, ids[~kept])
        most = (prompts - 1) // size
        found = (sharers[key] > 1) & (places[kept] < most[owner])
        finders = np.bincount(key[found], minlength=len(keys))
        hits: IntColumn = np.bincount(owner[found], minlength=n) * size
        return cls(size, np.concatenate([[0], np.cumsum(full)]), key, sharers, finders, hits)

    def followed(self) -> tuple[list[list[int]], list[Segment]]:
        """Return the segments of each request's shared blocks, and all segments."""
        # Where a request has a block and cannot find it, it computes the block for itself.
        tree = _Tree(self.sharers, self.finders == self.sharers, self.finders, self.size)
        begins = self.begins.tolist()
        ends = [tree.follow(self.key[a:b].tolist()) for a, b in pairwise(begins)]
        return ends, tree.finished()


class _Tree:
    """Segments, as the chains of blocks are followed one after the other."""

    def __init__(self, sharers: IntColumn, once: IntColumn, finders: IntColumn, size: int) -> None:
        self._kinds = list(zip(sharers.tolist(), finders.tolist(), once.tolist(), strict=True))
        self._size = size
        self._segment_of: dict[int, int] = {}
        self._segments: list[list[int]] = []  # parent, blocks, sharers, blocks computed once

    def follow(self, chain: list[int]) -> list[int]:
        """Return the segments of the shared blocks of a request's chain."""
        found: list[int] = []
        before, kind = -1, None
        for block in chain:
            this = self._kinds[block]
            if this[0] < 2:
                break
            if block not in self._segment_of:
                if this != kind or before < 0:
                    self._segments.append([before, 0, this[0], 0])
                    before = len(self._segments) - 1
                self._segments[before][1] += 1
                self._segments[before][3] += this[2]
                self._segment_of[block] = before
            before, kind = self._segment_of[block], this
            found.append(before)
        return found

    def finished(self) -> list[Segment]:
        """Return the segments."""
        size = self._size
        return [
            Segment(parent, blocks * size, sharers, once * size)
            for parent, blocks, sharers, once in self._segments
        ]


@dataclass(frozen=True)
class Scope:
    """What the schedules of a bound may do beside pauses (``orsched.data.schedule_classes``).

    ``yielding``: restarts, where a prefill that is done again yields a token. ``cached``: it may
    find all that it needs but one token in a prefix cache.
    """

    chunks: bool = False
    mixed: bool = False
    restarts: bool = False
    moves: bool = False
    yielding: bool = False
    cached: bool = False

    @classmethod
    def allowing(cls, names: Iterable[str], instance: Instance) -> Scope:
        """Return the scope of these allowances; ``InputError`` for others."""
        known = set(names)
        for name in sorted(known.difference(ALLOWANCES)):
            raise InputError(
                f"{name!r} is nothing that a bound can allow",
                field="allows",
                remedy=f"{', '.join(ALLOWANCES)}",
            )
        moves = "moves" in known
        restarts = moves or "restarts" in known
        again = restarts and instance.first_token == "prefill"
        cached = again and has_prefix_cache(instance)
        return cls("chunks" in known, "mixed" in known, restarts, moves, again, cached)

    @classmethod
    def read(cls, claim: dict[str, Any], instance: Instance) -> Scope:
        """Return what a certificate allows; ``ValueError`` unless it says so in the one way."""
        found = cls.allowing(claim.get("allows", ()), instance)
        if found.stated() != {name: claim[name] for name in claim if name == "allows"}:
            raise ValueError(f"the allowances are {claim['allows']!r}")
        return found

    @property
    def names(self) -> list[str]:
        """The allowances as they stand in a certificate, sorted."""
        return [name for name in ALLOWANCES if getattr(self, name)]

    @property
    def schedules(self) -> ScheduleClass:
        """The class of schedules."""
        return ScheduleClass.allowing(self.names)

    @property
    def is_plain(self) -> bool:
        """Whether requests are prefilled whole and once, between the rounds."""
        return not self.names

    def stated(self) -> dict[str, Any]:
        """Return the field of a certificate; none for plain schedules.

        Where it allows restarts it allows moves as well, unless its kind is one of ``STAYING``.
        """
        return {} if self.is_plain else {"allows": [n for n in self.names if n != "moves"]}

    def floor_of(self, worker: Worker) -> Floor | None:
        """Return the floor under the steps of these schedules that the cost model states."""
        return self.holding(floor_of(worker.cost, worker.clients, worker.prefill_limit), worker)

    def holding(self, floor: Floor | None, worker: Worker) -> Floor | None:
        """Return what a floor that a worker's cost model states says of these schedules."""
        if floor is None or (self.mixed and floor.mixed is None):
            return None
        if (worker.padding or self.yielding) and not floor.stage.grows:
            return None
        return floor.of_chunks() if self.chunks else floor

    def require_floor(self, worker: Worker) -> Floor:
        """Return the floor under the steps of these schedules; ``ValueError`` where none is."""
        floor = self.floor_of(worker)
        if floor is None:
            raise ValueError("the cost model has no floor")
        return floor


PLAIN = Scope()


def schedules_of(*certificates: dict[str, Any]) -> ScheduleClass:
    """Return the class of schedules for which certificates say that all their bounds hold."""
    features = ALL_SCHEDULES.features
    for certificate in certificates:
        if certificate["bound"] not in FOR_ALL:
            allows = certificate.get("one_worker", certificate).get("allows", ())
            if "restarts" in allows and certificate["bound"] not in STAYING:
                allows = [*allows, "moves"]
            features &= ScheduleClass.allowing(allows).features
        if "inner" in certificate:
            features &= schedules_of(certificate["inner"]["certificate"]).features
    return ScheduleClass(features)
