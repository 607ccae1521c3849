"""Sums, maxima and counts over intervals of places, without a loop over places or intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from orsched.columns import IntColumn

NOTHING = -(2**62)
"""Maximum of no values."""


def before(values: IntColumn) -> IntColumn:
    """Return the sums of the values before each place, and of all of them at the end."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def covered_sum(n: int, first: IntColumn, last: IntColumn, value: IntColumn | int = 1) -> IntColumn:
    """Return, for each of n places, the sum of the values whose interval holds it.

    Intervals [first, last] include both ends; those with last = first - 1 are empty.
    """
    change = np.zeros(n + 1, np.int64)
    np.add.at(change, first, value)
    np.subtract.at(change, last + 1, value)
    return np.cumsum(change[:-1])


def covered_max(n: int, first: IntColumn, last: IntColumn, value: IntColumn) -> IntColumn:
    """Return the maximum of the values whose interval holds each place, else ``NOTHING``.

    An interval is two overlapping blocks whose length is a power of two; the maxima of long blocks
    are handed down to their halves.
    """
    result = np.full(n, NOTHING, np.int64)
    kept = np.flatnonzero(last >= first)
    first, last, value = first[kept], last[kept], value[kept]
    level = np.frexp((last - first + 1).astype(np.float64))[1].astype(np.int64) - 1
    order = np.argsort(level, kind="stable")
    borders = np.searchsorted(level[order], np.arange(int(level.max(initial=-1)) + 2))
    for k in range(len(borders) - 2, -1, -1):
        mine = order[borders[k] : borders[k + 1]]
        np.maximum.at(result, first[mine], value[mine])
        np.maximum.at(result, last[mine] + 1 - (1 << k), value[mine])
        half = (1 << k) >> 1
        if half:
            result[half:] = np.maximum(result[half:], result[:-half])
    return result


def covered_at_least(
    first: IntColumn, last: IntColumn, value: IntColumn, least: IntColumn
) -> IntColumn:
    """Return how many of the intervals that hold each place have a value of at least ``least``.

    Values are 0 or more, ``least`` is 1 or more and has one entry a place. A value exceeds
    ``least - 1`` at the highest bit in which they differ: each bit is one sort and one search.
    """
    n = len(least)
    limit = least - 1
    count = np.zeros(n, np.int64)
    place = np.arange(n)
    top = max(int(value.max(initial=0)), int(limit.max(initial=0)))
    for bit in range(top.bit_length()):
        high = np.flatnonzero((value >> bit) & 1)
        asked = np.flatnonzero((limit >> bit) & 1 == 0)
        if len(high) == 0 or len(asked) == 0:
            continue
        # One number holds the prefix of bits, the place, and whether an interval begins or ends.
        group = (value[high] >> bit) * (n + 1)
        events = np.sort(
            np.concatenate([(group + first[high]) * 2, (group + last[high] + 1) * 2 + 1])
        )
        # Each interval adds up to nothing, so the sums of a group start at 0.
        open_after = before(1 - 2 * (events & 1))
        wanted = ((limit[asked] >> bit) | 1) * (n + 1) + place[asked]
        count[asked] += open_after[np.searchsorted(events, wanted * 2 + 1, side="right")]
    return count
