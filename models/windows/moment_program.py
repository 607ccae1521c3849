"""The linear program over paths as its moments move: solved again from the last basis.

The same program as ``PathProgram.relaxed``, as a flow of windows along the lengths of the requests:
a window counts at the longest request that it holds, or at the next longer one, which costs the
rounds that it lacks; from there windows go down the lengths free of charge and up at what is
missing. Moments stand in slots of which some are empty. To move a moment is to open an empty slot
and to close its own. The prices of the last solution say which windows the new moment would have:
with these the basis stays dual feasible, so that the dual simplex method goes on from it, and ends
as soon as the optimum is known to be above a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.models.windows.path_program import SPARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.models.windows.path_program import PathProgram

    Floats = NDArray[np.float64]

EMPTY_SLOTS = 10
SHIFTS = (-4, -3, -2, -1, 1, 2, 3, 4)  # rounds by which moments are shifted
LOWER, BASIC, UPPER = 0, 1, 2
FAR = 1e20
MOST_ITERATIONS = 600
"""Of the simplex method, for one change: hardly one that takes more is worth them."""
NEVER = -1e12  # worth of a window that there cannot be


class Change(NamedTuple):
    """What a slot has from now on: a moment's time and its capacity; 0 closes it."""

    slot: int
    time: int
    capacity: int


@dataclass(frozen=True)
class MomentPrices:
    """What the dual prices of a solution say about other moments. By how much V would fall at most
    for each token of capacity at each time before the end (``opening``; 0 where nothing can be
    gained), would rise at least for each token less in each slot in use (``room``), and would fall
    in each of these by each of ``SHIFTS`` if all windows were kept, at these prices (``shifting``,
    an estimate)."""

    opening: Floats
    room: dict[int, float]
    shifting: dict[tuple[int, int], float]


def can_set_bases() -> bool:
    """Return whether this PySCIPOpt takes a basis to begin from; from 6.2 on it does."""
    from pyscipopt import LP

    return hasattr(LP, "setBase")


