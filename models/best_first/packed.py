"""The best-first search over packed plain states, in plain Python or compiled."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.best_first import expansion, packed_bounds
from orsched.models.best_first.packed_bounds import (
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
)  # fmt: skip
from orsched.models.compiled_kernels import Kernels, compiled_copies
from orsched.models.exact_search.best_first import NO_COST, plan_of_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.models.best_first.states import States
    from orsched.models.exact_search.stage_plan import Plan

_WORD = 62  # bits of a state's two numbers, at most
_MOST_ROUNDS = 100_000
_FIRST_NODES = 1 << 16
_BY_NODE = Store._fields.index("keys")  # arrays with an entry for each node: those before the heap
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
    """What ``BestFirst`` is, over arrays: the same attributes but for nodes, ``run`` and ``plan``;
    for ``states`` for which ``fits`` is true. ``best``: time of the incumbent; ``bound``: no
    schedule takes less; ``weights``: sets of whole numbers from 0 on, by rounds; ``engine``: the
    module of the expansion, plain or compiled."""

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
                if self.best < NO_COST:
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
        for array, grown in zip(old[:_BY_NODE], new[:_BY_NODE], strict=True):
            grown[:nodes] = array[:nodes]
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
        steps: list[tuple[list[int] | None, int]] = []
        for before, after in pairwise(way):
            passed = int(self.store.spent[after] - self.store.spent[before])
            started = int(self.store.waiting[before] - self.store.waiting[after])
            if started:
                passed -= self.case.stage
            steps.append((self._counts(started) if started else None, passed // self.case.round))
        rest = int(self.store.active[way[-1]]) >> (self.case.bits * (self.case.clients - 1))
        return plan_of_steps(self.states.rows, steps, rest)

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
    taken = np.zeros((case.clients, kinds), np.int64)
    words = case.holds.shape[1] // packed_bounds.WORD + 1
    sums = np.zeros((case.clients, kinds + 1, words), np.int64)
    return Bins(stock, taken, sums, rests, slacks)


def _store(size: int) -> Store:
    table = 1 << (2 * size - 1).bit_length()
    waiting, active, spent, since, keys = (np.empty(size, np.int64) for _ in range(5))
    before, below, rounds, blocks, nodes = (np.empty(size, np.int32) for _ in range(5))
    known, fronts = (np.full(table, -1, np.int32) for _ in range(2))
    closed = np.empty(size, np.int8)
    return Store(
        waiting, active, spent, since, before, below, rounds, blocks, closed,
        keys, nodes, known, fronts,
    )  # fmt: skip


def bits_of(greatest: int) -> int:
    """Return how many bits hold whole numbers up to this one."""
    return max(1, greatest.bit_length())


def shifts_of(counts: Sequence[int]) -> list[int]:
    """Return where each kind's number begins; one more, where the last one ends."""
    shifts = [0]
    for count in counts:
        shifts.append(shifts[-1] + bits_of(count))
    return shifts


_ENGINES: list[Kernels] = []


def engine(example: States) -> Kernels:
    """Return the kernels of this process; the first call starts to load them, by an example."""
    if not _ENGINES:
        what = "the best-first search, it runs slower"
        _ENGINES.append(Kernels(lambda: _compiled(example), what))
    return _ENGINES[0]


def _compiled(example: States) -> Any:
    # Without nrt, which only allocation needs, no references are counted: several times faster.
    module = compiled_copies(packed_bounds, expansion, _nrt=False)
    search = Packed(example, 2**60, 0, 2**60, engine=module)
    search.run(lambda: True, lambda: False)  # the first call compiles
    search.grow()
    return module
