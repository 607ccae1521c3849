"""The Gilmore-Gomory linear program over the patterns known so far, solved by SoPlex.

Least number of patterns that cover every job; artificial columns keep it feasible.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.models.pcmax.knapsack import Ints

_INFINITY = 1e20
_TIME_LIMIT = 11  # SCIP_LPPAR_LPTILIM


def linear_program(name: str) -> Any:
    """Return an empty linear program to be minimized.

    Raises:
        MissingDependencyError: pyscipopt is not installed.
    """
    try:
        from pyscipopt import LP
    except ImportError as error:
        raise unavailable(
            error, "column generation needs pyscipopt: pip install pyscipopt"
        ) from None
    return LP(name, "minimize")


class Solution(NamedTuple):
    """Value, duals of the jobs, the patterns' shares, and what artificial columns cover."""

    value: float
    duals: NDArray[np.float64]
    shares: NDArray[np.float64]
    artificial: float


class Master:
    """Patterns as columns, sizes as rows."""

    def __init__(self, counts: Ints, price: float = 1.0) -> None:
        rows = len(counts)
        self.patterns = np.empty((0, rows), dtype=np.int64)
        self._known: set[bytes] = set()
        self._lp = linear_program("packing")
        lhss = [float(c) for c in counts.tolist()]
        self._lp.addRows([[] for _ in range(rows)], lhss=lhss, rhss=[_INFINITY] * rows)
        self._add([[(k, 1.0)] for k in range(rows)], price)
        self._rows = rows
        self._closed: set[int] = set()

    def _add(self, columns: list[list[tuple[int, float]]], price: float) -> None:
        n = len(columns)
        self._lp.addCols(columns, objs=[price] * n, lbs=[0.0] * n, ubs=[_INFINITY] * n)

    def add(self, patterns: Ints) -> int:
        """Add the patterns that are new; return how many were."""
        fresh = []
        for pattern in patterns:
            key = pattern.tobytes()
            if key not in self._known:
                self._known.add(key)
                fresh.append(pattern)
        if not fresh:
            return 0
        columns = [[(int(k), float(p[k])) for k in np.flatnonzero(p)] for p in fresh]
        self._add(columns, 1.0)
        self.patterns = np.vstack([self.patterns, *fresh])
        return len(fresh)

    def set_counts(self, counts: Ints) -> None:
        """Cover other numbers of jobs."""
        for row, count in enumerate(counts.tolist()):
            self._lp.chgSide(row, float(count), _INFINITY)

    def set_artificial(self, price: float) -> None:
        """Price what artificial columns cover."""
        for column in range(self._rows):
            self._lp.chgObj(column, price)

    def allow(self, usable: NDArray[np.bool_]) -> None:
        """Close the patterns that are not usable, open the others."""
        closed = set(np.flatnonzero(~usable).tolist())
        for column in sorted(closed ^ self._closed):
            upper = 0.0 if column in closed else _INFINITY
            self._lp.chgBound(self._rows + column, 0.0, upper)
        self._closed = closed

    def solve(self, seconds: float = math.inf) -> Solution:
        """Solve, from the last basis; what a limit cuts short is no solution, but does no harm."""
        if seconds < math.inf:
            self._lp.setRealParam(_TIME_LIMIT, max(seconds, 1e-3))
        value = float(self._lp.solve(dual=False))
        primal = np.array(self._lp.getPrimal())
        duals = np.maximum(np.array(self._lp.getDual()), 0.0)
        artificial = float(primal[: self._rows].sum())
        return Solution(value, duals, np.maximum(primal[self._rows :], 0.0), artificial)
