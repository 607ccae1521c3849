"""A search for prices of rounds that bound the total latency of unit rounds.

What follows from prices is worked out in ``orsched.certificates.unit_rounds``; they are the dual
values of the linear relaxation over starts, with the rows that its solutions violate.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.unit_rounds import GRID, Prices, levels_of, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.certificates.unit_rounds import UnitRounds

SCALE = 1024
_PASSES = 6
_LEAST = 1e-4
"""By how much a row is to be violated."""
_MAX_NONZEROS = 4_000_000


def no_prices() -> Prices:
    """Return prices of nothing, which prove that nobody starts before it arrives."""
    return Prices(SCALE, (), {})


def search_prices(problem: UnitRounds, rounds: int, time_limit: float | None = None) -> Prices:
    """Return prices of the rows of a linear relaxation, solved with GLOP.

    Args:
        problem: requests and memory.
        rounds: rounds in which a request may start there; better more than there are.
        time_limit: seconds; what is known by then is returned.
    """
    size = int((rounds - np.array(problem.arrivals)) @ np.array(problem.outputs))
    if size > _MAX_NONZEROS:
        return no_prices()
    end = None if time_limit is None else monotonic() + time_limit
    program = _Relaxation(problem, rounds)
    prices = no_prices()
    for _ in range(_PASSES):
        left = None if end is None else end - monotonic()
        if (left is not None and left <= 0) or not program.solve(left):
            break
        prices = program.prices()
        if not program.add_rows():
            break
    return prices


class _Relaxation:
    """Requests that are the same together, a variable for each round of their start."""

    def __init__(self, problem: UnitRounds, rounds: int) -> None:
        from ortools.linear_solver import pywraplp

        self.problem, self.rounds = problem, rounds
        self.api = pywraplp
        self.solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        objective = self.solver.Objective()
        kinds: dict[tuple[int, int, int], list[int]] = {}
        rows = zip(problem.prompts, problem.outputs, problem.arrivals, strict=True)
        for i, kind in enumerate(rows):
            kinds.setdefault(kind, []).append(i)
        self.kinds = list(kinds.items())
        self.starts: list[list[Any]] = []
        for (_, _, arrival), members in self.kinds:
            own = [self.solver.NumVar(0, len(members), "") for _ in range(arrival, rounds)]
            one = self.solver.Constraint(len(members), len(members))
            for k, variable in enumerate(own, arrival):
                objective.SetCoefficient(variable, k)
                one.SetCoefficient(variable, 1)
            self.starts.append(own)
        objective.SetMinimization()
        self.end = rounds + max(problem.outputs)
        self.memory = [self._memory_row(t) for t in range(1, self.end)]
        self.levels: dict[int, dict[int, Any]] = {k: {} for k in levels_of(problem)}

    def _memory_row(self, t: int) -> Any:
        row = self.solver.Constraint(-self.solver.infinity(), self.problem.memory)
        for ((prompt, output, arrival), _), own in zip(self.kinds, self.starts, strict=True):
            for k in range(max(arrival, t - output), min(t, self.rounds)):
                row.SetCoefficient(own[k - arrival], prompt + t - k)
        return row

    def solve(self, time_limit: float | None) -> bool:
        """Return whether the relaxation with its present rows is solved."""
        if time_limit is not None:
            self.solver.SetTimeLimit(max(1, round(time_limit * 1000)))
        return bool(self.solver.Solve() == self.api.Solver.OPTIMAL)

    def prices(self) -> Prices:
        """Return the dual values, rounded, of a solved relaxation."""
        memory = (0, *(_price(row) for row in self.memory))
        levels = {}
        for k, rows in self.levels.items():
            column = [0] * (GRID * self.end)
            for q, row in rows.items():
                column[q] = _price(row)
            if any(column):
                levels[k] = tuple(column)
        return Prices(SCALE, memory, levels)

    def add_rows(self) -> int:
        """Add the level rows that the solution violates; return how many there are."""
        values = [np.array([each.solution_value() for each in own]) for own in self.starts]
        new = []
        for k in self.levels:
            spans = self._spans(k)
            change = np.zeros(GRID * self.end + 1)
            for shares, at in zip(values, spans, strict=True):
                for low, high in at:
                    np.add.at(change, low, shares)
                    np.add.at(change, high, -shares)
            counts = np.cumsum(change)[:-1]
            new += [(k, int(q), spans) for q in np.nonzero(counts > k + _LEAST)[0]]
        new = [each for each in new if each[1] not in self.levels[each[0]]]
        for k, q, spans in new:
            self.levels[k][q] = self._level_row(k, q, spans)
        return len(new)

    def _spans(self, k: int) -> list[list[tuple[NDArray[np.int64], NDArray[np.int64]]]]:
        """Return by kind and count the first q of each start, and the one after the last."""
        spans = []
        for (_, output, arrival), members in self.kinds:
            ends = GRID * (np.arange(arrival, self.rounds) + output)
            most = GRID * self.end
            spans.append([
                ((ends + first).clip(0, most), (ends + last + 1).clip(0, most))
                for first, last in windows(self.problem, members[0], k)
            ])  # fmt: skip
        return spans

    def _level_row(self, k: int, q: int, spans: Any) -> Any:
        row = self.solver.Constraint(-self.solver.infinity(), k)
        for own, at in zip(self.starts, spans, strict=True):
            counts = np.zeros(len(own), int)
            for low, high in at:
                counts += (low <= q) & (q < high)
            for k_ in map(int, np.nonzero(counts)[0]):
                row.SetCoefficient(own[k_], int(counts[k_]))
        return row


def _price(row: Any) -> int:
    price: int = max(0, round(-row.dual_value() * SCALE))
    return price
