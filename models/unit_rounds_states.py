"""All schedules of unit rounds, round by round, without those that cannot be the best.

A state says who has started, and what those who run will hold in the rounds to come. In every
round each state is followed by one for each set of requests that may start in it. Left out are:

- states whose bound is not below the best schedule known: what those who have started pay for the
  rounds that they are in (``orsched.certificates.unit_rounds``), the least that the others will,
  each of which starts no earlier than it fits beside those who run, and prices of what nobody uses;
- states beside one with the same requests started, no more cost, and no more held in any round,
  as far as the others could use it;
- states in which a request has ended that could have started a round earlier, and those that idle
  when all have arrived: such schedules are not the best.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.unit_rounds import constant, costs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from orsched.certificates.unit_rounds import Prices, UnitRounds

    Ints = NDArray[np.int64]
    _Loops = tuple[Callable[..., None], Callable[..., None]]
    Shorts = NDArray[np.int16]

MAX_REQUESTS = 62
"""They are bits of a whole number."""
MAX_MEMORY = 16_000
"""Tokens held are short numbers, and so are the sums of two of them."""
MAX_STATES = 1_000_000
_PLAIN_STATES = 20_000
"""States of a round where nothing is compiled."""
_CHUNK = 20_000
"""States after which the clock is looked at."""
_GROUP = 2_000
"""Later states with which each one is compared."""
_PLAIN = 6
"""Requests up to which loading what numba has compiled takes longer than the search."""


@dataclass
class _States:
    """A column for each part of a state, a row for each state.

    Attributes:
        started: a bit for each request.
        cost: sum of starts.
        spent: prices of those that have started, and of what nobody has used in past rounds.
        paid: least total price of all schedules that come from the state.
        early: bits of those that run and could have started a round earlier, as far as is known.
        now: tokens held in the round that has just ended.
        held: tokens held in the rounds to come, if nobody else starts.
        starts: the round in which each request has started; -1 if it has not.
    """

    started: Ints
    cost: Ints
    spent: Ints
    paid: Ints
    early: Ints
    now: Shorts
    held: Shorts
    starts: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.started)

    def taken(self, rows: NDArray[Any]) -> _States:
        """Return the states of some rows."""
        return _States(*(getattr(self, each.name)[rows] for each in fields(self)))

    def joined(self, other: _States) -> _States:
        """Return these states and others."""
        names = [each.name for each in fields(self)]
        return _States(*(np.concatenate([getattr(self, n), getattr(other, n)]) for n in names))

    def waits(self, i: int) -> NDArray[np.bool_]:
        """Return in which states a request has not started."""
        free: NDArray[np.bool_] = (self.started >> i) & 1 == 0
        return free


class StateSearch:
    """Finds the best schedule, or how far the bound has come.

    Attributes:
        best: the least sum of starts that is known.
        starts: of the schedule that has it.
        bound: no schedule has a smaller sum.

    Args:
        problem: at most ``MAX_REQUESTS`` requests and ``MAX_MEMORY`` tokens.
        prices: of rounds; better ones leave more out.
        known: starts of a feasible schedule.
        most: states of a round, beyond which the search ends.
        width: states of a round of which no more are kept, those with the least bounds: a search
            for a good schedule, which proves it to be the best only where all were kept.
    """

    def __init__(
        self,
        problem: UnitRounds,
        prices: Prices,
        known: list[int],
        most: int = MAX_STATES,
        width: int | None = None,
    ) -> None:
        self.problem, self.best, self.starts = problem, sum(known), known
        self.most, self.width, self.all_kept = most, width, True
        self.bound, self.scale, self.worth = 0, prices.scale, constant(problem, prices)
        n, longest = len(problem), max(problem.outputs)
        self.rounds = max(problem.arrivals) + sum(problem.outputs) + longest + 2
        priced = max(len(prices.memory), max(problem.arrivals) + 1)
        self.rounds = max(self.rounds, priced)
        self.table = np.tile(np.arange(self.rounds, dtype=np.int64) * prices.scale, (n, 1))
        self.table[:, :priced] = costs(problem, prices, priced)
        self.least = np.minimum.accumulate(self.table[:, ::-1], axis=1)[:, ::-1].copy()
        self.prices = np.zeros(self.rounds + longest, np.int64)
        self.prices[: len(prices.memory)] = prices.memory
        self.tokens = np.zeros((n, longest), np.int16)
        for i, (prompt, output) in enumerate(zip(problem.prompts, problem.outputs, strict=True)):
            self.tokens[i, :output] = prompt + np.arange(1, output + 1)
        rows = list(zip(problem.prompts, problem.outputs, problem.arrivals, strict=True))
        self.twins = [max((j for j in range(i) if rows[j] == rows[i]), default=-1)
                      for i in range(n)]  # fmt: skip
        self.columns = tuple(np.array(column) for column in zip(*rows, strict=True))

    def run(self, time_limit: float | None = None) -> bool:
        """Return whether the best schedule is known now; time in seconds."""
        self.end = None if time_limit is None else monotonic() + time_limit
        self.loops: _Loops = (bounds, dominated) if len(self.problem) <= _PLAIN else _compiled()
        most = self.most if self.loops[0] is not bounds else min(self.most, _PLAIN_STATES)
        states = self._first()
        for t in range(self.rounds):
            for i, arrival in enumerate(self.problem.arrivals):
                if len(states) > most or self._late():
                    return self._stopped(states)
                if t >= arrival:
                    states = self._start(states, i, t)
            states = self._ended(states)
            following = self._next(states, t)
            if following is None:
                return self._stopped(states)
            states = following
            if not len(states):
                break
        self.bound = self.best if self.all_kept else 0
        return self.all_kept

    def _late(self) -> bool:
        return self.end is not None and monotonic() > self.end

    def _stopped(self, states: _States) -> bool:
        """Every schedule better than the best one comes from one of these states."""
        if self.all_kept:
            least = int(states.paid.min(initial=self.best * self.scale))
            self.bound = min(self.best, -(-least // self.scale))
        return self.bound == self.best

    def _first(self) -> _States:
        """Return the state in which nobody has started."""
        n, longest = self.tokens.shape
        zero = np.zeros(1, np.int64)
        states = _States(
            zero, zero, zero, zero, zero, np.zeros(1, np.int16),
            np.zeros((1, longest), np.int16), np.full((1, n), -1, np.int32),
        )  # fmt: skip
        states.paid, _ = self._bounds(states, 0)
        return states

    def _start(self, states: _States, i: int, t: int) -> _States:
        """Return the states, and those in which a request starts in round t on top of them."""
        add = int(self.table[i, t] - self.least[i, t])
        can = states.waits(i) & (states.paid + add <= (self.best - 1) * self.scale)
        if self.twins[i] >= 0:  # of two that are the same the first one starts first
            can &= ~states.waits(self.twins[i])
        output = self.problem.outputs[i]
        rows = np.nonzero(can)[0]
        holds = states.held[rows, :output] + self.tokens[i, :output]
        rows = rows[(holds <= self.problem.memory).all(axis=1)]
        if not len(rows):
            return states
        new = states.taken(rows)
        bit = np.int64(1) << i
        new.started, new.cost = new.started | bit, new.cost + t
        new.spent, new.paid = new.spent + self.table[i, t], new.paid + add
        new.held = new.held + self.tokens[i]
        new.starts[:, i] = t
        if t > self.problem.arrivals[i]:
            first = self.problem.prompts[i] + 1
            new.early |= np.where(new.now + first <= self.problem.memory, bit, 0)
        return states.joined(new)

    def _ended(self, states: _States) -> _States:
        """Take down the best of the states in which all have started; return the others."""
        done = states.started == (1 << len(self.problem)) - 1
        if done.any():
            rows = np.nonzero(done)[0]
            row = rows[states.cost[rows].argmin()]
            if states.cost[row] < self.best:
                self.best, self.starts = int(states.cost[row]), states.starts[row].tolist()
        return states.taken(~done)

    def _next(self, states: _States, t: int) -> _States | None:
        """Return the states of the next round that may lead to the best; None: out of time."""
        idle = states.held[:, 0] == 0
        # Where someone is still to arrive it may be best to idle, for a later start to be earlier.
        out = idle if t >= max(self.problem.arrivals) else np.zeros(len(states), bool)
        for i, output in enumerate(self.problem.outputs):
            ends = (states.starts[:, i] >= 0) & (states.starts[:, i] + output == t + 1)
            out = out | (ends & ((states.early >> i) & 1 == 1))
        states = states.taken(~out)
        states.now = states.held[:, 0]
        states.early = np.where(states.now == self.problem.memory, 0, states.early)
        free = self.problem.memory - states.now.astype(np.int64)
        states.spent = states.spent + self.prices[t + 1] * free
        states.held = np.concatenate(
            [states.held[:, 1:], np.zeros((len(states), 1), np.int16)], axis=1
        )
        states.paid, usable = self._bounds(states, t + 1)
        if self._late():
            return None
        keep = states.paid <= (self.best - 1) * self.scale
        states, usable = states.taken(keep), usable[keep]
        order = np.lexsort((states.paid, states.cost, states.started))
        worse = np.zeros(len(states), bool)
        self.loops[1](order, states.started, usable, worse, _GROUP)
        states = states.taken(~worse)
        if self.width is not None and len(states) > self.width:
            states = states.taken(np.sort(np.argpartition(states.paid, self.width)[: self.width]))
            self.all_kept = False
        return states

    def _bounds(self, states: _States, t: int) -> tuple[Ints, Shorts]:
        """Return what is paid at least, and what is held as far as the others could use it."""
        usable = states.held.copy()
        rest = np.zeros(len(states), np.int64)
        for first in range(0, len(states), _CHUNK):
            rows = slice(first, first + _CHUNK)
            self.loops[0](
                states.started[rows], states.held[rows], t, *self.columns, self.problem.memory,
                self.least, self.prices, usable[rows], rest[rows],
            )  # fmt: skip
            if self._late():
                break
        return states.spent + rest - self.worth, usable


def bounds(
    started: Ints,
    held: Shorts,
    t: int,
    prompts: Ints,
    outputs: Ints,
    arrivals: Ints,
    memory: int,
    least: Ints,
    prices: Ints,
    usable: Shorts,
    rest: Ints,
) -> None:
    """Find what those who wait pay at least, and raise what is held where they cannot use the rest.

    Args:
        started, held: of each state, before anyone starts in round t.
        t: the round.
        prompts, outputs, arrivals: by request.
        memory: tokens.
        least: by request and round, least price of a start in it or later.
        prices: of a token in each round.
        usable: by state, as ``held``, changed.
        rest: by state, changed.
    """
    n, reach = prompts.size, held.shape[1]
    begins = np.zeros(n, np.int64)
    for row in range(started.size):
        total = 0
        for i in range(n):
            begins[i] = -1
            if (started[row] >> i) & 1:
                continue
            start, age = max(t, arrivals[i]), outputs[i]
            while age:  # from its last round back, until every one fits
                place = start + age - t - 1
                free = memory - prompts[i] - (held[row, place] if place < reach else 0)
                if age <= free:
                    age -= 1
                    continue
                start += age - max(free, 0)  # the first start with which that round does fit
                age = outputs[i]
            begins[i] = start
            total += least[i, start]
        for place in range(reach):
            most, fewest = 0, memory + 1
            for i in range(n):
                if 0 <= begins[i] <= t + place:
                    fewest = min(fewest, prompts[i] + 1)
                    most += prompts[i] + min(t + place + 1 - begins[i], outputs[i])
            free = memory - held[row, place]
            lost = free if free < fewest else max(free - most, 0)
            usable[row, place] = held[row, place] + lost
            total += prices[t + 1 + place] * lost
        rest[row] = total


def dominated(
    order: Ints, started: Ints, usable: Shorts, worse: NDArray[np.bool_], group: int
) -> None:
    """Find the states beside which another one is no worse.

    Args:
        order: of the states, by who has started, then by cost.
        started, usable: of each state.
        worse: by state, changed.
        group: how many later states each one is compared with.
    """
    for first in range(order.size):
        a = order[first]
        if worse[a]:
            continue
        for second in range(first + 1, min(order.size, first + 1 + group)):
            b = order[second]
            if started[a] != started[b]:
                break
            if worse[b]:
                continue
            no_more = True
            for place in range(usable.shape[1]):
                if usable[a, place] > usable[b, place]:
                    no_more = False
                    break
            if no_more:
                worse[b] = True


@cache
def _compiled() -> _Loops:
    """Return the two loops, compiled where numba is there; numba keeps them for the next time."""
    try:
        import numba
    except ImportError:
        return bounds, dominated
    keep = numba.njit(cache=True)
    return keep(bounds), keep(dominated)
