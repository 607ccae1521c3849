"""A linear program in whole numbers, and what dual prices prove of its value, without a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

PRICE_SCALE = 2**80
"""Dual prices are whole numbers of so many parts."""


class Program:
    """Maximise ``gain x`` over ``rows x <= limits`` and ``0 <= x <= upper``, all whole numbers.

    Attributes:
        gain, upper: by column.
        rows, limits: the entries (column, coefficient) of each row, and its right-hand side.
    """

    def __init__(self) -> None:
        self.gain: list[int] = []
        self.upper: list[int] = []
        self.rows: list[list[tuple[int, int]]] = []
        self.limits: list[int] = []

    def column(self, upper: int, gain: int = 0) -> int:
        """Add a column; return its number."""
        self.gain.append(gain)
        self.upper.append(upper)
        return len(self.gain) - 1

    def at_most(
        self,
        entries: Iterable[tuple[int, int | Fraction]],
        limit: int | Fraction,
        scale: int | Fraction = 1,
    ) -> int:
        """Add a row, in parts of 1 / scale; return its number.

        Coefficients are rounded down and the limit up: no solution is lost, as no column is
        negative.
        """
        row = [(column, _down(value * scale)) for column, value in entries]
        self.rows.append([entry for entry in row if entry[1]])
        self.limits.append(-_down(-limit * scale))
        return len(self.rows) - 1

    def proven(self, prices: Iterable[tuple[int, int]]) -> int:
        """Return what the program's value is at most, rounded down, by weak duality.

        For prices y >= 0 of the rows: y limits, and of each column as much as its gain is above
        what its entries are priced, up to its upper bound. Any prices prove a bound.

        Args:
            prices: rows and prices, in parts of 1 / ``PRICE_SCALE``; all others are 0.

        Raises:
            ValueError: no such row, one named twice, or a negative price.
        """
        left = [gain * PRICE_SCALE for gain in self.gain]
        total, named = 0, set()
        for row, price in prices:
            if price < 0 or row >= len(self.rows) or row in named:
                raise ValueError(f"the price {price} of row {row}")
            named.add(row)
            total += price * self.limits[row]
            for column, value in self.rows[row]:
                left[column] -= price * value
        columns = zip(left, self.upper, strict=True)
        return (total + sum(rest * upper for rest, upper in columns if rest > 0)) // PRICE_SCALE


def _down(value: int | Fraction) -> int:
    return value.numerator // value.denominator
