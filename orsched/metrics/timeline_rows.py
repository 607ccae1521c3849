"""Steps of a schedule worker by worker, and its rows of work: what timelines are made of."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import IntColumn, exact_sum
from orsched.common.errors import InputError
from orsched.common.units import NEVER
from orsched.data.memory import Eviction
from orsched.data.schedule import DECODE, INVALID, PREFILL

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.workers import Interval, Worker


NOTHING = -(2**62)  # maximum of no values

_SMALL = 4096  # pairs of an interval and a place that are faster compared one by one


def before(values: IntColumn) -> IntColumn:
    """Return the sums of the values before each place, and of all of them at the end."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def covered_sum(
    n: int, first: IntColumn, last: IntColumn, value: IntColumn | None = None
) -> IntColumn:
    """Return, for each of n places, the sum of the values (default 1) whose interval holds it.
    Intervals [first, last] include both ends; those with last = first - 1 are empty."""
    change = np.zeros(n + 1, np.int64)
    if value is None:
        change += np.bincount(first, minlength=n + 1)
        change -= np.bincount(last + 1, minlength=n + 1)
    else:
        np.add.at(change, first, value)
        np.subtract.at(change, last + 1, value)
    return np.cumsum(change)[:-1]


def covered_max(n: int, first: IntColumn, last: IntColumn, value: IntColumn) -> IntColumn:
    """Return the maximum of the values whose interval holds each place, else ``NOTHING``. An
    interval is two overlapping ones whose length is a power of two; those of one length are split
    in halves, from the longest on."""
    result = np.full(n, NOTHING, np.int64)
    power = np.frexp(last - first + 1)[1] - 1  # -1 for empty intervals
    order = np.argsort(power, kind="stable")
    first, last, value, power = first[order], last[order], value[order], power[order]
    border = np.searchsorted(power, np.arange(int(power.max(initial=-1)) + 2))
    for k in range(len(border) - 2, -1, -1):
        rows = slice(border[k], border[k + 1])
        np.maximum.at(result, first[rows], value[rows])
        np.maximum.at(result, last[rows] + 1 - (1 << k), value[rows])
        if k:
            half = 1 << (k - 1)
            result[half:] = np.maximum(result[half:], result[:-half])
    return result


def covered_above(
    first: IntColumn, last: IntColumn, value: IntColumn, limit: IntColumn
) -> IntColumn:
    """Return how many of the intervals that hold each place have a value above its limit. Values
    and limits are at least 0. They are compared bit by bit, the highest first: where the limit has
    a 0, the values with a 1 are above it, and the others continue together."""
    result = np.zeros(len(limit), np.int64)
    high = max(int(value.max(initial=0)), int(limit.max(initial=0)))
    stack = [(first, last, value, np.arange(len(limit)), high.bit_length() - 1)]
    while stack:
        first, last, value, places, bit = stack.pop()
        if len(first) == 0 or len(places) == 0 or bit < 0:
            continue
        here = limit[places]
        if len(first) * len(places) <= _SMALL:
            index = np.arange(len(places))[:, None]
            above = (first <= index) & (index <= last) & (value > here[:, None])
            result[places] += above.sum(axis=1)
            continue
        ones = (here >> bit & 1) == 1
        tall = (value >> bit & 1) == 1
        for rest, rows in ((ones, tall), (~ones, ~tall)):
            inner = _among(rest, first[rows], last[rows], value[rows])
            stack.append((*inner, places[rest], bit - 1))
        low = places[~ones]
        begin, end, _ = _among(~ones, first[tall], last[tall], value[tall])
        result[low] += covered_sum(len(low), begin, end)
    return result


