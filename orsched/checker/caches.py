"""Caches: active requests, their contexts, and the memory blocks held, by step."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.checker.intervals import Ints, count_above, covering, highest

if TYPE_CHECKING:
    from orsched.checker.intervals import Bools
    from orsched.checker.reading import Reading
    from orsched.memory import BlockMemory

Intervals = tuple[Ints, Ints, Ints]
"""First and last positions, and a value of each."""


class Caches:
    """What requests have in their caches at each position.

    The cache of a request grows by one token a round while it is active. Less the rounds of its
    worker it does not change then, so that all sums are over intervals with one value.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    @cached_property
    def decoding(self) -> Ints:
        """Decode rows that each decode or mixed step serves."""
        s = self.reading.stays
        return self._in_rounds(s.decodes)

    @cached_property
    def active(self) -> Ints:
        """Requests in each round of a step, those with invalid tokens included."""
        s = self.reading.stays
        return self.decoding + self._in_rounds(s.invalids) if len(s.invalids) else self.decoding

    def _in_rounds(self, rows: Ints) -> Ints:
        r = self.reading
        count = covering(len(r.worker), r.stays.first[rows], r.stays.last[rows])
        return count * r.has_rounds

    # -- contexts -------------------------------------------------------------------------

    @cached_property
    def context_sum(self) -> Ints:
        """Sum of the contexts in the first round of each step; on padding workers, padded."""
        r = self.reading
        first, last, base = self._growing
        sums = covering(len(r.worker), first, last, base)
        sums += self.active * (r.rounds_before[:-1] + 1)
        padding = np.array([worker.padding for worker in r.instance.workers] + [False], bool)
        pads = padding[np.minimum(r.worker, len(padding) - 1)]
        return np.where(pads, self.active * self.context_max, sums) * r.has_rounds

    @cached_property
    def context_max(self) -> Ints:
        """Largest context in the first round of each step; 0 for none."""
        r = self.reading
        return np.where(self.active > 0, self._highest_growing + r.rounds_before[:-1] + 1, 0)

    @cached_property
    def _growing(self) -> Intervals:
        """Positions of the rows with rounds, and tokens in cache less rounds of the worker."""
        r, s = self.reading, self.reading.stays
        rows = s.runs
        first = s.first[rows]
        return first, s.last[rows], s.cache_before[rows] - r.rounds_before[first]

    @cached_property
    def _highest_growing(self) -> Ints:
        return highest(len(self.reading.worker), *self._growing)

    @cached_property
    def _resting(self) -> Intervals:
        """Intervals in which a cache stays as it is, and its tokens.

        From a prefill row, and from after any other one, until the next row of the stay.
        """
        s = self.reading.stays
        begin = np.where(s.phase == 0, s.first, s.last + 1)
        until = s.last.copy()
        until[:-1] = np.where(s.opens[1:], s.last[:-1], s.first[1:] - 1)
        some = begin <= until
        return begin[some], until[some], s.cache_after[some]

    # -- blocks ---------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> Ints:
        """Memory blocks held in each step, after its last round; 0 without a memory."""
        r = self.reading
        alike: dict[tuple[BlockMemory, bool], list[int]] = {}
        for index, worker in enumerate(r.instance.workers):
            if worker.memory is not None:
                alike.setdefault((worker.memory, worker.padding), []).append(index)
        result = np.zeros(len(r.worker), np.int64)
        for (memory, padding), indices in alike.items():
            kind = np.zeros(len(r.instance.workers), bool)
            kind[indices] = True
            held = self._held(memory, padding, kind)
            here = r.step_ok & kind[np.minimum(r.worker, len(kind) - 1)]
            result[here] = held[here]
        return result

    def _held(self, memory: BlockMemory, padding: bool, kind: Bools) -> Ints:
        """Blocks held on workers of a kind."""
        r, s = self.reading, self.reading.stays
        length, size = len(r.worker), memory.block_tokens
        begin, end = s.places
        present = self._of(kind, (s.first[begin], s.last[end], s.request[begin]))
        if not memory.is_paged:
            requests = r.instance.requests
            tokens = (requests.prompt_tokens + requests.output_tokens)[present[2]]
            return covering(length, *present[:2], _ceil(tokens, size))
        growing, resting = self._of(kind, self._growing), self._of(kind, self._resting)
        after = r.rounds_before[1:]
        if padding:
            longest = np.maximum(highest(length, *growing) + after, highest(length, *resting))
            return covering(length, *present[:2]) * _ceil(np.maximum(longest, 0), size)
        first, last, tokens = resting
        return covering(length, first, last, _ceil(tokens, size)) + _pages(growing, after, size)

    def _of(self, kind: Bools, intervals: Intervals) -> Intervals:
        """The intervals on workers of a kind."""
        if kind.all():
            return intervals
        first, last, values = intervals
        here = kind[self.reading.worker[first]]
        return first[here], last[here], values[here]


def _pages(growing: Intervals, after: Ints, size: int) -> Ints:
    """Sum of ``ceil((value + after) / size)`` over the intervals that hold each position.

    With quotients and remainders v of the value and t of the other, the rounded-up quotient is
    the sum of the quotients, one more if v + t > 0, and another one if v > size - t.
    """
    first, last, values = growing
    length = len(after)
    whole, rest = np.divmod(values, size)
    whole_after, rest_after = np.divmod(after, size)
    count, some = covering(length, first, last), rest > 0
    begun = np.where(rest_after > 0, count, covering(length, first[some], last[some]))
    begun += count_above(first, last, rest, size - rest_after)
    return covering(length, first, last, whole) + count * whole_after + begun


def _ceil(tokens: Ints, size: int) -> Ints:
    return (tokens + (size - 1)) // size
