"""Prefix caches replayed: what every stay finds, and the blocks in use, from a schedule alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.units import NEVER
from orsched.data.chains import chains_of
from orsched.data.schedule import DECODE
from orsched.metrics.prefix_blocks import EMPTY, LOST, CacheBlocks, Users, own_key

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.memory import Eviction
    from orsched.data.workers import Worker
    from orsched.metrics.timeline_rows import Mask
    from orsched.metrics.timeline_stays import Stays

FREE_SENT, FREE_SOON, FORGET, GROW, ADMIT, FREE_LATE, FREE_GOING, FREE_FINISHED = range(8)
"""What happens in a step, in this order. What is evicted goes soon, and where steps are planned
ahead, what finished in the step before may go soon or late, too, as it says. A worker that was gone
since the step before has forgotten all."""

Maker = Callable[[int, "Worker", "Eviction", Users], CacheBlocks]
"""Makes the blocks of a worker: its index, the worker, the rule in force, and who will use keys."""


class PrefixReplay:
    """The caches of all workers that have one, step by step as the page on them says."""

    def __init__(self, line: Stays, maker: Maker | None = None) -> None:
        self.line = line
        self.found = np.zeros(len(line.stay_request), np.int64)  # tokens at each stay's start
        self.used_change = np.zeros(len(line.worker) + 2, np.int64)
        self.evicted = np.zeros(len(line.instance.workers), np.int64)  # with content, taken
        self.users = Users(line)
        make = _blocks_of if maker is None else maker
        self.caches: dict[int, CacheBlocks] = {}
        self.ahead = np.zeros(len(line.instance.workers), bool)
        self.pending: dict[int, dict[int, int]] = {}  # worker -> stay -> tokens, finished, held
        for index, worker in enumerate(line.instance.workers):
            if worker.memory is not None and worker.memory.prefix_cache is not None:
                rule = line.rule_of(worker)
                self.caches[index] = make(index, worker, rule, self.users)
                self.ahead[index], self.pending[index] = rule.ahead, {}
        self._chains()
        self._run()
        for index, cache in self.caches.items():
            self.evicted[index] = cache.evicted

    @cached_property
    def used(self) -> IntColumn:
        """Blocks referenced in each step."""
        return np.cumsum(self.used_change)[: len(self.line.worker)]

    @cached_property
    def here(self) -> IntColumn:
        """Stays on workers with a cache, in order of admission."""
        line = self.line
        cached = np.zeros(len(line.instance.workers), bool)
        cached[list(self.caches)] = True
        stays = np.flatnonzero(cached[line.stay_worker])
        order = np.lexsort((line.stay_turn[stays], line.stay_first[stays]))
        return stays[order]

    def _chains(self) -> None:
        chains = chains_of(self.line.instance.requests, self.users.block_tokens)
        self.ids: list[int] = chains.ids.tolist()
        self.begin: list[int] = chains.offsets.tolist()
        self.shared = chains.counts

    @cached_property
    def events(self) -> list[IntColumn]:
        """What happens to stays (rows of ``here``), in order: place, kind, stay, tokens, moment."""
        line, here = self.line, self.here
        number = np.full(len(line.stay_request), -1, np.int64)
        number[here] = np.arange(len(here))
        parts = [
            *self._ends(number), *self._absences(number), *self._chunks(number),
            *self._rounds(number),
        ]  # fmt: skip
        place, kind, stay, tokens = (np.concatenate(column) for column in zip(*parts, strict=True))
        inside = np.minimum(place, max(len(line.worker) - 1, 0))
        rounds = (line.phase[inside] == DECODE) & (kind == GROW)
        late = rounds | (kind == FREE_FINISHED)
        moment = np.where(late, line.end_ns[inside], line.start_ns[inside])
        rank = np.where(kind == FREE_SOON, -stay, stay)
        goes = (kind == FREE_SENT) | (kind == FREE_GOING)
        rank = np.where(goes, line.handovers.out_of[here[stay]], rank)
        exits = np.where(kind == FREE_SOON, line.stay_exit[here[stay]], 0)
        keys = (rank, exits, kind, place)
        order = np.lexsort((*keys, moment) if self.users.matter else keys)
        return [column[order] for column in (place, kind, stay, tokens, moment)]

    def _ends(self, number: IntColumn) -> list[tuple[IntColumn, ...]]:
        """Stays that are freed: finished ones in their last step, evicted ones before a later one.
        What is freed after the last step of a worker is not read."""
        line, here = self.line, self.here
        cached = line.cached_after[line.stay_end[here]]
        finished = line.stay_finishes[here]
        last = line.stay_last[here]
        free = line.stay_freed[here]
        parts: list[tuple[IntColumn, ...]] = []
        heads = line.heads()[line.stay_worker[here] + 1]
        within = line.stay_evicted[here] & (free < heads)
        late = free > last + 1
        said = late | (line.stay_exit[here] > 0)
        self.later: Mask = finished & said & (last + 1 < heads)
        later = self.later
        before, going, places = self._sent()
        for kind, rows, place in (
            (FREE_FINISHED, finished, last),
            (FREE_SOON, within | (later & ~late), free),
            (FREE_LATE, later & late, last + 1),
            (FREE_SENT, before, places),
            (FREE_GOING, going, places),
        ):
            chosen = np.flatnonzero(rows)
            parts.append(
                (place[chosen], np.full(len(chosen), kind), number[here[chosen]], cached[chosen])
            )
        return parts

    def _sent(self) -> tuple[Mask, Mask, IntColumn]:
        """Which stays went over a link before a step of their worker or within one, and which."""
        line, ends = self.line, self.line.handovers.transfers.end_ns
        before, within = np.zeros((2, len(self.here)), bool)
        places = np.zeros(len(self.here), np.int64)
        for row, sent in enumerate(line.handovers.out_of[self.here].tolist()):
            if sent >= 0:
                first, place, last = self._from(line.stay_worker[self.here[row]], ends[sent])
                within[row] = place > first and line.end_ns[place - 1] >= ends[sent]
                before[row], places[row] = place < last and not within[row], place - within[row]
        return before, within, places

    def _from(self, worker: int, moment: int) -> tuple[int, int, int]:
        """Return a worker's first place, that of its first step from a moment on, and its end."""
        first, last = self.line.heads()[worker : worker + 2].tolist()
        return first, first + int(np.searchsorted(self.line.start_ns[first:last], moment)), last

    def _absences(self, number: IntColumn) -> list[tuple[IntColumn, ...]]:
        """The first steps of workers after each time that they were lost or off: any of the stays
        on the worker stands for its cache."""
        some = {int(self.line.stay_worker[stay]): int(number[stay]) for stay in self.here.tolist()}
        found = set()
        for index, own in self.line.presence.items():
            for end in (end for _, end in own if end is not None and index in some):
                _, place, last = self._from(index, end)
                found |= {(place, FORGET, some[index], 0)} if place < last else set()
        columns = np.array(sorted(found), np.int64).reshape(-1, 4)
        return [tuple(columns.T)]

    def _chunks(self, number: IntColumn) -> list[tuple[IntColumn, ...]]:
        """Prefill rows: the first of each stay admits it."""
        line = self.line
        stay_of = number[line.stay_of[line.prefills]]
        rows, stay_of = line.prefills[stay_of >= 0], stay_of[stay_of >= 0]
        kind = np.where(line.opens[rows], ADMIT, GROW)
        return [(line.first[rows], kind, stay_of, line.cached_after[rows])]

    def _rounds(self, number: IntColumn) -> list[tuple[IntColumn, ...]]:
        """The rounds in which a stay takes a block: its first token of a block."""
        line = self.line
        stay_of = number[line.stay_of[line.runs]]
        rows, stay_of = line.runs[stay_of >= 0], stay_of[stay_of >= 0]
        size = self._sizes()[line.row_worker[rows]]
        before, after = line.cached[rows], line.cached_after[rows]
        held = -(-before // size)
        many = -(-after // size) - held
        each = np.repeat(np.arange(len(rows)), many)
        begin = np.cumsum(many) - many
        tokens = (held[each] + np.arange(len(each)) - begin[each]) * size[each] + 1
        rounds = line.rounds_before[line.first[rows[each]]] + tokens - before[each]
        place = np.searchsorted(line.rounds_before[1:], rounds)
        return [(place, np.full(len(place), GROW), stay_of[each], tokens)]

    def _sizes(self) -> IntColumn:
        """Tokens a block, by worker."""
        memories = [worker.memory for worker in self.line.instance.workers]
        return np.array([1 if m is None else m.block_tokens for m in memories], np.int64)

    def _run(self) -> None:
        line, here = self.line, self.here
        workers, request = line.stay_worker[here], line.stay_request[here]
        self.tables: list[list[int]] = [[] for _ in range(len(here))]
        self.named = [0] * len(here)
        self.cache_of = [self.caches[worker] for worker in workers.tolist()]
        self.size_of = self._sizes()[workers].tolist()
        self.request_of, self.shared_of = request.tolist(), self.shared[request].tolist()
        self.due_of, self.hit_of = line.due[here].tolist(), line.stay_hit[here].tolist()
        # Whether no later stay of the request looks for what a stay leaves.
        last = np.append(line.stay_request[1:] != line.stay_request[:-1], True)
        self.last_of = last[-len(line.stay_request) :][here].tolist()
        self.ordinal_of = line.ordinal[here].tolist()
        self.bulk_of = line.instance.bulk[request].tolist()
        self.worker_of = workers.tolist()
        self.ahead_of = self.ahead[workers].tolist()
        self.finished_of = line.stay_finishes[here].tolist()
        prompts = line.instance.requests.prompt_tokens[request]
        returns = np.append(line.start_ns[line.stay_first[1:]], NEVER)
        returns[:-1][line.ordinal[1:] == 0] = NEVER
        self.returns = returns[here].tolist()  # when the request's next stay begins
        self.due_then = (prompts + line.yielded_then[here]).tolist()
        self.found_of = [0] * len(here)
        self.change = [0] * len(self.used_change)
        # Places where no stay begins: evictions go one by one there, when a block is wanted.
        self.alone = np.full(len(self.used_change), not self.users.matter)
        self.alone[line.stay_first[here]] = False
        self.soon: dict[int, list[tuple[int, int, int]]] = {index: [] for index in self.caches}
        until = self.users.until if self.users.matter else None
        happen = self.happen
        for place, kind, stay, tokens, moment in zip(*map(_list, self.events), strict=True):
            if until is not None:
                until(moment)
            happen(place, kind, stay, tokens, moment)
        heads = line.heads().tolist()
        for index in [index for index, soon in self.soon.items() if soon]:
            self._free_soon(index)
        for index, cache in self.caches.items():  # what is freed behind the last step
            self.change[heads[index + 1]] -= cache.used
        self.used_change += np.array(self.change, np.int64)
        self.found[here] = self.found_of

    def happen(self, place: int, kind: int, stay: int, tokens: int, moment: int) -> None:
        """Let an event happen."""
        worker = self.worker_of[stay]
        if (soon := self.soon[worker]) and (
            place > soon[0][0] or kind == FORGET or kind >= FREE_LATE
        ):
            self._free_soon(worker)
        if kind == FREE_SOON and self.alone[place]:
            soon.append((place, stay, tokens))
        else:
            self._happen_now(place, kind, stay, tokens, moment)

    def _happen_now(self, place: int, kind: int, stay: int, tokens: int, moment: int) -> None:
        cache = self.cache_of[stay]
        before = cache.used
        if kind in (FREE_GOING, FREE_FINISHED):
            if self.later[stay]:
                self.pending[self.worker_of[stay]][stay] = tokens
                return
            self._free(stay, tokens)
            self.change[place + 1] += cache.used - before
            return
        if kind == FORGET:
            for each in list(self.pending[self.worker_of[stay]]):
                self._free_pending(each)
            cache.clear()
        elif kind == FREE_LATE:
            self._free_pending(stay)
        elif kind == FREE_SENT:
            self._free(stay, tokens)
        elif kind == FREE_SOON:
            self._evict(stay, tokens)
            if self.users.matter and self.returns[stay] >= moment:
                self._tell(self.users.begins, stay, self.due_then[stay], moment)
        else:
            if kind == ADMIT:
                self.found_of[stay] = self._admit(stay)
                if self.users.matter:
                    self._tell(self.users.ends, stay, self.due_of[stay], moment)
            self._grow(stay, tokens)
        self.change[place] += cache.used - before

    def _tell(self, what: Callable[..., None], stay: int, due: int, moment: int) -> None:
        request, worker = self.request_of[stay], self.worker_of[stay]
        what(worker, request, due, moment, self.cache_of[stay])

    def _admit(self, stay: int) -> int:
        """Let a stay find its first blocks; return their tokens."""
        cache, size, request = self.cache_of[stay], self.size_of[stay], self.request_of[stay]
        most = (self.due_of[stay] - 1) // size
        holder, begin = cache.holder, self.begin[request]
        hits: list[int] = []
        shared = min(most, self.shared_of[stay])
        for key in self.ids[begin : begin + shared]:
            block = holder.get(key)
            if block is None:
                break
            hits.append(block)
        if len(hits) == shared and self.ordinal_of[stay]:
            for k in range(shared, most):
                block = holder.get(own_key(request, k))
                if block is None:
                    break
                hits.append(block)
        tokens: int = len(hits) * size
        # Where the schedule says otherwise, it is followed, so that later steps make sense.
        del hits[self.hit_of[stay] // size :]
        cache.refer(hits)
        self.tables[stay] = hits
        self.named[stay] = len(hits)
        return tokens

    def _grow(self, stay: int, tokens: int) -> None:
        """Let a stay have the blocks for so many tokens, and name those full of shared ones."""
        cache, size, table = self.cache_of[stay], self.size_of[stay], self.tables[stay]
        soon = self.soon[self.worker_of[stay]]
        more = -(-tokens // size) - len(table)
        if more > 0:
            while soon and cache.used + more > cache.blocks:
                _, gone, had = soon.pop(0)
                self._evict(gone, had)
            table += cache.take(more)
        named, of_prefill = self.named[stay], min(tokens, self.due_of[stay])
        full = min(of_prefill // size, self.shared_of[stay])
        if named < full:
            begin = self.begin[self.request_of[stay]]
            for k in range(named, full):
                cache.name(table[k], self.ids[begin + k])
            self.named[stay] = full

    def _free_soon(self, worker: int) -> None:
        """Let the evictions go that are left of a step."""
        cache, soon = self.caches[worker], self.soon[worker]
        before = cache.used
        for _, stay, tokens in soon:
            self._evict(stay, tokens)
        self.change[soon[0][0]] += cache.used - before
        soon.clear()

    def _evict(self, stay: int, tokens: int) -> None:
        """Let a stay go before a step."""
        if self.finished_of[stay]:
            self._free_pending(stay)
        else:
            self._free(stay, tokens)

    def _free_pending(self, stay: int) -> None:
        """Let a stay go that finished in the step before, unless it is gone."""
        tokens = self.pending[self.worker_of[stay]].pop(stay, None)
        if tokens is not None:
            self._free(stay, tokens)

    def _free(self, stay: int, tokens: int) -> None:
        """Let a stay go; full blocks that have no key yet get the request's own."""
        cache, table, request = self.cache_of[stay], self.tables[stay], self.request_of[stay]
        last = self.last_of[stay]
        if self.ahead_of[stay] and not self.finished_of[stay] and tokens > self.due_of[stay]:
            tokens -= 1  # what the last round filled has no content
        for k in range(self.named[stay], min(tokens // self.size_of[stay], len(table))):
            if cache.key[table[k]] == EMPTY:
                if k < self.shared_of[stay]:  # of an answer that turns continue
                    cache.name(table[k], self.ids[self.begin[request] + k])
                elif last:
                    cache.key[table[k]] = LOST
                else:
                    cache.name(table[k], own_key(request, k))
        cache.release(table, self.bulk_of[stay])


def _blocks_of(index: int, worker: Worker, rule: Eviction, users: Users) -> CacheBlocks:
    assert worker.memory is not None
    blocks = worker.memory.blocks
    if rule.rule == "lru":
        return CacheBlocks(blocks)
    return users.ranked(index, blocks, rule.rule)


def _list(column: IntColumn) -> list[int]:
    values: list[int] = column.tolist()
    return values
