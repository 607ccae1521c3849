"""The checker's own reading of a schedule: positions, intervals and counts."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.schedule import Schedule

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

PREFILL, DECODE = 0, 1
ROUNDS_CEILING = 2**31
"""More rounds than any request can need: larger counts are cut to it, so that sums fit."""


class Reading:
    """A schedule laid out by worker: *positions* number the steps by (worker, row).

    Steps and rows that are wrong in themselves are left out of the later checks, which would
    otherwise report consequences; they have been reported by then.

    Attributes:
        n: requests of the instance.
        needed: decode rounds that each request needs under the first-token rule.
        position: position of each step.
        worker, phase, start, end, rounds: the columns of the steps, by position.
        step_ok: whether the worker exists, by position.
    """

    def __init__(self, instance: Instance, schedule: Schedule) -> None:
        self.instance = instance
        self.schedule = schedule
        self.n = len(instance.requests.prompt_tokens)
        first_by_prefill = 1 if instance.first_token == "prefill" else 0
        self.needed: Ints = instance.requests.output_tokens - first_by_prefill
        steps = schedule.steps
        self.order = np.argsort(steps.worker, kind="stable")
        self.position = np.empty(len(steps), np.int64)
        self.position[self.order] = np.arange(len(steps))
        self.worker: Ints = steps.worker[self.order]
        self.phase: Ints = steps.phase[self.order]
        self.start: Ints = steps.start_ns[self.order]
        self.end: Ints = steps.end_ns[self.order]
        self.rounds: Ints = np.minimum(steps.rounds[self.order], ROUNDS_CEILING)
        self.step_ok: Bools = self.worker < len(instance.workers)

    # -- steps ----------------------------------------------------------------------------

    @cached_property
    def decode(self) -> Bools:
        """Whether the step is a decode step, by position."""
        return np.equal(self.phase, DECODE)

    @cached_property
    def decodes_before(self) -> Ints:
        """Decode steps before each position (one entry more than positions)."""
        return before(self.decode.astype(np.int64))

    @cached_property
    def rounds_before(self) -> Ints:
        """Decode rounds before each position (one entry more than positions)."""
        return before(np.where(self.decode, self.rounds, 0))

    # -- rows of work ---------------------------------------------------------------------

    @cached_property
    def first(self) -> Ints:
        """Position of the first step of each row of work."""
        return self.position[self.schedule.work.first_step]

    @cached_property
    def last(self) -> Ints:
        """Position of the last step of each row of work."""
        return self.position[self.schedule.work.last_step]

    @cached_property
    def row_ok(self) -> Bools:
        """Rows that name a request and a run of steps of their phase, on one known worker."""
        work = self.schedule.work
        ok: Bools = (work.request < self.n) & (self.first <= self.last)
        if len(work) == 0:
            return ok
        ok &= self.step_ok[self.first] & (self.worker[self.first] == self.worker[self.last])
        ok &= (self.phase[self.first] == work.phase) & (self.phase[self.last] == work.phase)
        ok &= (work.phase == DECODE) | (self.first == self.last)
        return ok

    @cached_property
    def prefill_rows(self) -> Ints:
        """Indices of the sound prefill rows."""
        return np.flatnonzero(self.row_ok & (self.schedule.work.phase == PREFILL))

    @cached_property
    def decode_rows(self) -> Ints:
        """Indices of the sound decode rows."""
        return np.flatnonzero(self.row_ok & (self.schedule.work.phase == DECODE))

    @cached_property
    def prefill_of(self) -> Ints:
        """Sound prefill row of each request (the first one), or -1."""
        return self._row_of(self.prefill_rows)

    @cached_property
    def decode_of(self) -> Ints:
        """Sound decode row of each request (the first one), or -1."""
        return self._row_of(self.decode_rows)

    def _row_of(self, rows: Ints) -> Ints:
        found = np.full(self.n, -1, np.int64)
        found[self.schedule.work.request[rows[::-1]]] = rows[::-1]  # the first row is written last
        return found

    @cached_property
    def active(self) -> Ints:
        """Requests that each step serves, by position."""
        return self._covering(self.prefill_rows, None) + self._covering(self.decode_rows, None)

    def _covering(self, rows: Ints, weights: Ints | None) -> Ints:
        """Sum of weights (default 1) of the rows that span each position."""
        return covering(len(self.worker), self.first[rows], self.last[rows], weights)

    @cached_property
    def spans(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Request, client, first and last position of each stay on a client.

        A stay lasts from a prefill row to the end of the decode row of that request on the same
        worker and client; rows without such a partner are stays of their own.
        """
        work = self.schedule.work
        pre, dec = self.prefill_of, self.decode_of
        paired = np.flatnonzero((pre >= 0) & (dec >= 0))
        a, b = pre[paired], dec[paired]
        same = (work.client[a] == work.client[b]) & (
            self.worker[self.first[a]] == self.worker[self.first[b]]
        )
        a, b = a[same], b[same]
        last = self.last.copy()
        last[a] = np.maximum(last[a], last[b])
        alone = self.row_ok.copy()
        alone[b] = False
        rows = np.flatnonzero(alone)
        return work.request[rows], work.client[rows], self.first[rows], last[rows]

    # -- contexts -------------------------------------------------------------------------

    @cached_property
    def context_sum(self) -> Ints:
        """Sum of the contexts in the first round of each decode step, by position."""
        rows = self.decode_rows
        sums = self._covering(rows, self._context_base(rows))
        return sums + self._covering(rows, None) * (self.rounds_before[:-1] + 1)

    @cached_property
    def context_max(self) -> Ints:
        """Largest context in the first round of each decode step, by position; 0 for none."""
        from heapq import heappop, heappush

        rows = self.decode_rows
        rows = rows[np.argsort(self.first[rows], kind="stable")]
        bases: list[int] = self._context_base(rows).tolist()
        firsts: list[int] = self.first[rows].tolist()
        lasts: list[int] = self.last[rows].tolist()
        result = np.zeros(len(self.worker), np.int64)
        heap: list[tuple[int, int]] = []
        entered = 0
        for position in np.flatnonzero(self.decode).tolist():
            while entered < len(firsts) and firsts[entered] <= position:
                heappush(heap, (-bases[entered], lasts[entered]))
                entered += 1
            while heap and heap[0][1] < position:
                heappop(heap)
            if heap:
                result[position] = int(self.rounds_before[position]) + 1 - heap[0][0]
        return result

    def _context_base(self, rows: Ints) -> Ints:
        """Prompt tokens less the worker's rounds before the row: constant while it is active."""
        prompts = self.instance.requests.prompt_tokens[self.schedule.work.request[rows]]
        return np.asarray(prompts - self.rounds_before[self.first[rows]], np.int64)


def before(values: Ints) -> Ints:
    """Return the sums of all earlier values, and the sum of all as one entry more."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def covering(length: int, first: Ints, last: Ints, weights: Ints | None = None) -> Ints:
    """Sum of weights (default 1) of the intervals [first, last] that hold each position."""
    change = np.zeros(length + 1, np.int64)
    if weights is None:
        change += np.bincount(first, minlength=length + 1)
        change -= np.bincount(last + 1, minlength=length + 1)
    else:
        np.add.at(change, first, weights)
        np.subtract.at(change, last + 1, weights)
    return np.cumsum(change)[:-1]


def exact_sum(values: Ints) -> int:
    """Sum of a column without overflow."""
    high, low = values >> 31, values & (2**31 - 1)
    return (int(high.sum()) << 31) + int(low.sum())
