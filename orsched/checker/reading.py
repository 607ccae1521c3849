"""The checker's own reading of a schedule: positions of its steps, and which rows are sound."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from orsched.checker.caches import Caches
from orsched.checker.intervals import Bools, Ints, before
from orsched.checker.loads import Loads
from orsched.checker.stays import Stays

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.schedule import Schedule

PREFILL, DECODE, MIXED = 0, 1, 2
"""Phases of steps; those of rows are prefill, decode and invalid."""

ROUNDS_CEILING = 2**31
"""More rounds than any request can need: larger counts are cut to it, so that sums fit."""


class Reading:
    """A schedule laid out by worker: *positions* number the steps by (worker, row).

    Steps and rows that are wrong in themselves are left out of the later checks, which would
    otherwise report consequences; they have been reported by then.

    Attributes:
        n: requests of the instance.
        stopped: whether some requests may not be done.
        first_by_prefill: whether the end of a prefill yields a token.
        order, position: step at each position, and position of each step; the same number when
            the steps are in order of worker already.
        worker, phase, start, end, rounds: the columns of the steps, by position.
        step_ok: whether the worker exists, by position.
    """

    def __init__(self, instance: Instance, schedule: Schedule, stopped: bool = False) -> None:
        self.instance = instance
        self.schedule = schedule
        self.stopped = stopped
        self.n = len(instance.requests.prompt_tokens)
        self.first_by_prefill = instance.first_token == "prefill"
        steps = schedule.steps
        self.order = self.position = np.arange(len(steps))
        columns = [steps.worker, steps.phase, steps.start_ns, steps.end_ns, steps.rounds]
        self.in_order = bool((steps.worker[1:] >= steps.worker[:-1]).all())
        if not self.in_order:
            self.order = np.argsort(steps.worker, kind="stable")
            self.position = np.empty(len(steps), np.int64)
            self.position[self.order] = np.arange(len(steps))
            columns = [column[self.order] for column in columns]
        self.worker, self.phase, self.start, self.end, rounds = columns
        self.rounds: Ints = np.minimum(rounds, ROUNDS_CEILING)
        self.step_ok: Bools = self.worker < len(instance.workers)

    # -- steps ----------------------------------------------------------------------------

    @cached_property
    def has_rounds(self) -> Bools:
        """Whether the step is a decode or a mixed step, by position."""
        return np.not_equal(self.phase, PREFILL)

    @cached_property
    def rounds_before(self) -> Ints:
        """Rounds before each position (one entry more than positions)."""
        return before(np.where(self.has_rounds, self.rounds, 0))

    def heads(self) -> Ints:
        """First position of each worker, and the end of the last one's."""
        return np.searchsorted(self.worker, np.arange(len(self.instance.workers) + 1))

    # -- rows of work ---------------------------------------------------------------------

    @cached_property
    def first(self) -> Ints:
        """Position of the first step of each row of work."""
        step = self.schedule.work.first_step
        return step if self.in_order else self.position[step]

    @cached_property
    def last(self) -> Ints:
        """Position of the last step of each row of work."""
        step = self.schedule.work.last_step
        return step if self.in_order else self.position[step]

    @cached_property
    def misplaced(self) -> Bools:
        """Rows whose phase does not go with that of the steps at their ends."""
        here, there = (self.phase.astype(np.int8)[place] for place in (self.first, self.last))
        prefill = self.schedule.work.phase == PREFILL
        wrong: Bools = prefill & ((here == DECODE) | (there == DECODE))
        wrong |= ~prefill & ((here == PREFILL) | (there == PREFILL))
        return wrong

    @cached_property
    def row_ok(self) -> Bools:
        """Rows that name a request and a run of steps of their phase, on one known worker."""
        work, first, last = self.schedule.work, self.first, self.last
        ok: Bools = (work.request < self.n) & (first <= last)
        if len(self.worker) and self.worker[0] == self.worker[-1]:  # the only one
            ok &= self.step_ok[0]
        else:
            ok &= self.step_ok[first] & (self.worker[first] == self.worker[last])
        ok &= ~self.misplaced
        ok &= (work.phase != PREFILL) | (first == last)
        return ok

    @cached_property
    def stays(self) -> Stays:
        """The sound rows by request, and the stays that they make up."""
        return Stays(self)

    @cached_property
    def loads(self) -> Loads:
        """The sound prefill rows by step."""
        return Loads(self)

    @cached_property
    def caches(self) -> Caches:
        """Active requests, contexts and memory blocks by step."""
        return Caches(self)
