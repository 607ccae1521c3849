"""A proof by branching where some hundred patterns are left: two jobs together, or apart.

At each node the linear program over the patterns that are left gives a number to each size, of
either sign, for every job is covered exactly once. Rounded to integers they drop patterns, or
prove that the node holds no packing. The branch is that of Ryan and Foster (1981): it leaves a set
of patterns and needs no other pricing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.models.pcmax.master import linear_program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.stop import Clock
    from orsched.models.pcmax.guided import Pool
    from orsched.models.pcmax.knapsack import Ints

    Flags = NDArray[np.bool_]
    Floats = NDArray[np.float64]

PATTERNS, NODES = 2_500, 400
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
    """Branch and bound on the patterns of a pool that holds all of them.

    Attributes:
        nodes: the proof in preorder, together before apart.
        found: the patterns of a packing, if there is one.
    """

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self.clock, self.clients = clock, pool.problem.clients
        self.sizes, self.counts = pool.problem.sizes, pool.problem.counts
        self.patterns = pool.patterns.astype(np.int64)
        self.nodes: list[Node] = []
        self.found: list[Ints] | None = None
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