class MomentProgram:
    """Moments, their capacities and the best fractional paths. ``capacity``: in the tokens of
    ``PathProgram``, 0 where a slot is empty; ``end``: R; ``value``: V under the best fractional
    paths; infinite where there are no paths."""

    def __init__(
        self, program: PathProgram, times: Sequence[int], capacity: Sequence[int], end: int
    ) -> None:
        """Take moments with their capacities, and solve."""
        self.program, self.end = program, end
        self.times = [*times, *[0] * EMPTY_SLOTS]  # of each slot
        self.capacity = [*capacity, *[0] * EMPTY_SLOTS]
        self.needs, self.counts = np.unique(program.lengths, return_counts=True)
        self.longest = int(self.needs[-1])
        spans = np.arange(self.longest + 1)
        self._held = np.searchsorted(self.needs, spans, side="right") - 1
        self._rows()
        self._columns()
        value = float(self.lp.solve(dual=True))
        self.value = value if self.lp.isOptimal() else math.inf
        self._keep()

    @property
    def used(self) -> list[int]:
        """Slots with a moment."""
        return [slot for slot, capacity in enumerate(self.capacity) if capacity]

    def moments(self) -> list[tuple[int, int]]:
        """Return times and capacities in order, those of one time together."""
        held: dict[int, int] = {}
        for slot in self.used:
            held[self.times[slot]] = held.get(self.times[slot], 0) + self.capacity[slot]
        return sorted(held.items())

    def empty(self, count: int) -> list[int]:
        """Return so many empty slots that can be opened, fewer if there are not that many."""
        slots = [slot for slot, capacity in enumerate(self.capacity) if not capacity]
        return [slot for slot in slots if self._is_clean(slot)][:count]

    def attempt(self, changes: Sequence[Change], limit: float) -> bool:
        """Make changes and keep them if V is at most a limit then; return whether it is."""
        before = [Change(c.slot, self.times[c.slot], self.capacity[c.slot]) for c in changes]
        used = self.used
        opened = [
            c for c, old in zip(changes, before, strict=True) if c.capacity > old.capacity == 0
        ]
        for change in opened:
            self._clear(change.slot)
        self._set(changes)
        columns, rows = list(self._basis[0]), list(self._basis[1])
        for change in opened:
            self._open(change, used, columns, rows)
        self.lp.setBase(columns, rows)
        self.lp.setRealParam(self._limit, limit)
        self.lp.setIntParam(self._iterations, MOST_ITERATIONS)
        value = float(self.lp.solve(dual=True))
        if not self.lp.isOptimal() or value > limit:
            self._set(before)
            return False
        self.value = value
        self._keep()
        return True

    def prices(self) -> MomentPrices:
        """Return what the last solution says about other moments."""
        into, out_of = self._into(), self._out_of()
        opening = np.maximum(0.0, self._duals[self._all_tokens] + self._per_token(into, out_of))
        costs = self.lp.getRedcost()
        room = {slot: max(0.0, -costs[self._holds[slot]]) for slot in self.used}
        return MomentPrices(opening, room, self._shifting())

    def _rows(self) -> None:
        """Add the rows, empty; note where each kind of them begins."""
        from pyscipopt import LP
        from pyscipopt.scip import PY_SCIP_LPPARAM

        self.lp: Any = LP("moments")
        self._limit, self._iterations = PY_SCIP_LPPARAM.OBJLIM, PY_SCIP_LPPARAM.LPITLIM
        slots, n, lengths = len(self.times), len(self.program.lengths), len(self.needs)
        tokens = float(n * self.program.tokens)
        self._flow, self._first, self._need = 0, slots, slots + 1
        self._count = self._need + lengths
        self._few, self._many = self._count + 1, self._count + 1 + slots
        self._all_tokens = self._many + slots
        needs = [float(count) for count in self.counts]
        low = [*[0.0] * slots, 0.0, *needs, float(n), *[-FAR] * slots, *[0.0] * slots, tokens]
        clients = float(self.program.clients)
        high = [*[0.0] * slots, clients, *[FAR] * lengths, float(n), *[0.0] * slots]
        high += [*[FAR] * slots, tokens]
        self.lp.addRows([[] for _ in low], low, high)

    def _columns(self) -> None:
        """Add first starts, capacities held, what goes along the lengths, and the windows."""
        slots, clients = range(len(self.times)), float(self.program.clients)
        entries: list[list[tuple[int, float]]] = []
        costs: list[float] = []
        most: list[float] = []

        def add(column: list[tuple[int, float]], cost: float, high: float) -> int:
            entries.append(column)
            costs.append(cost)
            most.append(high)
            return len(entries) - 1

        self._begins = [add([(k, -1.0), (self._first, 1.0)], 0.0, clients) for k in slots]
        self._holds = [
            add(
                [(self._few + k, -1.0), (self._many + k, -1.0), (self._all_tokens, 1.0)],
                0.0,
                float(self.capacity[k]),
            )
            for k in slots
        ]
        for at, lacking in enumerate(np.diff(self.needs).tolist()):
            here = self._need + at
            add([(here, 1.0), (here + 1, -1.0)], 0.0, FAR)
            add([(here, -1.0), (here + 1, 1.0)], float(lacking), FAR)
        self._windows: dict[tuple[int, int, bool], int] = {}
        self._now: dict[int, tuple[dict[int, float], float, float]] = {}
        for one in slots:
            for other in range(one + 1, len(self.times) + 1):
                for longer in (False, True):
                    column = self._window(one, other, longer)
                    at = add(sorted(column[0].items()), column[1], column[2])
                    self._windows[one, other, longer] = at
                    self._now[at] = column
        self.lp.addCols(entries, costs, [0.0] * len(entries), most)

    def _window(self, one: int, other: int, longer: bool) -> tuple[dict[int, float], float, float]:
        """Return the entries, the cost and the upper bound of the windows between two slots. The
        slot after the last one is the end. ``longer``: they count at the next longer request."""
        end = len(self.times)
        times, program = [*self.times, self.end], self.program
        if times[other] < times[one]:
            one, other = other, one
        span = times[other] - times[one]
        open_ = span > 0 and (span <= self.longest + SPARE or other == end)
        open_ = open_ and self.capacity[one] > 0 and (other == end or self.capacity[other] > 0)
        at, cost = int(self._held[min(span, self.longest)]), 0.0
        if longer and at + 1 < len(self.needs):
            at += 1
            cost = float(self.needs[at] - span)
        elif longer or at < 0:
            at, open_ = max(at, 0), False
        few = many = program.tokens
        if span >= self.longest:
            few, many = program.few_tokens, program.many_tokens
        entries = {one: 1.0, self._count: 1.0, self._need + at: 1.0}
        entries |= {self._few + one: float(few), self._many + one: float(many)}
        if other != end:
            entries[other] = -1.0
        return entries, cost, float(program.clients) if open_ else 0.0

    def _set(self, changes: Sequence[Change]) -> None:
        """Enter changes into the program."""
        for slot, time, capacity in changes:
            self.times[slot], self.capacity[slot] = time, capacity
            self.lp.chgBound(self._holds[slot], 0.0, float(capacity))
        beside = {*self.used, *(change.slot for change in changes), len(self.times)}
        for one, other in {self._pair(c.slot, k) for c in changes for k in beside - {c.slot}}:
            for longer in (False, True):
                self._rewrite(self._windows[one, other, longer], self._window(one, other, longer))

    def _rewrite(self, column: int, new: tuple[dict[int, float], float, float]) -> None:
        """Change what differs in a column; one that closes keeps its entries, which saves time."""
        old = self._now[column]
        if not new[2]:
            if old[2]:
                self.lp.chgBound(column, 0.0, 0.0)
                self._now[column] = (old[0], old[1], 0.0)
            return
        self._now[column] = new
        for row in old[0].keys() - new[0].keys():
            self.lp.chgCoef(row, column, 0.0)
        for row, value in new[0].items():
            if old[0].get(row) != value:
                self.lp.chgCoef(row, column, value)
        if old[1] != new[1]:
            self.lp.chgObj(column, new[1])
        if old[2] != new[2]:
            self.lp.chgBound(column, 0.0, new[2])

    def _others(self, slot: int) -> list[int]:
        """Return all other slots and the end."""
        return [other for other in range(len(self.times) + 1) if other != slot]

    @staticmethod
    def _pair(one: int, other: int) -> tuple[int, int]:
        return (one, other) if one < other else (other, one)

    def _keep(self) -> None:
        """Keep basis, prices and flow of the solution."""
        self._basis = tuple(map(list, self.lp.getBase()))
        self._duals = np.array(self.lp.getDual())
        self._flows = self.lp.getPrimal()
        needs, spans = self._duals[self._need : self._count], np.arange(self.longest + 1)
        held = np.where(self._held >= 0, needs[self._held], NEVER)
        above = np.minimum(self._held + 1, len(needs) - 1)
        longer = np.where(
            self._held + 1 < len(needs), needs[above] - (self.needs[above] - spans), NEVER
        )
        self._worth, self._counts_longer = np.maximum(held, longer), longer > held
        self._worth[0] = NEVER

    def _is_clean(self, slot: int) -> bool:
        """Return whether the basis has as many columns and rows of a slot as the slot has rows. No
        other columns are in these rows: then the rows can be basic in the columns' place."""
        columns, rows = self._basis
        basic = [columns[at] for at in self._columns_of(slot)].count(BASIC)
        own = (slot, self._few + slot, self._many + slot)
        return basic + [rows[row] for row in own].count(BASIC) == len(own)

    def _clear(self, slot: int) -> None:
        """Let the rows of an empty slot be basic, and none of its columns."""
        columns, rows = self._basis
        for column in self._columns_of(slot):
            columns[column] = LOWER
        for row in (slot, self._few + slot, self._many + slot):
            rows[row] = BASIC

    def _columns_of(self, slot: int) -> list[int]:
        pairs = [self._pair(slot, other) for other in self._others(slot)]
        windows = [self._windows[(*pair, longer)] for pair in pairs for longer in (False, True)]
        return [self._begins[slot], self._holds[slot], *windows]

    def _span_worth(self, spans: IntColumn) -> Floats:
        """Return what windows between moments are worth."""
        possible = (spans > 0) & (spans <= self.longest + SPARE)
        return np.where(possible, self._worth[np.clip(spans, 0, self.longest)], NEVER)

    def _into(self, used: Sequence[int] | None = None, times: IntColumn | None = None) -> Floats:
        """Return what a window to each time is worth at most: a row for each slot, and without."""
        times = np.arange(self.end) if times is None else times
        duals, program = self._duals, self.program
        values = [np.full(len(times), duals[self._first])]
        for slot in self.used if used is None else used:
            spans = times - self.times[slot]
            few, many = duals[self._few + slot], duals[self._many + slot]
            tokens = np.where(
                spans >= self.longest,
                program.few_tokens * few + program.many_tokens * many,
                program.tokens * (few + many),
            )
            values.append(duals[slot] + duals[self._count] + self._span_worth(spans) + tokens)
        return np.array(values)

    def _out_of(
        self, used: Sequence[int] | None = None, times: IntColumn | None = None
    ) -> tuple[Floats, IntColumn]:
        """Return what a window from each time is worth, and its tokens: the last row to the end."""
        times = np.arange(self.end) if times is None else times
        duals, worth, spans = self._duals, [], []
        for slot in self.used if used is None else used:
            spans.append(self.times[slot] - times)
            worth.append(duals[self._count] - duals[slot] + self._span_worth(spans[-1]))
        spans.append(self.end - times)
        worth.append(duals[self._count] + self._worth[np.minimum(spans[-1], self.longest)])
        tokens = np.where(
            np.array(spans) >= self.longest, self.program.few_tokens, self.program.tokens
        )
        return np.array(worth), tokens

    @staticmethod
    def _per_token(into: Floats, out_of: tuple[Floats, IntColumn]) -> Floats:
        """Return what a token of a start at each time is worth."""
        worth, tokens = out_of
        return np.asarray(((into.max(axis=0) + worth) / tokens).max(axis=0), np.float64)

    def _open(
        self, change: Change, used: Sequence[int], columns: list[int], rows: list[int]
    ) -> None:
        """Patch a basis for a slot that opens: the windows worth most to and from it are basic.
        With their prices no window of it improves the solution: the basis stays dual feasible."""
        slot, time, _ = change
        at = np.array([time])
        into = self._into(used, at)[:, 0]
        worth, tokens = (each[:, 0] for each in self._out_of(used, at))
        before, rates = int(into.argmax()), (into.max() + worth) / tokens
        after = int(rates.argmax())
        rows[slot], rows[self._few + slot] = LOWER, UPPER
        begin = self._begins[slot]
        if before:
            begin = self._window_between(
                slot, used[before - 1], time - self.times[used[before - 1]]
            )
        end = len(self.times)
        other = end if after == len(used) else used[after]
        until = self.end if other == end else self.times[other]
        columns[begin] = columns[self._window_between(slot, other, until - time)] = BASIC
        if self._duals[self._all_tokens] + rates.max() > 0:
            columns[self._holds[slot]] = UPPER

    def _window_between(self, slot: int, other: int, span: int) -> int:
        """Return the column of the windows of so many rounds between two slots."""
        longer = bool(self._counts_longer[min(span, self.longest)])
        return self._windows[(*self._pair(slot, other), longer)]

    def _shifting(self) -> dict[tuple[int, int], float]:
        """Return what shifts of moments gain with the windows that there are."""
        end = len(self.times)
        times = [*self.times, self.end]
        gains = dict.fromkeys(((slot, by) for slot in self.used for by in SHIFTS), 0.0)
        for (one, other, _), column in self._windows.items():
            flow = self._flows[column]
            if flow < 1e-9:
                continue
            begin, until = (one, other) if times[one] <= times[other] else (other, one)
            span = times[until] - times[begin]
            worth = self._worth[np.clip(span + np.array([0, *SHIFTS]), 0, self.longest)]
            for k, by in enumerate(SHIFTS):
                if until != end:
                    gains[until, by] += flow * (worth[1 + k] - worth[0])
                gains[begin, -by] += flow * (worth[1 + k] - worth[0])
        return gains
