"""The one reading of a schedule, with what requests have in their caches by step."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.certificates.arrivals import arrivals_from_ends, with_arrivals
from orsched.common.columns import IntColumn
from orsched.metrics.prefix_replay import PrefixReplay
from orsched.metrics.timeline_rows import covered_above, covered_max, covered_sum
from orsched.metrics.timeline_stays import Stays

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.instance import Instance
    from orsched.data.memory import BlockMemory
    from orsched.data.schedule import Schedule
    from orsched.metrics.timeline_rows import Mask


Intervals = tuple[IntColumn, IntColumn, IntColumn]  # first and last places, and a value of each


class Caches:
    """What requests have in their caches at each place. The cache of a request grows by one token a
    round while it is active. Less the rounds of its worker it does not change then, so that all
    sums are over intervals with one value. ``used_of_prefixes`` returns the blocks that prefix
    caches reference in each step."""

    def __init__(self, line: Stays, used_of_prefixes: Callable[[], IntColumn]) -> None:
        self.line, self.used_of_prefixes = line, used_of_prefixes

    @cached_property
    def decoding(self) -> IntColumn:
        """Decode rows that each decode or mixed step serves."""
        return self._in_rounds(self.line.decodes)

    @cached_property
    def active(self) -> IntColumn:
        """Requests in each round of a step, those with invalid tokens included."""
        invalids = self.line.invalids
        return self.decoding + self._in_rounds(invalids) if len(invalids) else self.decoding

    def _in_rounds(self, rows: IntColumn) -> IntColumn:
        line = self.line
        return covered_sum(len(line.worker), line.first[rows], line.last[rows]) * line.has_rounds

    @cached_property
    def context_sum(self) -> IntColumn:
        """Sum of the contexts in the first round of each step."""
        line = self.line
        sums = covered_sum(len(line.worker), *self._growing)
        sums += self.active * (line.rounds_before[:-1] + 1)
        return sums * line.has_rounds

    @cached_property
    def context_padded(self) -> IntColumn:
        """The same; on padding workers each context counts as long as the longest."""
        line = self.line
        padding = np.array([worker.padding for worker in line.instance.workers] + [False], bool)
        if not padding.any():
            return self.context_sum
        pads = padding[np.minimum(line.worker, len(padding) - 1)] & line.has_rounds
        return np.where(pads, self.active * self.context_max, self.context_sum)

    @cached_property
    def context_max(self) -> IntColumn:
        """Largest context in the first round of each step; 0 for none."""
        most = covered_max(len(self.line.worker), *self._growing)
        return np.where(self.active > 0, most + self.line.rounds_before[:-1] + 1, 0)

    @cached_property
    def _growing(self) -> Intervals:
        """Places of the rows with rounds, and tokens in cache less rounds of the worker."""
        line = self.line
        rows = line.runs
        first = line.first[rows]
        return first, line.last[rows], line.cached[rows] - line.rounds_before[first]

    @cached_property
    def _resting(self) -> Intervals:
        """Intervals in which a cache stays as it is, and its tokens: from a prefill row, and from
        after any other one, until the next row of the stay; and from the start of a transfer to its
        end, on both workers."""
        line = self.line
        begin = np.where(line.is_prefill, line.first, line.last + 1)
        until = line.last.copy()
        until[:-1] = np.where(line.opens[1:], line.last[:-1], line.first[1:] - 1)
        tokens = line.cached_after
        if line.schedule.transfers is not None:
            until[line.stay_end] = line.held_last[line.stay_end]
            stays = np.flatnonzero(line.handovers.comes)
            rows = line.stay_row[stays]
            begin = np.concatenate([begin, line.held_first[rows]])
            until = np.concatenate([until, line.first[rows] - 1])
            tokens = np.concatenate([tokens, line.handovers.received[stays]])
        some = begin <= until
        return begin[some], until[some], tokens[some]

    @cached_property
    def blocks(self) -> IntColumn:
        """Memory blocks held in each step, after its last round; 0 without a memory. Every request
        on a client counts, in the steps that do not serve it as well. Where allocation is whole a
        stay holds its blocks throughout; where it is paged, those of its cache, and on a padding
        worker as many as the longest present one. In a prefix cache blocks that several share count
        once."""
        line = self.line
        workers = line.instance.workers
        alike: dict[tuple[BlockMemory, bool], list[int]] = {}
        for index, worker in enumerate(workers):
            if worker.memory is not None and not worker.caches_prefixes:
                alike.setdefault((worker.memory, worker.padding), []).append(index)
        result = np.zeros(len(line.worker), np.int64)
        for (memory, padding), indices in alike.items():
            kind = np.zeros(len(workers), bool)
            kind[indices] = True
            held = self._held(memory, padding, kind)
            here = line.known & kind[np.minimum(line.worker, len(kind) - 1)]
            result[here] = held[here]
        if line.instance.caches_prefixes:
            result += self.used_of_prefixes()
        return result

    def _held(self, memory: BlockMemory, padding: bool, kind: Mask) -> IntColumn:
        line = self.line
        n, size = len(line.worker), memory.block_tokens
        begin, end = line.visits
        present = self._of(kind, (line.first[begin], line.last[end], line.request[begin]))
        if not memory.is_paged:
            requests = line.instance.requests
            tokens = (requests.prompt_tokens + requests.output_tokens)[present[2]]
            return covered_sum(n, *present[:2], _ceil(tokens, size))
        growing, resting = self._of(kind, self._growing), self._of(kind, self._resting)
        after = line.rounds_before[1:]
        if padding:
            longest = np.maximum(covered_max(n, *growing) + after, covered_max(n, *resting))
            return covered_sum(n, *present[:2]) * _ceil(np.maximum(longest, 0), size)
        first, last, tokens = resting
        return covered_sum(n, first, last, _ceil(tokens, size)) + _pages(growing, after, size)

    def _of(self, kind: Mask, intervals: Intervals) -> Intervals:
        """The intervals on workers of a kind."""
        if kind.all():
            return intervals
        first, last, values = intervals
        here = kind[self.line.worker[first]]
        return first[here], last[here], values[here]


def _pages(growing: Intervals, after: IntColumn, size: int) -> IntColumn:
    """Sum of ``ceil((value + after) / size)`` over the intervals that hold each place. With
    quotients and remainders v of the value and t of the other, the rounded-up quotient is the sum
    of the quotients, one more if v + t > 0, and another one if v > size - t."""
    first, last, values = growing
    n = len(after)
    whole, rest = np.divmod(values, size)
    whole_after, rest_after = np.divmod(after, size)
    count, some = covered_sum(n, first, last), rest > 0
    begun = np.where(rest_after > 0, count, covered_sum(n, first[some], last[some]))
    begun += covered_above(first, last, rest, size - rest_after)
    return covered_sum(n, first, last, whole) + count * whole_after + begun


def _ceil(tokens: IntColumn, size: int) -> IntColumn:
    return (tokens + (size - 1)) // size


class PrefillBatches:
    """Prefill rows by step, in order of place."""

    def __init__(self, line: Stays) -> None:
        rows = line.prefills
        self.line = line
        place = line.first[rows]
        order = np.argsort(place, kind="stable")
        place = place[order]
        self.rows: IntColumn = rows[order]  # in the timeline
        self.tokens: IntColumn = line.tokens[self.rows]  # of the rows
        opens = np.ones(len(rows), bool)
        np.not_equal(place[1:], place[:-1], out=opens[1:])
        self.begin = np.flatnonzero(opens)  # first row of each step
        self.size: IntColumn = np.diff(self.begin, append=len(rows))  # rows of each step
        self.place: IntColumn = place[self.begin]  # steps with prefill rows
        self.total: IntColumn = np.add.reduceat(self.tokens, self.begin)  # tokens of each step
        self.longest: IntColumn = np.maximum.reduceat(self.tokens, self.begin)  # of its largest row
        pads = np.array([worker.padding for worker in line.instance.workers], bool)
        padding = pads[line.worker[self.place]]
        self.padded: IntColumn = np.where(padding, self.longest * self.size, self.total)

    @cached_property
    def cached(self) -> IntColumn:
        """Tokens of its request in the cache before each row, hits in a prefix cache included."""
        before: IntColumn = self.line.cached_after[self.rows] - self.tokens
        return before

    @cached_property
    def as_list(self) -> list[int]:
        """The tokens of the rows, as Python numbers."""
        tokens: list[int] = self.tokens.tolist()
        return tokens


class Timeline(Stays):
    """The steps of a schedule worker by worker, and what each row of work takes part in.

    The *place* of a step is its number when the steps of worker 0 are counted first, then those of
    worker 1, and so on: the steps between two places of a worker are that worker's. A *stay* is a
    run of rows of one request and stay.

    Metrics, pictures, reports, runner and checker read schedules here, and nowhere else. The
    checker also reads faulty ones (``strict=False``): rows that point to nothing, or to steps of
    another phase, are left out, the others are sorted by request, stay and place, and nothing
    raises. All others read ``strict``, the rows as they are; it raises as ``Rows`` does.

    ``problem`` is the instance that was given. Where requests arrive when others have ended,
    ``instance`` has the times at which they did, which follow from the ends in the schedule.
    """

    def __init__(self, instance: Instance, schedule: Schedule, *, strict: bool = True) -> None:
        super().__init__(instance, schedule, strict=strict)
        self.problem = instance
        if instance.arrivals_follow:
            ends = np.full(len(instance), -1, np.int64)
            ends[self.request] = self.end_ns[self.last]
            times = arrivals_from_ends(instance.requests, instance.concurrency, ends)
            self.instance = with_arrivals(instance, times)

    @cached_property
    def prefix_replay(self) -> PrefixReplay:
        """What the prefix caches of the workers found and held."""
        return PrefixReplay(self)

    @cached_property
    def batches(self) -> PrefillBatches:
        """The prefill rows by step."""
        return PrefillBatches(self)

    @cached_property
    def caches(self) -> Caches:
        """Active requests, contexts and memory blocks by step."""
        return Caches(self, lambda: self.prefix_replay.used)

    def by_place(self, of_batches: IntColumn) -> IntColumn:
        """Return a column of ``batches`` with one entry a place, 0 where nothing is prefilled."""
        found = np.zeros(len(self.worker), np.int64)
        found[self.batches.place] = of_batches
        return found


def as_arrived(instance: Instance, schedule: Schedule) -> Instance:
    """Return the instance with the arrivals that follow from the ends in a schedule."""
    return Timeline(instance, schedule).instance if instance.arrivals_follow else instance


def yielded_tokens(instance: Instance, trace: Schedule) -> IntColumn:
    """Return how many tokens each request has yielded in a schedule, complete or not."""
    return Timeline(instance, trace).yielded


def finished_requests(instance: Instance, schedule: Schedule) -> int:
    """Return how many requests have yielded all their tokens in a schedule, complete or not."""
    return int((yielded_tokens(instance, schedule) >= instance.requests.output_tokens).sum())
