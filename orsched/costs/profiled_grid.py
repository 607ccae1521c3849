"""Measured times on a grid, and what lies between and beyond its points."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS, MAX_TOKENS
from orsched.costs.protocol import read_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_NONE = -1


def completed(
    axes: Sequence[Sequence[int]], times_ns: Sequence[int | None]
) -> tuple[tuple[int, ...], int]:
    """Return a time for every combination of the points, and how many were missing (None).

    What was measured stays as it is. A missing time is taken from those measured beside it, along
    the last axis first, then along the one before it, and so on, so that each line is filled from
    those that are nearest to measured ones: between two of them the straight line; beyond the last
    one the line through it and the last one at or below half of it, never falling; before the
    first one the line through it and the first one at or above twice it, never rising to the front
    and never below 0; with one alone, its time. Each is rounded half up to a nanosecond.

    Then missing times, and only they, are brought between what was measured: not above the least
    time measured for no less of everything, and not below the largest for no more, where the second
    is not above the first. If the measured times grow along all axes, so does the whole table.
    Raises ``InputError`` if no time was measured.
    """
    missing = sum(time is None for time in times_ns)
    if not missing:
        return tuple(int(time) for time in times_ns if time is not None), 0
    if missing == len(times_ns):
        raise InputError(
            "no combination is measured", field="time_ns", remedy="measure at least one combination"
        )
    shape = tuple(map(len, axes))
    table = np.array([_NONE if time is None else time for time in times_ns], np.int64)
    table = table.reshape(shape)
    known = table != _NONE
    for axis in reversed(range(len(axes))):
        lines = np.moveaxis(table, axis, -1)
        for place in product(*map(range, lines.shape[:-1])):
            lines[place] = _line_filled(axes[axis], lines[place].tolist())
    return tuple(_monotone(table, known).ravel().tolist()), missing


def _line_filled(points: Sequence[int], times: list[int]) -> list[int]:
    """Fill a line from the times that it has; none where it has none."""
    found = [i for i, time in enumerate(times) if time != _NONE]
    if not found or len(found) == len(times):
        return times
    first, last = found[0], found[-1]
    near = next((i for i in found if points[i] >= 2 * points[first] and i > first), last)
    far = next((i for i in reversed(found) if points[i] <= points[last] // 2), first)
    filled = list(times)
    for i, x in enumerate(points):
        if times[i] != _NONE:
            continue
        if first < i < last:
            after = bisect_left(found, i)
            filled[i] = _between(points, times, found[after - 1], found[after], x)
        elif i < first:
            line = _between(points, times, first, near, x) if near > first else times[first]
            filled[i] = min(times[first], max(0, line))
        else:
            line = _between(points, times, far, last, x) if far < last else times[last]
            filled[i] = min(MAX_TIME_NS, max(times[last], line))
    return filled


def _between(points: Sequence[int], times: list[int], a: int, b: int, x: int) -> int:
    """Return the time at x on the line through two points, rounded half up."""
    width = points[b] - points[a]
    over = (times[b] - times[a]) * (x - points[a])
    return times[a] + (2 * over + width) // (2 * width)


def _monotone(table: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Bring the filled times between what was measured below and above them."""
    least, most = np.where(known, table, 0), np.where(known, table, MAX_TIME_NS)
    for axis in range(table.ndim):
        least = np.maximum.accumulate(least, axis)
        most = np.flip(np.minimum.accumulate(np.flip(most, axis), axis), axis)
    between = np.where(least <= most, np.clip(table, least, np.maximum(least, most)), table)
    if (least <= most).all():  # what was measured grows: so do the clipped, one after the other
        for axis in range(table.ndim):
            between = np.maximum.accumulate(between, axis)
    return np.where(known, table, between)


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
            combination that was not measured, and is replaced (``completed``).
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
