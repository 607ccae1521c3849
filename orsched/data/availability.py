"""When a worker is there: intervals of time, from a start or a repair to a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import printed
from orsched.common.units import MAX_TIME_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

Interval = tuple[int, int | None]
"""From a moment up to another in nanoseconds; None: for good."""

FIELD = "available_ns"
_REMEDY = "[start, end] pairs in nanoseconds, in order and apart; the last end null: for good"


def checked_intervals(value: object) -> tuple[Interval, ...]:
    """Return intervals of availability as tuples of whole numbers.

    ``()`` stands for always. Raises ``InputError`` unless each is a pair, none is empty, and each
    begins after the end of the one before.
    """
    if not isinstance(value, (list, tuple)):
        raise InputError(
            f"{printed(value)} is not a list of intervals", field=FIELD, remedy=_REMEDY
        )
    found: list[Interval] = []
    last: int | None = -1
    for item in value:
        if not isinstance(item, (list, tuple)) or len(item) != 2:
            raise InputError(f"{printed(item)} is not an interval", field=FIELD, remedy=_REMEDY)
        if last is None:
            raise InputError("one follows an interval without an end", field=FIELD, remedy=_REMEDY)
        start, end = _moment(item[0]), None if item[1] is None else _moment(item[1])
        if start <= last:
            raise InputError(
                f"{start} is not after {last}, the end before it", field=FIELD, remedy=_REMEDY
            )
        if end is not None and end <= start:
            raise InputError(f"{end} is not after its start {start}", field=FIELD, remedy=_REMEDY)
        found.append((start, end))
        last = end
    return tuple(found)


def _moment(value: object) -> int:
    return whole_number(value, FIELD, minimum=0, maximum=MAX_TIME_NS, remedy=_REMEDY)


def time_within(intervals: Sequence[Interval], until_ns: int) -> int:
    """Return how much of the time up to a moment lies within the intervals; ``()``: all of it."""
    if not intervals:
        return until_ns
    ends = (until_ns if end is None else min(end, until_ns) for _, end in intervals)
    return sum(max(0, end - start) for (start, _), end in zip(intervals, ends, strict=True))
