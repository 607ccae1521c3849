"""Dual prices of a program in whole numbers: GLOP proposes them, rounding makes them whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.linear_bound import PRICE_SCALE
from orsched.common.errors import unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.certificates.linear_bound import Program

    Floats = NDArray[np.float64]

_WIDE = 10**6
"""Columns with larger upper bounds are priced out exactly: what is left of them would count."""
_PASSES = 3
_SCALINGS = 5


def prices_of(program: Program, seconds: float | None = None) -> list[tuple[int, int]] | None:
    """Return prices of a program's rows, those above 0; None where it has no solution.

    In parts of 1 / ``PRICE_SCALE``, for ``Program.proven``. None too where the time is up.

    Raises:
        MissingDependencyError: ortools is not installed.
    """
    found = _solve(program, seconds)
    if found is None:
        return None
    whole = [int(price * PRICE_SCALE) if price > 0 else 0 for price in found]
    _price_out(program, whole)
    return [(row, price) for row, price in enumerate(whole) if price > 0]


def _solve(program: Program, seconds: float | None) -> list[float] | None:
    """Return the dual prices that GLOP finds, in units of gain a unit of each row's limit."""
    try:
        from ortools.linear_solver import pywraplp
    except ImportError as error:
        raise unavailable(error, "bulk bounds need ortools: pip install ortools") from None
    solver: Any = pywraplp.Solver.CreateSolver("GLOP")
    infinity = solver.infinity()
    values, row_scale, column_scale = _scaled(program)
    sizes = column_scale.tolist()
    # Without a bound on wide columns, rows carry all prices.
    tops = [
        infinity if upper > _WIDE else upper / size
        for upper, size in zip(program.upper, sizes, strict=True)
    ]
    columns = [solver.NumVar(0.0, top, "") for top in tops]
    objective = solver.Objective()
    for column, gain, size in zip(columns, program.gain, sizes, strict=True):
        if gain:
            objective.SetCoefficient(column, -gain * size)
    rows, entry = [], iter(values.tolist())
    for entries, limit, scale in zip(program.rows, program.limits, row_scale.tolist(), strict=True):
        row = solver.Constraint(-infinity, float(limit) * scale)
        for column, _ in entries:
            row.SetCoefficient(columns[column], next(entry))
        rows.append(row)
    objective.SetMinimization()
    if seconds is not None:
        solver.SetTimeLimit(max(1, int(seconds * 1000)))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    return [-row.dual_value() * scale for row, scale in zip(rows, row_scale.tolist(), strict=True)]


def _scaled(program: Program) -> tuple[Floats, Floats, Floats]:
    """Return the entries row by row, scaled so that all are about 1, and the scales.

    By geometric means of the largest and the least of each row and of each column, some times.
    """
    counts = [len(row) for row in program.rows]
    at_row = np.repeat(np.arange(len(counts)), counts)
    at_column = np.array([column for row in program.rows for column, _ in row], np.int64)
    values = np.array([float(value) for row in program.rows for _, value in row])
    sizes, exponents = np.log2(np.abs(values)), [np.zeros(len(counts)), np.zeros(len(program.gain))]
    for _ in range(_SCALINGS):
        for places, found in zip((at_row, at_column), exponents, strict=True):
            most, least = np.full(len(found), -np.inf), np.full(len(found), np.inf)
            now = sizes + exponents[0][at_row] + exponents[1][at_column]
            np.maximum.at(most, places, now)
            np.minimum.at(least, places, now)
            some = np.isfinite(most)
            found[some] -= np.round((most[some] + least[some]) / 2)
    row_scale, column_scale = np.exp2(exponents[0]), np.exp2(exponents[1])
    return values * row_scale[at_row] * column_scale[at_column], row_scale, column_scale


def _price_out(program: Program, prices: list[int]) -> None:
    """Lower prices until no wide column is worth more than its entries are priced.

    Wide columns gain nothing themselves: where rounding leaves them worth something, the prices of
    the rows that they give room in are lowered in proportion.
    """
    wide = [c for c, upper in enumerate(program.upper) if upper > _WIDE]
    entries: dict[int, list[tuple[int, int]]] = {column: [] for column in wide}
    for number, of_row in enumerate(program.rows):
        for column, value in of_row:
            if column in entries:
                entries[column].append((number, value))
    for _ in range(_PASSES):
        for column in wide:
            paid = sum(prices[row] * value for row, value in entries[column] if value > 0)
            worth = -sum(prices[row] * value for row, value in entries[column] if value < 0)
            if worth > paid:
                for row, value in entries[column]:
                    if value < 0:
                        prices[row] = prices[row] * paid // worth
