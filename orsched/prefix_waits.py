"""Who will use what a prefix cache holds: requests that wait, moment by moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.prefix_blocks import own_key
from orsched.requests import BATCH, SERVICE_CLASSES

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.eviction import Eviction
    from orsched.prefix_blocks import CacheBlocks
    from orsched.timeline import Timeline

FOREVER = 2**62 + 1
"""Later than everything."""

INTERACTIVE_WORTH = 0.5
"""What content is worth that an interactive request has used last, and nobody waits for (Echo)."""


class Users:
    """For each key the number of requests that wait and have it in the full blocks of their prompt.

    A request waits from its arrival (for ``least_future_use`` from the beginning) to its first
    stay, and from the step before which it is evicted to its next stay. A wait counts in moments
    after its begin (from its arrival on) and up to its end.
    """

    def __init__(self, line: Timeline) -> None:
        self.line = line
        memories = [w.memory for w in line.instance.workers if w.caches_prefixes]
        self.block_tokens = memories[0].block_tokens if memories and memories[0] else 1
        self.counts: dict[str, dict[int, int]] = {}
        self.caches: dict[str, list[CacheBlocks]] = {}
        self.log: list[
            tuple[int, str, int, int]
        ] = []  # moment, rule, request, change; the last first

    @property
    def matter(self) -> bool:
        """Whether any cache asks."""
        return bool(self.counts)

    def of(self, rule: Eviction) -> dict[int, int]:
        """Return the numbers by key that a rule goes by; they change with ``until``."""
        if rule.rule not in self.counts:
            self.counts[rule.rule] = {}
            self.log += self._changes(rule.rule)
            self.log.sort(reverse=True)
        return self.counts[rule.rule]

    def worth_without(self, rule: Eviction) -> tuple[float, ...]:
        """Return what content is worth without users, by the class of its last user."""
        if rule.rule == "task_aware":
            return tuple(0.0 if c == BATCH else INTERACTIVE_WORTH for c in _classes())
        return tuple(0.0 for _ in _classes())

    def tell(self, rule: Eviction, cache: CacheBlocks) -> None:
        """Let a cache know when numbers of a rule fall."""
        self.caches.setdefault(rule.rule, []).append(cache)

    def until(self, moment: int) -> None:
        """Let all changes before a moment happen."""
        log = self.log
        while log and log[-1][0] < moment:
            _, rule, request, change = log.pop()
            counts = self.counts[rule]
            for key in self._keys(request):
                counts[key] = counts.get(key, 0) + change
                if change < 0:
                    for cache in self.caches[rule]:
                        cache.lowered(key)

    def _keys(self, request: int) -> list[int]:
        """Keys of the full blocks of a request's prompt."""
        requests = self.line.instance.requests
        size = self.block_tokens
        full = int(requests.prompt_tokens[request]) // size
        own: list[int] = [] if requests.prefixes is None else requests.prefixes.of(request).tolist()
        return own[:full] + [own_key(request, k) for k in range(len(own), full)]

    def _changes(self, rule: str) -> list[tuple[int, str, int, int]]:
        """When requests begin and end to wait."""
        line = self.line
        requests = line.instance.requests
        counted = np.ones(len(requests), bool)
        begin: IntColumn = np.full(len(requests), -1, np.int64)
        if rule == "task_aware":
            counted = requests.service_class == BATCH
            begin = requests.arrival_ns - 1
        heads = np.flatnonzero(line.ordinal == 0)
        first = np.full(len(requests), FOREVER, np.int64)
        first[line.stay_request[heads]] = line.start_ns[line.stay_first[heads]]
        waits = [(np.arange(len(requests)), begin, first), self._between()]
        changes = []
        for who, since, until in waits:
            some = np.flatnonzero(counted[who] & (since < until))
            for columns, change in ((since, 1), (until, -1)):
                rows = zip(columns[some].tolist(), who[some].tolist(), strict=True)
                changes += [(t, rule, request, change) for t, request in rows if t < FOREVER]
        return changes

    def _between(self) -> tuple[IntColumn, IntColumn, IntColumn]:
        """Requests that are evicted, when, and when their next stays begin."""
        line = self.line
        evicted = np.flatnonzero(~line.stay_finishes)
        free = line.stay_freed[evicted]
        inside = free < line.heads()[line.stay_worker[evicted] + 1]
        starts = np.append(line.start_ns, FOREVER)
        since = np.where(inside, starts[np.where(inside, free, -1)], FOREVER)
        following = np.append(line.ordinal[1:] > 0, False)[evicted]
        begins = np.append(line.start_ns[line.stay_first], FOREVER)
        until = np.where(following, begins[np.where(following, evicted + 1, -1)], FOREVER)
        return line.stay_request[evicted], since, until


def _classes() -> range:
    return range(len(SERVICE_CLASSES))
