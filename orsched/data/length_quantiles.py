"""Predicted distributions of output lengths: quantiles at levels that all requests share."""

from __future__ import annotations

from bisect import bisect_left
from math import exp, log
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import IntColumn, int_column, shown
from orsched.common.errors import InputError
from orsched.common.scalars import is_number
from orsched.common.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

QUANTILES, LEVELS = "predicted_quantiles", "quantile_levels"
MAX_LEVELS = 100
"""Most levels of a distribution."""


def read_levels(levels: object) -> tuple[float, ...]:
    """Return levels that increase strictly between 0 and 1; errors have the place as row."""
    remedy = "probabilities between 0 and 1, the least first, such as 0.1, 0.5, 0.9"
    if isinstance(levels, (str, bytes)) or not hasattr(levels, "__iter__"):
        raise InputError("must be a list of numbers", field=LEVELS, remedy=remedy)
    found: list[float] = []
    for place, level in enumerate(levels):
        if len(found) == MAX_LEVELS:
            raise InputError(f"more than {MAX_LEVELS} levels", field=LEVELS, remedy="give fewer")
        number = float(level) if isinstance(level, np.floating) else level
        if not is_number(number) or not 0 < number < 1:
            problem = f"{shown(level)} is not a number between 0 and 1"
            raise InputError(problem, row=place, field=LEVELS, remedy=remedy)
        if found and number <= found[-1]:
            problem = f"{number} is not above {found[-1]}"
            raise InputError(problem, row=place, field=LEVELS, remedy="sort them, each once")
        found.append(float(number))
    if not found:
        raise InputError("no levels are given", field=LEVELS, remedy=remedy)
    return tuple(found)


def read_quantiles(values: ArrayLike, levels: tuple[float, ...], requests: int) -> IntColumn:
    """Return quantiles as a read-only array of shape (requests, number of levels).

    Whole tokens, at least 1, in each row not decreasing. Raises ``InputError`` with the row.
    """
    columns = _columns(values, len(levels), requests)
    read = [
        int_column(
            column,
            QUANTILES,
            minimum=1,
            maximum=MAX_TOKENS,
            length=requests,
            remedy=f"whole tokens from 1 to {MAX_TOKENS}",
        )
        for column in columns
    ]
    found = np.ascontiguousarray(np.column_stack(read))
    require_order(found, levels, [QUANTILES] * len(levels))
    found.setflags(write=False)
    return found


def require_order(found: NDArray[np.int64], levels: Sequence[float], fields: Sequence[str]) -> None:
    """Raise ``InputError`` at the first row whose quantiles fall; ``fields`` name the columns."""
    falls = found[:, 1:] < found[:, :-1]
    if not falls.any():
        return
    row, place = divmod(int(np.argmax(falls)), falls.shape[1])
    low, high = int(found[row, place]), int(found[row, place + 1])
    raise InputError(
        f"{high} at level {levels[place + 1]} is below {low} at level {levels[place]}",
        row=row,
        field=fields[place + 1],
        remedy="quantiles must not fall from one level to the next",
    )


def _columns(values: ArrayLike, width: int, requests: int) -> Sequence[Any]:
    """Return a column a level, of rows that have a value for each."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        if values.shape[1] != width:
            raise _width(values.shape[1], width, 0)
        return [values[:, place] for place in range(width)]
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise InputError("must be a list", field=QUANTILES, remedy="one list of tokens a request")
    rows: list[Any] = list(values)  # type: ignore[arg-type]
    for place, row in enumerate(rows):
        if not isinstance(row, (list, tuple, np.ndarray)) or getattr(row, "ndim", 1) == 0:
            problem = f"{shown(row)} is not a list"
            raise InputError(problem, row=place, field=QUANTILES, remedy="one value a level")
        if len(row) != width:
            raise _width(len(row), width, place)
    return list(zip(*rows, strict=True)) if rows else [[]] * width


def _width(found: int, width: int, row: int) -> InputError:
    problem = f"{found} values for {width} levels"
    return InputError(problem, row=row, field=QUANTILES, remedy="one value a level")


def medians(values: NDArray[np.int64], levels: tuple[float, ...]) -> IntColumn:
    """Return the whole median of each row, as ``LengthLaw`` reads the quantiles."""
    if 0.5 in levels:
        return np.ascontiguousarray(values[:, levels.index(0.5)])
    left, share = LengthLaw(levels).place(0.5)
    right = min(left + 1, len(levels) - 1)
    logs = np.log(values[:, left]) * (1 - share) + np.log(values[:, right]) * share
    found: IntColumn = np.clip(np.rint(np.exp(np.clip(logs, 0, log(MAX_TOKENS)))), 1, MAX_TOKENS)
    return found.astype(np.int64)


class LengthLaw:
    """How quantiles at ``levels`` are read as a distribution, that of a log-normal law by pieces.

    Between two levels the logarithm of the length is linear in the normal quantile of the
    probability, and the outer pieces go on as they are: the quantiles of a log-normal law give that
    law back, equal quantiles a single length.
    """

    def __init__(self, levels: tuple[float, ...]) -> None:
        from statistics import NormalDist

        self.levels = levels
        self._normal = NormalDist()
        self._knots = [self._normal.inv_cdf(level) for level in levels]

    def place(self, level: float) -> tuple[int, float]:
        """Return between which quantiles a level is: the left one, and the share of the right."""
        knots, z = self._knots, self._normal.inv_cdf(level)
        if len(knots) == 1:
            return 0, 0.0
        right = min(max(bisect_left(knots, z), 1), len(knots) - 1)
        width = knots[right] - knots[right - 1]
        return right - 1, (z - knots[right - 1]) / width if width else 0.0

    def quantile(self, row: Sequence[int], level: float) -> float:
        """Return the length that a request stays below with a probability in (0, 1)."""
        left, share = self.place(level)
        low, high = row[left], row[min(left + 1, len(row) - 1)]
        if low == high:
            return float(low)
        return exp(min(max(log(low) + share * log(high / low), 0.0), log(MAX_TOKENS)))

    def reached(self, row: Sequence[int], tokens: int) -> float:
        """Return the probability of at most so many tokens."""
        if tokens < row[0] == row[min(1, len(row) - 1)]:
            return 0.0
        if tokens >= row[-1] == row[max(-2, -len(row))]:
            return 1.0
        right = min(max(bisect_left(row, tokens + 1), 1), len(row) - 1)
        low, high = row[right - 1], row[right]
        share = log(tokens / low) / log(high / low)
        z = self._knots[right - 1] + share * (self._knots[right] - self._knots[right - 1])
        return self._normal.cdf(z)


def quantiles_after(
    values: NDArray[np.int64], levels: tuple[float, ...], yielded: NDArray[np.int64]
) -> IntColumn:
    """Return the quantiles of the tokens still to come, of requests that have yielded some.

    Those of the length, given that it is above what was yielded; 1 where the law ends before.
    """
    law = LengthLaw(levels)
    found = np.empty_like(values)
    for place, (row, tokens) in enumerate(zip(values.tolist(), yielded.tolist(), strict=True)):
        below = law.reached(row, tokens) if tokens else 0.0
        for at, level in enumerate(levels):
            within = below + level * (1 - below)
            left = round(law.quantile(row, within)) - tokens if within < 1 else 1
            found[place, at] = max(1, left if tokens else row[at])
    return np.maximum.accumulate(found, axis=1)
