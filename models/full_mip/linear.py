"""A linear model in whole numbers, the one form that every back end and writer loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BINARY, INTEGER, CONTINUOUS = "B", "I", "C"


class Row(NamedTuple):
    """``least <= sum of coefficient * variable <= most``; None where there is no limit."""

    name: str
    columns: tuple[int, ...]
    coefficients: tuple[int, ...]
    least: int | None
    most: int | None


class LinearModel:
    """Variables with bounds, rows, and a sum to minimise.

    A variable of kind C may be fractional in a MIP, where some best solution has it whole; a back
    end that knows whole numbers only takes it as integer.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.kinds: list[str] = []
        self.lower: list[int] = []
        self.upper: list[int] = []
        self.rows: list[Row] = []
        self.objective: tuple[tuple[int, int], ...] = ()  # pairs (column, coefficient)

    def add(self, name: str, kind: str, upper: int, lower: int = 0) -> int:
        """Add a variable and return its column."""
        self.names.append(name)
        self.kinds.append(kind)
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.names) - 1

    def row(
        self,
        name: str,
        terms: Iterable[tuple[int, int]],
        least: int | None = None,
        most: int | None = None,
    ) -> None:
        """Add a row from pairs (column, coefficient); coefficients of 0 are dropped."""
        kept = [(column, value) for column, value in terms if value]
        columns = tuple(column for column, _ in kept)
        self.rows.append(Row(name, columns, tuple(value for _, value in kept), least, most))

    def minimise(self, terms: Iterable[tuple[int, int]]) -> None:
        """Set the objective from pairs (column, coefficient); coefficients of 0 are dropped."""
        self.objective = tuple((column, value) for column, value in terms if value)

    def value(self, values: Sequence[int]) -> int:
        """Return the objective of whole values."""
        return sum(values[column] * coefficient for column, coefficient in self.objective)

    @property
    def objective_upper(self) -> int:
        """The largest value that the objective's coefficients and bounds of variables allow."""
        return sum(
            coefficient * (self.upper[column] if coefficient > 0 else self.lower[column])
            for column, coefficient in self.objective
        )

    @property
    def nonzeros(self) -> int:
        """Coefficients in all rows."""
        return sum(len(row.columns) for row in self.rows)

    def violation(self, values: list[int]) -> str | None:
        """Return what whole values violate, in exact arithmetic, or None."""
        for name, value, low, high in zip(self.names, values, self.lower, self.upper, strict=True):
            if not low <= value <= high:
                return f"{name} = {value} is outside {low}..{high}"
        for row in self.rows:
            total = sum(values[c] * a for c, a in zip(row.columns, row.coefficients, strict=True))
            if row.least is not None and total < row.least:
                return f"{row.name}: {total} < {row.least}"
            if row.most is not None and total > row.most:
                return f"{row.name}: {total} > {row.most}"
        return None
