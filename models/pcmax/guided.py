"""Packings where the linear program says which patterns count: belief propagation, then a search.
The duals at a capacity price each pattern; the loss of a pattern is what it is worth less than the
best one. All clients together lose exactly the gap, so that patterns of great loss are in few
packings or none. The others are listed, all of them as far as they are not too many, and weighed by
exp(-loss), so that the mean loss is what it must be. From there, belief propagation fixes patterns
until an exhaustive search can end it; other noise gives another attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.models.pcmax.belief_loops import FOUND, NONE
from orsched.models.pcmax.columns import linear_program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.stop import Clock
    from orsched.models.pcmax.columns import Columns, Gap
    from orsched.models.pcmax.patterns import Ints, Problem

    Flags = NDArray[np.bool_]
    Floats = NDArray[np.float64]


PATTERNS = 30_000
SEARCHED = 3_000  # most patterns to begin a search with
_FIRST_ROUNDS = 100
_ROUNDS = 4
_NOISE = 0.5
_LEAST_REACH = 2.0
"""Losses are listed up to a multiple of their mean: with less there is hardly a packing."""
_LESS = 0.8
_STEP = 3
_NODES = 20_000
_NODES_OF_A_PROOF = 10_000  # more would take the checker long
_LOOKS = 30_000_000
_DENOMINATOR = 60


@dataclass(frozen=True)
class Pool:
    """Patterns at a capacity, with what each loses of the gap; and whether it is all of them."""

    problem: Problem
    capacity: int
    priced: Gap
    patterns: Ints
    loss: Ints
    whole: bool

    @classmethod
    def of(cls, columns: Columns, capacity: int) -> Pool | None:
        """Return the patterns of least loss; None if they are too many, or there is no time."""
        priced = columns.least_gap(capacity)
        if priced is None or columns.problem.window(capacity).low <= 0:  # a client may be empty
            return None
        problem, clients = columns.problem, columns.problem.clients
        reach = float(clients)
        while reach >= _LEAST_REACH and not columns.clock.out():
            loss = int(priced.gap * reach / clients) if reach < clients else priced.gap
            patterns = columns.patterns_worth(capacity, priced, priced.most - loss, PATTERNS)
            if patterns is not None:
                lost = priced.most - patterns @ priced.duals
                return cls(
                    problem, capacity, priced, patterns.astype(np.int16), lost, loss == priced.gap
                )
            reach *= _LESS
        return None


class Guided:
    """Attempts at the capacity of a pool."""

    def __init__(self, pool: Pool, loops: Any, rng: np.random.Generator, clock: Clock) -> None:
        self.pool, self.loops, self.rng, self.clock = pool, loops, rng, clock
        self._weight = _weights(pool)
        self._settled: _State | None = None
        self.exhausted = False

    def attempt(self) -> list[Ints] | None:
        """Return the patterns of a packing, None if this attempt finds none. The first begins with
        a search without anything fixed, if the patterns are few; where they are all that there are
        and it ends, ``exhausted`` says that there is no packing."""
        first, searched = self._settled is None, self.pool.problem.clients
        if self._settled is None:
            self._settled, searched = _State.of(self.pool, self._weight), searched + _STEP
            if self._settled.possible():
                self._settled.settle(self.loops, _FIRST_ROUNDS)
        state = self._settled.copy()
        if not first:
            state.odds *= np.exp(_NOISE * self.rng.standard_normal(len(state.odds)))
            state.settle(self.loops, _ROUNDS)
        chosen: list[Ints] = []
        while state.left[-1] > 0 and state.possible() and not self.clock.out():
            if len(state.odds) <= SEARCHED and state.left[-1] <= searched - _STEP:
                searched = int(state.left[-1])
                verdict, cover, nodes = self._search(state)
                if verdict == FOUND:
                    return chosen + cover
                if verdict == NONE:
                    proof = not chosen and nodes <= _NODES_OF_A_PROOF
                    self.exhausted = proof and self.pool.whole
                    return None
            chosen.append(state.fix())
            state.settle(self.loops, _ROUNDS)
        return chosen if not state.left.any() else None

    def _search(self, state: _State) -> tuple[int, list[Ints], int]:
        """Search, likely patterns first; return what the loops say, the cover, and the nodes."""
        order = np.argsort(-state.odds, kind="stable")
        patterns, loss = state.patterns[order, :-1], state.loss[order]
        row, size = np.nonzero(patterns)
        times = patterns[row, size].astype(np.int64)
        start = np.searchsorted(row, np.arange(len(patterns) + 1))
        share = loss * _DENOMINATOR // patterns.sum(axis=1)
        left, cover = state.left[:-1].copy(), np.zeros(int(state.left[-1]) + 1, dtype=np.int64)
        work, budget = np.array([_NODES, _LOOKS]), state.budget * _DENOMINATOR
        losses = loss * _DENOMINATOR
        edges = (start, size, times)
        verdict = self.loops.search(*edges, losses, share, left, budget, work, cover)
        found = patterns[cover[1 : cover[0] + 1]].astype(np.int64)
        return int(verdict), list(found), _NODES - int(work[0])


class _State:
    """What is left during an attempt: sizes with the clients as the last, patterns, messages."""

    def __init__(self, **parts: Any) -> None:
        self.patterns: Ints = parts["patterns"]
        self.loss: Ints = parts["loss"]
        self.left: Ints = parts["left"]
        self.budget: int = parts["budget"]
        self.row: Ints = parts["row"]
        self.size: Ints = parts["size"]
        self.message: Floats = parts["message"]
        self.odds: Floats = parts["odds"]

    @classmethod
    def of(cls, pool: Pool, weight: Floats) -> _State:
        """Return the state to begin with: messages alike, odds as the weights say."""
        ones = np.ones((len(pool.patterns), 1), dtype=np.int16)
        patterns = np.hstack([pool.patterns, ones])
        left = np.append(pool.problem.counts, pool.problem.clients)
        size, row = np.nonzero(patterns.T)
        share = pool.problem.clients / float(weight.sum())
        message = share ** (1 / (patterns > 0).sum(axis=1))
        return cls(
            patterns=patterns,
            loss=pool.loss,
            left=left,
            budget=pool.priced.gap,
            row=row,
            size=size,
            message=message[row],
            odds=weight * share,
        )

    def copy(self) -> _State:
        """Return a state whose arrays that change are its own."""
        parts = dict(vars(self))
        for name in ("left", "message", "odds"):
            parts[name] = parts[name].copy()
        return _State(**parts)

    def possible(self) -> bool:
        """Whether a pattern is left for each job, and the budget is kept."""
        held = np.bincount(self.size, minlength=len(self.left)) > 0
        return self.budget >= 0 and bool(held[self.left > 0].all())

    def settle(self, loops: Any, rounds: int) -> None:
        """Pass messages."""
        start = np.searchsorted(self.size, np.arange(len(self.left) + 1))
        left = self.left.astype(np.float64)
        loops.pass_messages(start, self.row, left, self.message, self.odds, rounds)

    def fix(self) -> Ints:
        """Fix the likeliest pattern, drop what does not fit beside it; return it."""
        best = int(self.odds.argmax())
        pattern = self.patterns[best].astype(np.int64)
        self.left = self.left - pattern
        self.budget -= int(self.loss[best])
        took = np.flatnonzero(pattern)
        keep = (self.patterns[:, took] <= self.left[took]).all(axis=1) & (self.loss <= self.budget)
        number = np.cumsum(keep) - 1
        edges = keep[self.row]
        self.row, self.size = number[self.row[edges]], self.size[edges]
        self.message, self.odds = self.message[edges], self.odds[keep]
        self.patterns, self.loss = self.patterns[keep], self.loss[keep]
        chosen: Ints = pattern[:-1]
        return chosen


def _weights(pool: Pool) -> Floats:
    """Return exp(-loss), in a unit of loss that makes its mean a client's share of the gap."""
    mean, least = pool.priced.gap / pool.problem.clients, 0.0
    most = 1e3 / max(mean, 1e-9)
    for _ in range(60):
        unit = (least + most) / 2
        weight: Floats = np.exp(-unit * (pool.loss - pool.loss.min()))
        if float((weight * pool.loss).sum()) > mean * float(weight.sum()):
            least = unit
        else:
            most = unit
    return weight


