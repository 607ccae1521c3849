"""Sums, maxima and counts over intervals of places, in time and memory linear in both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import IntColumn, exact_sum

if TYPE_CHECKING:
    Mask = np.ndarray[Any, np.dtype[np.bool_]]

NOTHING = -(2**62)
"""Maximum of no values."""

_SMALL = 4096
"""Pairs of an interval and a place that are faster compared one by one."""


def before(values: IntColumn) -> IntColumn:
    """Return the sums of the values before each place, and of all of them at the end."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def covered_sum(
    n: int, first: IntColumn, last: IntColumn, value: IntColumn | None = None
) -> IntColumn:
    """Return, for each of n places, the sum of the values (default 1) whose interval holds it.

    Intervals [first, last] include both ends; those with last = first - 1 are empty.
    """
    change = np.zeros(n + 1, np.int64)
    if value is None:
        change += np.bincount(first, minlength=n + 1)
        change -= np.bincount(last + 1, minlength=n + 1)
    else:
        np.add.at(change, first, value)
        np.subtract.at(change, last + 1, value)
    return np.cumsum(change)[:-1]


def covered_max(n: int, first: IntColumn, last: IntColumn, value: IntColumn) -> IntColumn:
    """Return the maximum of the values whose interval holds each place, else ``NOTHING``.

    An interval is two overlapping ones whose length is a power of two; those of one length are
    split in halves, from the longest on.
    """
    result = np.full(n, NOTHING, np.int64)
    power = np.frexp(last - first + 1)[1] - 1  # -1 for empty intervals
    order = np.argsort(power, kind="stable")
    first, last, value, power = first[order], last[order], value[order], power[order]
    border = np.searchsorted(power, np.arange(int(power.max(initial=-1)) + 2))
    for k in range(len(border) - 2, -1, -1):
        rows = slice(border[k], border[k + 1])
        np.maximum.at(result, first[rows], value[rows])
        np.maximum.at(result, last[rows] + 1 - (1 << k), value[rows])
        if k:
            half = 1 << (k - 1)
            result[half:] = np.maximum(result[half:], result[:-half])
    return result


def covered_above(
    first: IntColumn, last: IntColumn, value: IntColumn, limit: IntColumn
) -> IntColumn:
    """Return how many of the intervals that hold each place have a value above its limit.

    Values and limits are at least 0. They are compared bit by bit, the highest first: where the
    limit has a 0, the values with a 1 are above it, and the others continue together.
    """
    result = np.zeros(len(limit), np.int64)
    high = max(int(value.max(initial=0)), int(limit.max(initial=0)))
    stack = [(first, last, value, np.arange(len(limit)), high.bit_length() - 1)]
    while stack:
        first, last, value, places, bit = stack.pop()
        if len(first) == 0 or len(places) == 0 or bit < 0:
            continue
        here = limit[places]
        if len(first) * len(places) <= _SMALL:
            index = np.arange(len(places))[:, None]
            above = (first <= index) & (index <= last) & (value > here[:, None])
            result[places] += above.sum(axis=1)
            continue
        ones = (here >> bit & 1) == 1
        tall = (value >> bit & 1) == 1
        for rest, rows in ((ones, tall), (~ones, ~tall)):
            inner = _among(rest, first[rows], last[rows], value[rows])
            stack.append((*inner, places[rest], bit - 1))
        low = places[~ones]
        begin, end, _ = _among(~ones, first[tall], last[tall], value[tall])
        result[low] += covered_sum(len(low), begin, end)
    return result


def _among(
    kept: Mask, first: IntColumn, last: IntColumn, value: IntColumn
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Intervals over the kept places only, which are numbered again; those with none go."""
    number = before(kept.astype(np.int64))
    begin, end = number[first], number[last + 1] - 1
    some = begin <= end
    return begin[some], end[some], value[some]


def exact_product(factors: IntColumn, values: IntColumn) -> int:
    """Return the sum of the products of two columns without overflow, for factors below 2**31."""
    high, low = values >> 31, values & (2**31 - 1)
    return (exact_sum(factors * high) << 31) + exact_sum(factors * low)


def spanned_max(values: IntColumn, first: IntColumn, last: IntColumn) -> IntColumn:
    """Return the maximum of the values from each first to each last place, both included.

    ``NOTHING`` for intervals with last < first. An interval is two overlapping ones whose length is
    a power of two; the maxima over all intervals of one length are made from those of half of it.
    """
    found = np.full(len(first), NOTHING, np.int64)
    power = np.frexp(np.maximum(last - first + 1, 0))[1] - 1  # -1 for empty intervals
    order = np.argsort(power, kind="stable")
    border = np.searchsorted(power[order], np.arange(int(power.max(initial=-1)) + 2))
    most = values
    for k in range(len(border) - 1):
        if k:
            half = 1 << (k - 1)
            most = np.maximum(most[:-half], most[half:])
        rows = order[border[k] : border[k + 1]]
        found[rows] = np.maximum(most[first[rows]], most[last[rows] + 1 - (1 << k)])
    return found
