"""Sums, maxima and counts over intervals of positions, in time and memory linear in both."""

from __future__ import annotations

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

NOTHING = -(2**62)
"""The largest of no values."""

_SMALL = 4096
"""Pairs of an interval and a position that are faster compared one by one."""


def before(values: Ints) -> Ints:
    """Return the sums of all earlier values, and the sum of all as one entry more."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def covering(length: int, first: Ints, last: Ints, weights: Ints | None = None) -> Ints:
    """Sum of weights (default 1) of the intervals [first, last] that hold each position."""
    change = np.zeros(length + 1, np.int64)
    if weights is None:
        change += np.bincount(first, minlength=length + 1)
        change -= np.bincount(last + 1, minlength=length + 1)
    else:
        np.add.at(change, first, weights)
        np.subtract.at(change, last + 1, weights)
    return np.cumsum(change)[:-1]


def highest(length: int, first: Ints, last: Ints, values: Ints) -> Ints:
    """Largest value of the intervals [first, last] that hold each position, or NOTHING.

    An interval is two overlapping ones whose length is a power of two; those of one length are
    split in halves, from the longest on.
    """
    result = np.full(length, NOTHING, np.int64)
    if len(first) == 0:
        return result
    power = np.frexp(last - first + 1)[1] - 1
    order = np.argsort(power, kind="stable")
    first, last, values, power = first[order], last[order], values[order], power[order]
    border = np.searchsorted(power, np.arange(int(power[-1]) + 2))
    for k in range(int(power[-1]), -1, -1):
        rows = slice(border[k], border[k + 1])
        np.maximum.at(result, first[rows], values[rows])
        np.maximum.at(result, last[rows] + 1 - (1 << k), values[rows])
        if k:
            half = 1 << (k - 1)
            result[half:] = np.maximum(result[half:], result[:-half])
    return result


def count_above(first: Ints, last: Ints, values: Ints, limits: Ints) -> Ints:
    """Number of intervals that hold each position with a value above the position's limit.

    Values and limits are at least 0. They are told apart bit by bit, the highest first: where
    the limit has a 0, the values with a 1 are above it, and the others go on together.
    """
    result = np.zeros(len(limits), np.int64)
    high = max(int(values.max(initial=0)), int(limits.max(initial=0)))
    stack = [(first, last, values, np.arange(len(limits)), high.bit_length() - 1)]
    while stack:
        first, last, values, places, bit = stack.pop()
        if len(first) == 0 or len(places) == 0 or bit < 0:
            continue
        here = limits[places]
        if len(first) * len(places) <= _SMALL:
            index = np.arange(len(places))[:, None]
            above = (first <= index) & (index <= last) & (values > here[:, None])
            result[places] += above.sum(axis=1)
            continue
        ones = (here >> bit & 1) == 1
        tall = (values >> bit & 1) == 1
        for rest, rows in ((ones, tall), (~ones, ~tall)):
            inner = _among(rest, first[rows], last[rows], values[rows])
            stack.append((*inner, places[rest], bit - 1))
        low = places[~ones]
        begin, end, _ = _among(~ones, first[tall], last[tall], values[tall])
        result[low] += covering(len(low), begin, end)
    return result


def _among(kept: Bools, first: Ints, last: Ints, values: Ints) -> tuple[Ints, Ints, Ints]:
    """Intervals over the kept positions only, which are numbered anew; those with none go."""
    number = before(kept.astype(np.int64))
    begin, end = number[first], number[last + 1] - 1
    some = begin <= end
    return begin[some], end[some], values[some]


def exact_sum(values: Ints) -> int:
    """Sum of a column without overflow."""
    high, low = values >> 31, values & (2**31 - 1)
    return (int(high.sum()) << 31) + int(low.sum())


def exact_product(factors: Ints, values: Ints) -> int:
    """Sum of the products of two columns without overflow, for factors below 2**31."""
    high, low = values >> 31, values & (2**31 - 1)
    return (exact_sum(factors * high) << 31) + exact_sum(factors * low)