TREE_PATTERNS, NODES = 2_500, 400
MORE_PATTERNS, MORE_NODES = 5_000, 1_500
"""Where dives and attempts have led nowhere; a node of so many patterns takes 0.1 s."""
_SCALE = 10**8
_PRICE = 2.0
_INFINITY = 1e20
_WHOLE = 1e-6
_CANDIDATES = 6


Node = list[list[int] | None]
"""Integers for the sizes, and the sizes of the two jobs to branch on (none at a leaf)."""


class _Relaxed(NamedTuple):
    value: float
    duals: Floats
    shares: Floats


class Tree:
    """A proof by branching on the patterns of a pool that holds all: two jobs together, or apart.
    At each node the linear program over the patterns that are left gives a number to each size, of
    either sign, for every job is covered exactly once. Rounded to integers they drop patterns, or
    prove that the node holds no packing. The branch is that of Ryan and Foster (1981): it leaves a
    set of patterns and needs no other pricing."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self.clock, self.clients = clock, pool.problem.clients
        self.sizes, self.counts = pool.problem.sizes, pool.problem.counts
        self.patterns = pool.patterns.astype(np.int64)
        self.nodes: list[Node] = []  # the proof in preorder, together before apart
        self.found: list[Ints] | None = None  # the patterns of a packing, if there is one
        self._open = np.ones(len(self.patterns), dtype=bool)
        self._lp = linear_program("tree")
        counts = self.counts.astype(float).tolist()
        self._lp.addRows([[] for _ in counts], lhss=counts, rhss=counts)
        unit = [[(k, 1.0)] for k in range(len(counts))]
        self._add(unit, _PRICE)
        self._add([[(int(k), float(p[k])) for k in np.flatnonzero(p)] for p in self.patterns], 1.0)

    def _add(self, columns: list[list[tuple[int, float]]], price: float) -> None:
        n = len(columns)
        self._lp.addCols(columns, objs=[price] * n, lbs=[0.0] * n, ubs=[_INFINITY] * n)

    def run(self, most_nodes: int = NODES) -> bool:
        """Search; return whether ``nodes`` prove that there is no packing."""
        stack = [self._open.copy()]
        while stack:
            if len(self.nodes) >= most_nodes or self.clock.out():
                return False
            usable = stack.pop()
            relaxed = self._solve(usable)
            duals, usable = self._drop(relaxed.duals, usable)
            if not usable.any():
                self.nodes.append([duals, None])
                continue
            whole = np.abs(relaxed.shares - np.round(relaxed.shares)).max() < _WHOLE
            if whole and relaxed.value <= self.clients + _WHOLE:
                copies = np.round(relaxed.shares).astype(np.int64)
                if (copies @ self.patterns == self.counts).all() and copies.sum() <= self.clients:
                    self.found = list(np.repeat(self.patterns, copies, axis=0))
                    return False
            pair = self._branch(relaxed, usable)
            if pair is None:
                return False
            i, j = pair
            self.nodes.append([duals, [int(self.sizes[i]), int(self.sizes[j])]])
            together, apart = self._sides(usable, i, j)
            stack += [apart, together]
        return True

    def _solve(self, usable: Flags) -> _Relaxed:
        offset = len(self.counts)
        for column in np.flatnonzero(usable != self._open).tolist():
            upper = _INFINITY if usable[column] else 0.0
            self._lp.chgBound(offset + column, 0.0, upper)
        self._open = usable.copy()
        value = float(self._lp.solve())
        shares = np.array(self._lp.getPrimal())[offset:]
        return _Relaxed(value, np.array(self._lp.getDual()), shares)

    def _drop(self, duals: Floats, usable: Flags) -> tuple[list[int], Flags]:
        """Return the integers, and which patterns are in a packing yet, as they prove it."""
        whole = np.round(duals * _SCALE).astype(np.int64)
        worth = self.patterns @ whole
        most = int(worth[usable].max()) if usable.any() else 0
        gap = self.clients * most - int(whole @ self.counts)
        return whole.tolist(), usable & (worth >= most - gap) & (gap >= 0)

    def _sides(self, usable: Flags, i: int, j: int) -> tuple[Flags, Flags]:
        """Return the patterns that have both jobs or none, and those that have not both."""
        first, second = self.patterns[:, i] > 0, self.patterns[:, j] > 0
        return usable & (first == second), usable & ~(first & second)

    def _branch(self, relaxed: _Relaxed, usable: Flags) -> tuple[int, int] | None:
        """Return the pair of single jobs whose two branches raise the value most."""
        shares = np.where(usable, relaxed.shares, 0.0)
        some = np.flatnonzero(shares > _WHOLE)
        held = self.patterns[some].astype(float)
        both = (held * shares[some, None]).T @ held
        single = self.counts == 1
        both[~single] = both[:, ~single] = 0.0
        i, j = np.triu_indices(len(both), 1)
        share = both[i, j]
        mixed = np.flatnonzero((share > _WHOLE) & (share < 1 - _WHOLE))
        if not len(mixed):
            return None
        order = mixed[np.argsort(np.abs(share[mixed] - 0.5), kind="stable")]
        best: tuple[float, int] | None = None
        for at in order[:_CANDIDATES].tolist():
            rises = [
                self._solve(side).value - relaxed.value
                for side in self._sides(usable, int(i[at]), int(j[at]))
            ]
            score = max(min(rises), 1e-9) * max(max(rises), 1e-9)
            if best is None or score > best[0]:
                best = (score, at)
        assert best is not None
        return int(i[best[1]]), int(j[best[1]])
