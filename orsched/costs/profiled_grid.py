"""Measured times on a grid, and what lies between and beyond its points."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS, MAX_TOKENS
from orsched.costs.parameters import read_parameters
from orsched.costs.profiled_ragged import completed

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_POINTS = 2**20
_MOST_ROWS = 4096


@dataclass(frozen=True)
class Grid:
    """Times at the points of a grid: multilinear between them, exact.

    Along each axis, the first one first: at or below the first point the time of that point;
    between two points the straight line; beyond the last one the line through it and the last
    point at or below half of it, level if that line falls. So beyond the grid no time falls, and
    noise in neighbouring points does not decide the extrapolation.

    Attributes:
        names: of the axes, as they stand in files.
        axes: the points of each axis, strictly growing whole numbers of at least 0.
        times_ns: whole nanoseconds of at least 0, the last axis fastest. None stands for a
            combination that was not measured, and is replaced (``profiled_ragged.completed``).
        filled: how many were None.

    Raises:
        InputError: an axis that does not grow, or a number of times that is not that of the points.
    """

    names: tuple[str, ...]
    axes: tuple[tuple[int, ...], ...]
    times_ns: tuple[int, ...]
    filled: int = field(default=0, init=False, compare=False)
    _rows: dict[tuple[int, ...], tuple[list[int], int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not self.names or len(self.axes) != len(self.names):
            raise InputError(
                "a grid has one name an axis, at least one",
                field="names",
                remedy="give a name for each axis",
            )
        axes = tuple(map(_read_axis, self.axes, self.names))
        points = 1
        for axis in axes:
            points *= len(axis)
        if points > MAX_POINTS:
            raise InputError(
                f"a grid of more than {MAX_POINTS} points",
                field="time_ns",
                remedy="leave points out",
            )
        times = self.times_ns
        if not isinstance(times, (list, tuple)) or len(times) != points:
            raise InputError(
                f"a grid of {points} points needs a time for each",
                field="time_ns",
                remedy="give a time for each point, in the order of the axes",
            )
        whole = [
            None if time is None else whole_number(time, "time_ns", maximum=MAX_TIME_NS)
            for time in times
        ]
        full, filled = completed(axes, whole)
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "times_ns", full)
        object.__setattr__(self, "filled", filled)

    def at(self, *place: int | Fraction) -> Fraction:
        """Return the time at a place, in nanoseconds; the last coordinate may be a fraction."""
        row, divisor = self.row(*map(int, place[:-1]))
        x = Fraction(place[-1])
        values, width = _along(self.axes[-1], row, x.numerator, x.denominator)
        return Fraction(values[0], width * divisor)

    def row(self, *place: int) -> tuple[list[int], int]:
        """Return the times along the last axis at a place on the others, over a common divisor."""
        found = self._rows.get(place)
        if found is None:
            found = self._row(place)
            if len(self._rows) >= _MOST_ROWS:
                self._rows.clear()
            self._rows[place] = found
        return found

    def _row(self, place: tuple[int, ...]) -> tuple[list[int], int]:
        values, divisor = list(self.times_ns), 1
        for axis, x in zip(self.axes[:-1], place, strict=True):
            values, width = _along(axis, values, x, 1)
            divisor *= width
        return values, divisor

    def to_dict(self) -> dict[str, Any]:
        """Return the axes by name, and ``time_ns`` as lists of lists, the last axis innermost."""
        times: list[Any] = list(self.times_ns)
        for axis in self.axes[:0:-1]:
            times = [times[i : i + len(axis)] for i in range(0, len(times), len(axis))]
        axes = {name: list(axis) for name, axis in zip(self.names, self.axes, strict=True)}
        return {**axes, "time_ns": times}

    @classmethod
    def read(cls, value: object, owner: str, names: Sequence[str]) -> Self:
        """Read a grid of these axes, or take it as it is; errors name ``owner`` and the part."""
        try:
            if isinstance(value, cls):
                if value.names != tuple(names):
                    raise InputError(
                        f"a grid over {', '.join(value.names)}",
                        field="names",
                        remedy="see the cost model 'profiled' in the file formats",
                    )
                return value
            parts = read_parameters(value, owner, [*names, "time_ns"])
            axes = tuple(_read_axis(parts[name], name) for name in names)
            return cls(tuple(names), axes, tuple(_flat(parts["time_ns"], axes)))
        except InputError as error:
            part = "" if error.field in (None, owner) else f", {error.field}"
            raise InputError(
                f"{owner}{part}: {error.problem}",
                field=owner,
                remedy=f"axes {', '.join(names)} in growing order, and time_ns for each point, "
                "null where it was not measured",
            ) from None


def _read_axis(values: object, name: str) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)) or not values:
        raise InputError("must be a list of at least one point", field=name)
    axis = tuple(whole_number(value, name, maximum=MAX_TOKENS) for value in values)
    if any(later <= earlier for earlier, later in pairwise(axis)):
        raise InputError(
            "the points do not grow strictly",
            field=name,
            remedy="sort the points, and give each once",
        )
    return axis


def _flat(times: object, axes: Sequence[Sequence[int]]) -> list[Any]:
    """Flatten lists of lists that have the shape of the axes."""
    if not isinstance(times, (list, tuple)) or len(times) != len(axes[0]):
        raise InputError(
            f"expected a list of {len(axes[0])}, one a point",
            field="time_ns",
            remedy="give one value for each point",
        )
    if len(axes) == 1:
        return list(times)
    return [time for part in times for time in _flat(part, axes[1:])]


def ends_of_line(axis: Sequence[int], index: int) -> tuple[int, int, bool]:
    """Return the points of the line before ``axis[index]``, and whether it is level."""
    last = len(axis) - 1
    if index == 0 or last == 0:
        return 0, 0, True
    if index <= last:
        return index - 1, index, False
    return max(0, bisect_right(axis, axis[last] // 2) - 1), last, False


def _along(
    axis: Sequence[int], values: Sequence[int], numerator: int, denominator: int
) -> tuple[list[int], int]:
    """Return what the values at a place on their first axis are, over a common divisor."""
    index = bisect_right(axis, numerator // denominator)
    low, high, flat = ends_of_line(axis, index)
    size = len(values) // len(axis)
    left, right = (list(values[point * size : (point + 1) * size]) for point in (low, high))
    if flat:
        return left, 1
    width = (axis[high] - axis[low]) * denominator
    share = numerator - axis[low] * denominator
    if index == len(axis):
        more = share - width
        return [b * width + max(0, b - a) * more for a, b in zip(left, right, strict=True)], width
    rest = width - share
    return [a * rest + b * share for a, b in zip(left, right, strict=True)], width
