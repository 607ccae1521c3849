"""Packings where the linear program says which patterns count: belief propagation, then a search.

The duals at a capacity price each pattern; the loss of a pattern is what it is worth less than the
best one. All clients together lose exactly the gap, so that patterns of great loss are in few
packings or none. The others are listed, all of them as far as they are not too many, and weighed
by exp(-loss), so that the mean loss is what it must be. From there, belief propagation fixes
patterns until an exhaustive search can end it; other noise gives another attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.pcmax.belief_propagation import FOUND, NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.stop import Clock
    from orsched.models.pcmax.columns import Columns, Gap
    from orsched.models.pcmax.entropy import Patterns
    from orsched.models.pcmax.knapsack import Ints
    from orsched.models.pcmax.problem import Problem

    Floats = NDArray[np.float64]

PATTERNS = 30_000
SEARCHED = 3_000
"""Most patterns to begin a search with."""
_FIRST_ROUNDS = 100
_ROUNDS = 4
_NOISE = 0.5
_LEAST_REACH = 2.0
"""Losses are listed up to a multiple of their mean: with less there is hardly a packing."""
_LESS = 0.8
_STEP = 3
_NODES = 20_000
_NODES_OF_A_PROOF = 10_000
"""More would take the checker long."""
_LOOKS = 30_000_000
_DENOMINATOR = 60


@dataclass(frozen=True)
class Pool:
    """Patterns at a capacity, with what each loses of the gap; and whether it is all of them."""

    problem: Problem
    capacity: int
    priced: Gap
    patterns: Patterns
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
        """Return the patterns of a packing, None if this attempt finds none.

        The first begins with a search without anything fixed, if the patterns are few; where they
        are all that there are and it ends, ``exhausted`` says that there is no packing.
        """
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
        self.patterns: Patterns = parts["patterns"]
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
