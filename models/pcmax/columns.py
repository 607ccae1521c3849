"""Column generation at one capacity: a fractional packing, or duals that prove there is none. If
integers pi >= 0 for the sizes make every pattern worth at most v, J clients hold at most J v; jobs
that are worth more cannot be packed. This is what the checker verifies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import unavailable
from orsched.models.pcmax.patterns import (
    LARGEST_TABLE,
    Items,
    Pricer,
    Window,
    best_value,
    items_of,
    patterns_worth,
    scaled,
    table_cells,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.stop import Clock
    from orsched.models.pcmax.patterns import Ints, Problem


_INFINITY = 1e20
_TIME_LIMIT = 11  # SCIP_LPPAR_LPTILIM


def linear_program(name: str) -> Any:
    """Return an empty linear program to be minimized. Raises ``MissingDependencyError``: pyscipopt
    is not installed."""
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
    """The Gilmore-Gomory linear program over the patterns known so far, solved by SoPlex. Least
    number of patterns that cover every job; artificial columns keep it feasible."""

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


Flags = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

_EPS = 1e-7
_MOST = 250
_SEEDINGS = 3
_SMOOTHING = 0.5
_SMOOTHING_OF_MANY = 0.85  # with many jobs a client the program is more degenerate
_ROUNDS_TO_END = 200
_ARTIFICIAL = (4.0, 20.0, 100.0)
_ARTIFICIAL_IN_DIVES = (4.0,)


@dataclass(frozen=True)
class Verdict:
    """What is known of a capacity. ``solution``: the last solution of the linear program;
    fractional packing if ``feasible``."""

    duals: Ints | None = None  # proof that the capacity is too small, else None
    solution: Solution | None = None
    feasible: bool = False  # the linear program packs the jobs onto the clients


class Gap(NamedTuple):
    """Integer duals, the most that a pattern is worth, what all clients may fall short of that."""

    duals: Ints
    most: int
    gap: int


class Columns:
    """Column generation that keeps its patterns from one capacity to the next."""

    def __init__(self, problem: Problem, clock: Clock) -> None:
        self.problem = problem
        self.clock = clock
        self.master = Master(problem.counts)
        self.pricer = Pricer()
        self.rounds = 0
        many = int(problem.counts.sum()) >= 4 * problem.clients
        self.smoothing = _SMOOTHING_OF_MANY if many else _SMOOTHING

    def fits(self, capacity: int) -> bool:
        """Whether the tables of a capacity are small enough."""
        return table_cells(self.problem.sizes, self.problem.counts, capacity) <= LARGEST_TABLE

    def usable(self, problem: Problem, window: Window) -> Flags:
        """Return which of the known patterns fit a problem and a window."""
        patterns = self.master.patterns
        loads = patterns @ problem.sizes
        inside = (loads >= window.low) & (loads <= window.high)
        result: Flags = inside & (patterns <= problem.counts).all(axis=1)
        return result

    def seed(self, capacity: int, rng: np.random.Generator) -> None:
        """Add patterns without much waste, worth most when length alone counts: where little may be
        wasted, the duals end near the lengths, so that this saves most of the rounds."""
        problem = self.problem
        items, window = items_of(problem.sizes, problem.counts, capacity), problem.window(capacity)
        kinds = len(problem.sizes)
        for _ in range(_SEEDINGS):
            duals = problem.sizes / capacity * (1 + 0.01 * rng.random(kinds))
            priced = self.pricer.price(items, scaled(duals, items, capacity), window, kinds, kinds)
            if priced.best is None or self.clock.out():
                return
            self.master.add(priced.patterns)

    def solve(
        self,
        problem: Problem,
        capacity: int,
        rounds: int,
        exact: bool = True,
        closed: frozenset[int] = frozenset(),
    ) -> Verdict:
        """Solve the linear program of what is left of a problem (its sizes are those of the whole)
        at a capacity, or stop early at a proof or after so many ``rounds`` of pricing; ``closed``
        patterns are not used. ``exact``: look for a proof in whole numbers, else stop as soon as
        floats say so."""
        window = problem.window(capacity)
        items = items_of(problem.sizes, problem.counts, capacity)
        self.master.set_counts(problem.counts)
        usable = self.usable(problem, window)
        usable[sorted(closed)] = False
        self.master.allow(usable)
        prices = iter(_ARTIFICIAL if exact else _ARTIFICIAL_IN_DIVES)
        self.master.set_artificial(next(prices))
        centre: Floats | None = None
        best_bound = 0.0
        solution = self.master.solve(self.clock.left())
        for _ in range(rounds):
            if self.clock.out():
                break
            if solution.artificial < _EPS and solution.value <= problem.clients + _EPS:
                return Verdict(None, solution, True)
            self.rounds += 1
            smoothed = centre is not None
            duals = (
                solution.duals
                if centre is None
                else self.smoothing * centre + (1 - self.smoothing) * solution.duals
            )
            bound, added = self._price(problem, items, window, duals, solution)
            if bound > problem.clients:
                proof = self._prove(problem, items, window, duals) if exact else None
                if proof is not None or not exact:
                    return Verdict(duals=proof if exact else np.zeros(0, np.int64))
            if bound > best_bound:
                best_bound, centre = bound, duals
            if not added and smoothed:
                centre = None  # mispriced by the smoothing: once more at the duals themselves
                continue
            if not added:
                price = next(prices, None)
                if solution.artificial < _EPS or price is None:
                    break
                self.master.set_artificial(price)
                centre, best_bound = None, 0.0
            solution = self.master.solve(self.clock.left())
        feasible = solution.artificial < _EPS and solution.value <= problem.clients + _EPS
        return Verdict(None, solution, feasible)

    def _price(
        self,
        problem: Problem,
        items: Items,
        window: Window,
        duals: Floats,
        solution: Solution,
    ) -> tuple[float, int]:
        """Return the Lagrangian bound at the duals, and how many patterns were added."""
        whole = scaled(duals, items, window.high)
        priced = self.pricer.price(items, whole, window, len(problem.sizes), _MOST)
        if priced.best is None:
            return float("inf"), 0
        bound = float(whole @ problem.counts) / max(priced.best, 1)
        gains = priced.patterns @ solution.duals
        return bound, self.master.add(priced.patterns[gains > 1 + _EPS])

    def _prove(
        self,
        problem: Problem,
        items: Items,
        window: Window,
        duals: Floats,
    ) -> Ints | None:
        """Return integer duals that prove infeasibility, or None if rounding spoils the proof."""
        top = float(duals.max(initial=0.0))
        for scale in (10**3, 10**6, 10**9, 10**12):
            whole = np.floor(duals * (scale / top) if top > 0 else duals).astype(np.int64)
            best = best_value(items, whole, window)
            if best is None or int(whole @ problem.counts) > problem.clients * best:
                return whole
        return None

    def least_gap(self, capacity: int) -> Gap | None:
        """Return the integer duals of a capacity with the least gap; None: no packing, or no time.

        The clients hold at most their number times ``most`` of all duals; the gap is the rest.
        """
        problem, window = self.problem, self.problem.window(capacity)
        kinds, clients = len(problem.sizes), problem.clients
        verdict = self.solve(problem, capacity, _ROUNDS_TO_END, exact=False)
        items = items_of(problem.sizes, problem.counts, capacity)
        best: tuple[float, Gap] | None = None
        solution = verdict.solution
        for _ in range(_ROUNDS_TO_END if verdict.feasible else 0):  # on to the least gap
            if solution is None or self.clock.out():
                break
            duals = scaled(solution.duals, items, capacity)
            priced = self.pricer.price(items, duals, window, kinds, _MOST)
            if priced.best is None:
                break
            gap = clients * priced.best - int(duals @ problem.counts)
            if best is None or gap / priced.best < best[0]:
                best = (gap / priced.best, Gap(duals, priced.best, gap))
            gains = priced.patterns @ solution.duals
            if not self.master.add(priced.patterns[gains > 1 + _EPS]):
                break
            solution = self.master.solve(self.clock.left())
        return None if best is None or self.clock.out() else best[1]

    def patterns_worth(self, capacity: int, priced: Gap, least: int, limit: int) -> Ints | None:
        """Return all patterns worth at least so much under the duals, None beyond a limit."""
        problem, window = self.problem, self.problem.window(capacity)
        items = items_of(problem.sizes, problem.counts, capacity)
        kinds = len(problem.sizes)
        return patterns_worth(self.pricer, items, priced.duals, window, kinds, least, limit)