def _among(
    kept: Mask, first: IntColumn, last: IntColumn, value: IntColumn
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Intervals over the kept places only, which are numbered again; those with none go."""
    number = before(kept.astype(np.int64))
    begin, end = number[first], number[last + 1] - 1
    some = begin <= end
    return begin[some], end[some], value[some]


def exact_product(factors: IntColumn, values: IntColumn) -> int:
    """Return the sum of the products of two columns without overflow, for factors below 2**31."""
    high, low = values >> 31, values & (2**31 - 1)
    return (exact_sum(factors * high) << 31) + exact_sum(factors * low)


def spanned_max(values: IntColumn, first: IntColumn, last: IntColumn) -> IntColumn:
    """Return the maximum of the values from each first to each last place, both included;
    ``NOTHING`` for last < first. An interval is two overlapping ones whose length is a power of
    two; the maxima over all intervals of one length are made from those of half of it."""
    found = np.full(len(first), NOTHING, np.int64)
    power = np.frexp(np.maximum(last - first + 1, 0))[1] - 1  # -1 for empty intervals
    order = np.argsort(power, kind="stable")
    border = np.searchsorted(power[order], np.arange(int(power.max(initial=-1)) + 2))
    most = values
    for k in range(len(border) - 1):
        if k:
            half = 1 << (k - 1)
            most = np.maximum(most[:-half], most[half:])
        rows = order[border[k] : border[k + 1]]
        found[rows] = np.maximum(most[first[rows]], most[last[rows] + 1 - (1 << k)])
    return found


def require_references(instance: Instance, schedule: Schedule) -> None:
    """Raise ``InputError`` unless all rows point to something."""
    steps, work = schedule.steps, schedule.work
    first, last = work.first_step, work.last_step
    clients = np.array([worker.clients for worker in instance.workers])
    stray = steps.worker >= len(clients)
    _refuse(stray, "steps.worker", "the worker does not exist")
    worker, prefills = steps.worker[first], work.phase == PREFILL
    _refuse(work.request >= len(instance), "work.request", "the request does not exist")
    _refuse(work.client >= clients[worker], "work.client", "the worker has fewer clients")
    _refuse(last < first, "work.last_step", "the row ends before it begins")
    _refuse(steps.worker[last] != worker, "work.last_step", "the row changes workers")
    _refuse(prefills & (last != first), "work.last_step", "a prefill row has one step")
    wrong = np.where(prefills, DECODE, PREFILL)
    fits = (steps.phase[first] != wrong) & (steps.phase[last] != wrong)
    _refuse(~fits, "work.phase", "the step does not do that")
    stays = np.zeros(len(work), bool)
    stays[1:] = (work.request[1:] == work.request[:-1]) & (work.stay[1:] == work.stay[:-1])
    before = np.arange(len(work)) - stays
    _refuse(stays & (worker != worker[before]), "work.first_step", "the stay changes workers")
    _refuse(stays & (first <= last[before]), "work.first_step", "the rows overlap")


def _refuse(wrong: np.ndarray[Any, np.dtype[np.bool_]], field: str, problem: str) -> None:
    if wrong.any():
        raise InputError(
            problem, row=int(np.argmax(wrong)), field=field, remedy="check the schedule"
        )


Mask = np.ndarray[Any, np.dtype[np.bool_]]

ROUNDS_CEILING = 2**31  # more than any request needs: larger counts are cut to it, so that sums fit


class Rows:
    """The steps worker by worker, what each row of work takes part in, and where stays begin.

    By place: ``order`` (row of ``Steps``), its columns, and ``known``, whether the worker exists;
    ``place`` is by row of ``Steps``. By row here: ``row`` of ``Work`` and its columns,
    ``row_phase`` among them; ``first`` and ``last`` place; ``row_worker``; ``row_rounds``, decode
    rounds that it takes part in, 0 for prefill rows; ``opens``, whether a stay begins with it. By
    stay: ``stay_row`` and ``stay_end``, its first and last row. ``strict`` raises ``InputError``
    where work names requests, workers, clients or steps that cannot be; all other faults are for
    the checker to find.
    """

    def __init__(self, instance: Instance, schedule: Schedule, *, strict: bool = True) -> None:
        if strict:
            require_references(instance, schedule)
        self.instance, self.schedule = instance, schedule
        self.steps, self.work = schedule.steps, schedule.work
        self._lay_out_steps()
        self._read_rows(strict)
        self.opens = changes(self.request) | changes(self.stay)
        self.stay_row = np.flatnonzero(self.opens)
        self.stay_end: IntColumn = np.append(self.stay_row[1:], len(self.row)) - 1
        self.stay_end = self.stay_end[: len(self.stay_row)]
        self.stay_request: IntColumn = self.request[self.stay_row]

    def _lay_out_steps(self) -> None:
        steps = self.steps
        self.order = self.place = np.arange(len(steps))
        columns = [steps.worker, steps.phase, steps.start_ns, steps.end_ns, steps.rounds]
        self.in_order = bool((steps.worker[1:] >= steps.worker[:-1]).all())
        if not self.in_order:
            self.order = np.argsort(steps.worker, kind="stable")
            self.place = np.empty(len(steps), np.int64)
            self.place[self.order] = np.arange(len(steps))
            columns = [column[self.order] for column in columns]
        self.worker, self.phase, self.start_ns, self.end_ns, rounds = columns
        self.rounds: IntColumn = np.minimum(rounds, ROUNDS_CEILING)
        self.known: Mask = self.worker < len(self.instance.workers)

    def _read_rows(self, strict: bool) -> None:
        work, (first, last) = self.work, self.ends_of_rows
        columns = [work.request, work.stay, first, last, work.client, work.phase, work.tokens]
        self.row = np.arange(len(work))
        if not strict:
            if not self.sound.all():
                self.row = np.flatnonzero(self.sound)
                columns = [column[self.row] for column in columns]
            if not _ascending(*columns[:3]):
                order = np.lexsort(columns[2::-1])
                self.row, columns = self.row[order], [column[order] for column in columns]
        self.request, self.stay, self.first, self.last = columns[:4]
        self.client, self.row_phase, self.tokens = columns[4:]
        self.row_worker: IntColumn = self.worker[self.first]
        self.is_prefill: Mask = self.row_phase == PREFILL
        self.row_rounds: IntColumn = self._within(self.rounds_before)
        self.row_rounds[self.is_prefill] = 0

    def _within(self, sums: IntColumn) -> IntColumn:
        """Return what each row spans of some prefix sums."""
        spanned: IntColumn = sums[self.last + 1] - sums[self.first]
        return spanned

    # -- all rows, however wrong ------------------------------------------------------------

    @cached_property
    def ends_of_rows(self) -> tuple[IntColumn, IntColumn]:
        """Places of the first and last step of each row of ``Work``."""
        steps = self.work.first_step, self.work.last_step
        return steps if self.in_order else (self.place[steps[0]], self.place[steps[1]])

    @cached_property
    def misplaced(self) -> Mask:
        """Rows of ``Work`` whose phase does not go with that of the steps at their ends."""
        here, there = (self.phase.astype(np.int8)[place] for place in self.ends_of_rows)
        prefill = self.work.phase == PREFILL
        wrong: Mask = prefill & ((here == DECODE) | (there == DECODE))
        wrong |= ~prefill & ((here == PREFILL) | (there == PREFILL))
        return wrong

    @cached_property
    def sound(self) -> Mask:
        """Rows of ``Work`` that name a request and a run of steps of their phase, on one worker."""
        work, (first, last) = self.work, self.ends_of_rows
        ok: Mask = (work.request < len(self.instance)) & (first <= last)
        if len(self.worker) and self.worker[0] == self.worker[-1]:  # the only one
            ok &= self.known[0]
        else:
            ok &= self.known[first] & (self.worker[first] == self.worker[last])
        ok &= ~self.misplaced
        ok &= (work.phase != PREFILL) | (first == last)
        return ok

    # -- steps --------------------------------------------------------------------------------

    @cached_property
    def has_rounds(self) -> Mask:
        """Whether the step is a decode or a mixed step, by place."""
        return np.not_equal(self.phase, PREFILL)

    @cached_property
    def rounds_before(self) -> IntColumn:
        """Rounds before each place, and of all at the end."""
        return before(np.where(self.has_rounds, self.rounds, 0))

    @cached_property
    def time_before(self) -> IntColumn:
        """Durations of the steps before each place, and of all at the end."""
        return before(self.end_ns - self.start_ns)

    def heads(self) -> IntColumn:
        """First place of each worker, and the end of the last one's."""
        return np.searchsorted(self.worker, np.arange(len(self.instance.workers) + 1))

    @cached_property
    def presence(self) -> dict[int, tuple[Interval, ...]]:
        """When each worker that may be away is present: available, and on if autoscaled."""
        workers, rows = self.instance.workers, self.schedule.on_times
        if self.instance.autoscaling is None:
            return {i: each.available_ns for i, each in enumerate(workers) if each.available_ns}
        found: dict[int, list[Interval]] = {index: [] for index in range(len(workers))}
        for row in rows:
            if row.worker < len(workers):
                for begin, end in workers[row.worker].available_ns or ((0, None),):
                    ends = [each for each in (end, row.end_ns) if each is not None]
                    start, last = max(begin, row.start_ns), min(ends, default=None)
                    if last is None or start < last:
                        found[row.worker].append((start, last))
        never: Interval = (NEVER, None)
        return {index: tuple(own) or (never,) for index, own in found.items()}

    # -- rows ---------------------------------------------------------------------------------

    @cached_property
    def prefills(self) -> IntColumn:
        """The prefill rows."""
        return np.flatnonzero(self.is_prefill)

    @cached_property
    def decodes(self) -> IntColumn:
        """The decode rows."""
        return np.flatnonzero(self.row_phase == DECODE)

    @cached_property
    def invalids(self) -> IntColumn:
        """The invalid rows."""
        return np.flatnonzero(self.row_phase == INVALID)

    @cached_property
    def runs(self) -> IntColumn:
        """The decode and the invalid rows, in which a request is active in rounds."""
        return np.flatnonzero(~self.is_prefill) if len(self.invalids) else self.decodes

    @property
    def row_time_ns(self) -> IntColumn:
        """Durations of the steps that a row takes part in."""
        took = self.end_ns - self.start_ns
        within = self._within(before(np.where(self.has_rounds, took, 0)))
        within[self.prefills] = took[self.first[self.prefills]]
        return within

    @cached_property
    def moves(self) -> Mask:
        """Rows that are on another client or worker than the one before in the same stay."""
        return ~self.opens & (changes(self.client) | changes(self.row_worker))

    # -- stays --------------------------------------------------------------------------------

    @property
    def stay_of(self) -> IntColumn:
        """Stay of each row."""
        return np.cumsum(self.opens) - 1

    @cached_property
    def stay_first(self) -> IntColumn:
        """Place at which each stay begins."""
        return self.first[self.stay_row]

    @cached_property
    def stay_last(self) -> IntColumn:
        """Place of the last step of each stay."""
        return self.last[self.stay_end]

    @cached_property
    def stay_worker(self) -> IntColumn:
        """Worker of each stay."""
        return self.worker[self.stay_first]

    @cached_property
    def visits(self) -> tuple[IntColumn, IntColumn]:
        """First and last row of each visit: a stay, or the part of it on one client. In order of
        client, then place: visits of one client of one worker are neighbours."""
        begin, end = self.stay_row, self.stay_end
        if self.moves.any():
            begin = np.flatnonzero(self.opens | self.moves)
            end = np.append(begin[1:], len(self.row)) - 1
        key = self.client[begin] * len(self.worker) + self.first[begin]
        order = np.argsort(key, kind="stable")
        return begin[order], end[order]

    @cached_property
    def prefilled(self) -> IntColumn:
        """Tokens that each stay prefills."""
        return self._sum_of(np.where(self.is_prefill, self.tokens, 0))

    @cached_property
    def prefill_rows(self) -> IntColumn:
        """Number of prefill rows of each stay."""
        return self._sum_of(self.is_prefill.astype(np.int64))

    @cached_property
    def decode_rounds(self) -> IntColumn:
        """Rounds that yield each stay's tokens."""
        return self._sum_of(np.where(self.row_phase == DECODE, self.row_rounds, 0))

    def _sum_of(self, values: IntColumn) -> IntColumn:
        sums = before(values)
        return np.asarray(sums[self.stay_end + 1] - sums[self.stay_row])

    @cached_property
    def ordinal(self) -> IntColumn:
        """Place of each stay among those of its request, from 0."""
        index = np.arange(len(self.stay_request))
        heads = np.flatnonzero(changes(self.stay_request))
        return index - np.repeat(heads, np.diff(heads, append=len(index)))

    @cached_property
    def has_hits(self) -> bool:
        """Whether any row says that a prefix cache was hit."""
        return bool(self.work.hit.any())

    @cached_property
    def stay_hit(self) -> IntColumn:
        """Tokens that each stay says it found in a prefix cache."""
        return self.work.hit[self.row[self.stay_row]]

    @cached_property
    def finds(self) -> bool:
        """Whether any stay has tokens in its cache that it does not prefill."""
        return self.has_hits or self.schedule.transfers is not None

    @cached_property
    def stay_turn(self) -> IntColumn:
        """Place of each stay among those that begin in its first step, as it says."""
        return self.work.turn[self.row[self.stay_row]]

    def rule_of(self, worker: Worker) -> Eviction:
        """Return the eviction rule that was in force on a worker with a prefix cache."""
        if self.schedule.eviction is not None:
            return Eviction.from_dict(self.schedule.eviction)
        assert worker.memory is not None
        assert worker.memory.prefix_cache is not None
        return worker.memory.prefix_cache.rule


def changes(values: IntColumn) -> Mask:
    """Entries that differ from the one before; the first one does."""
    result = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=result[1:])
    return result


def _ascending(*columns: IntColumn) -> bool:
    """Return whether rows are in order of the columns, the first one first."""
    behind = np.zeros(max(len(columns[0]) - 1, 0), bool)
    for column in reversed(columns):
        behind &= column[1:] == column[:-1]
        behind |= column[1:] < column[:-1]
    return not behind.any()
