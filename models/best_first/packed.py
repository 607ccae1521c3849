"""The best-first search over packed plain states."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.best_first import expansion
from orsched.models.best_first.arrays import (
    BEST,
    BOUND,
    COUNTS,
    EXPANDED,
    FOUND,
    LEFT_OUT,
    NODES,
    OPEN,
    Bins,
    Case,
    Store,
    bits_of,
    shifts_of,
)
from orsched.models.full_mip.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.models.best_first.states import States

_WORD = 62
"""Bits of a state's two numbers, at most."""
_MOST_ROUNDS = 100_000
_FIRST_NODES = 1 << 16
_FIRST_STEP, _MOST_STEP = 64, 1 << 10


def fits(states: States) -> bool:
    """Return whether a state space can be packed: plain, and small enough."""
    if not states.is_plain or states.round < 1 or not any(states.start):
        return False
    bits = bits_of(states.kinds[0].rounds)
    rounds = sum(
        kind.rounds * count for kind, count in zip(states.kinds, states.start, strict=True)
    )
    wide = states.clients * bits < _WORD and shifts_of(states.start)[-1] <= _WORD
    return wide and rounds <= _MOST_ROUNDS


class Packed:
    """What ``BestFirst`` is, over arrays: the same attributes, ``run`` and ``plan``.

    Args:
        states: for which ``fits`` is true.
        best: time of the incumbent.
        bound: no schedule takes less.
        most_states: nodes that are kept at most.
        weights: sets of weights, whole numbers from 0 on, by rounds.
        engine: the module of the expansion, plain or compiled.
    """

    def __init__(
        self,
        states: States,
        best: int,
        bound: int,
        most_states: int,
        weights: Sequence[dict[int, int]] = (),
        engine: Any = expansion,
    ) -> None:
        self.states, self.engine, self.most_states = states, engine, most_states
        one_by_one = sum(
            count * (states.levels[0][1] + states.round * kind.rounds)
            for kind, count in zip(states.kinds, states.start, strict=True)
        )
        self.none, self._known = best, min(best, one_by_one + 1)
        self.case = _case(states, self._known // states.round, weights)
        self.at = np.zeros(COUNTS, np.int64)
        self.at[[BEST, BOUND, FOUND]] = self._known, bound, -1
        self.room = states.first_stages + 2
        self.store = _store(max(_FIRST_NODES, 4 * self.room))

    @property
    def best(self) -> int:
        """Time of the incumbent."""
        return int(self.at[BEST]) if self.at[FOUND] >= 0 else self.none

    @property
    def bound(self) -> int:
        """No schedule takes less."""
        return int(self.at[BOUND])

    @property
    def expanded(self) -> int:
        """How many states were expanded."""
        return int(self.at[EXPANDED])

    @property
    def left_out(self) -> int:
        """How many states were left out."""
        return int(self.at[LEFT_OUT])

    def beat(self, best: int) -> None:
        """Go on below the time of a better incumbent that was found elsewhere."""
        self.none, self.at[BEST], self.at[FOUND] = best, best, -1

    def run(self, out_of_time: Callable[[], bool], improved: Callable[[], bool]) -> str:
        """Search; arguments and answer as those of ``BestFirst.run``."""
        self._start()
        step = _FIRST_STEP
        space = np.zeros((9, max(len(self.case.rounds), self.case.clients) + 1), np.int64)
        bins = bins_of(self.case)
        while True:
            why = self.engine.advance(self.case, self.store, self.at, step, self.room, space, bins)
            if why == expansion.FINISHED:
                self.at[BOUND] = self.best
                return "finished"
            if why == expansion.IMPROVED and improved():
                return "stopped"
            if self.at[NODES] > self.most_states:
                return "too_large"
            if out_of_time():
                return "time_limit"
            if why == expansion.FULL:
                self.grow()
            step = min(2 * step, _MOST_STEP)

    def _start(self) -> None:
        case, plain = self.case, expansion
        waiting = sum(
            count << shift
            for count, shift in zip(case.counts.tolist(), case.shifts.tolist(), strict=False)
        )
        slot = plain.find(self.store, waiting, 0, 0)
        self.store.known[slot] = plain.add(self.store, self.at, -1, waiting, 0, 0, 0)
        plain.push(self.store, self.at, self.bound * (int(case.counts.sum()) + 1), 0)

    def grow(self) -> None:
        """Give the store twice the room."""
        old, nodes = self.store, int(self.at[NODES])
        new = _store(2 * len(old.waiting))
        for name in (
            "waiting",
            "active",
            "spent",
            "since",
            "before",
            "below",
            "rounds",
            "blocks",
            "closed",
        ):
            getattr(new, name)[:nodes] = getattr(old, name)[:nodes]
        size = int(self.at[OPEN])
        new.keys[:size], new.open[:size] = old.keys[:size], old.open[:size]
        self.store = new
        self.engine.rehash(new, nodes, old.fronts)

    def plan(self) -> Plan | None:
        """Return the plan of the best end found, or None where none beats the first incumbent."""
        node = int(self.at[FOUND])
        if node < 0:
            return None
        way = [node]
        while (node := int(self.store.before[node])) >= 0:
            way.append(node)
        way.reverse()
        rows = [list(each) for each in self.states.rows]
        stage, rounds = [0] * sum(map(len, rows)), list[int]()
        for before, after in pairwise(way):
            passed = int(self.store.spent[after] - self.store.spent[before])
            started = int(self.store.waiting[before] - self.store.waiting[after])
            if started:
                for kind, count in zip(rows, self._counts(started), strict=True):
                    for _ in range(count):
                        stage[kind.pop(0)] = len(rounds)
                rounds.append(0)
                passed -= self.case.stage
            rounds[-1] += passed // self.case.round
        rounds[-1] += int(self.store.active[way[-1]]) >> (self.case.bits * (self.case.clients - 1))
        return Plan(tuple(stage), None, tuple(rounds))

    def _counts(self, waiting: int) -> list[int]:
        shifts = self.case.shifts.tolist()
        return [(waiting >> low) & ((1 << (high - low)) - 1) for low, high in pairwise(shifts)]


def _case(states: States, most: int, weights: Sequence[dict[int, int]]) -> Case:
    rounds = [kind.rounds for kind in states.kinds]
    most = min(most, sum(r * count for r, count in zip(rounds, states.start, strict=True))) + 1
    rows = [rounds, *([each.get(r, 0) for r in rounds] for each in weights)]
    holds = np.zeros((len(rows), most + 1), np.int64)
    for row, held in zip(rows, holds, strict=True):
        for weight, length, count in zip(row, rounds, states.start, strict=True):
            for _ in range(min(count, most // length)):
                np.maximum(held[length:], held[: most + 1 - length] + weight, out=held[length:])
    numbers = [np.array(each, np.int64) for each in (rounds, states.start, shifts_of(states.start))]
    stage = states.levels[0][1]
    bits = bits_of(rounds[0])
    lengths, counts, shifts = numbers
    table = np.array(rows, np.int64)
    return Case(states.clients, states.round, stage, bits, lengths, counts, shifts, table, holds)


def bins_of(case: Case) -> Bins:
    """Return room to fill the clients of a case."""
    kinds = len(case.rounds)
    stock, rests, slacks = (np.zeros(size, np.int64) for size in (kinds, *(case.clients,) * 2))
    taken, sums = (np.zeros((case.clients, size), np.int64) for size in (kinds, kinds + 1))
    return Bins(stock, taken, sums, rests, slacks)


def _store(size: int) -> Store:
    table = 1 << (2 * size - 1).bit_length()
    waiting, active, spent, since, keys = (np.empty(size, np.int64) for _ in range(5))
    before, below, rounds, blocks, nodes = (np.empty(size, np.int32) for _ in range(5))
    known, fronts = (np.full(table, -1, np.int32) for _ in range(2))
    closed = np.empty(size, np.int8)
    return Store(
        waiting,
        active,
        spent,
        since,
        before,
        below,
        rounds,
        blocks,
        closed,
        keys,
        nodes,
        known,
        fronts,
    )
