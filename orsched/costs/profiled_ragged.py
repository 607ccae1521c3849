"""Tables in which combinations are missing: what stands for those that were not measured."""

from __future__ import annotations

from bisect import bisect_left
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS

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
    time measured for no less of everything, and not below the largest for no more, where the
    second is not above the first. If the measured times grow along all axes, so does the whole
    table.

    Raises:
        InputError: no time was measured.
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
