"""Sums, maxima and counts over intervals, against one position at a time."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.checker.intervals import (
    NOTHING,
    count_above,
    covering,
    exact_product,
    exact_sum,
    highest,
)


def drawn(seed):
    """Intervals with values over some positions, and a limit for each position."""
    dice = np.random.default_rng(seed)
    length, many = int(dice.integers(1, 300)), int(dice.integers(0, 200))
    ends = np.sort(dice.integers(0, length, (2, many)), axis=0)
    most = int(dice.choice([1, 2, 7, 8, 100, 2**31 - 1]))
    return (
        length,
        ends[0],
        ends[1],
        dice.integers(0, most, many),
        dice.integers(0, most + 1, length),
    )


@pytest.mark.parametrize("seed", range(60))
def test_each_position_sees_the_intervals_that_hold_it(seed):
    length, first, last, values, limits = drawn(seed)
    held = [values[(first <= p) & (p <= last)].tolist() for p in range(length)]
    assert covering(length, first, last).tolist() == [len(there) for there in held]
    assert covering(length, first, last, values).tolist() == [sum(there) for there in held]
    longest = [max(there, default=NOTHING) for there in held]
    assert highest(length, first, last, values).tolist() == longest
    above = [sum(v > limit for v in there) for there, limit in zip(held, limits, strict=True)]
    assert count_above(first, last, values, limits).tolist() == above


def test_many_pairs_are_counted_bit_by_bit():
    """Most of the cases above have more pairs than are compared one by one."""
    assert sum(drawn(s)[0] * len(drawn(s)[1]) > 4096 for s in range(60)) > 30


def test_sums_beyond_64_bits():
    values = np.array([2**62, 2**62 - 1, 2**62, 5], np.int64)
    factors = np.array([2**31 - 1, 3, 2**30, 0], np.int64)
    assert exact_sum(values) == 3 * 2**62 + 4
    products = zip(factors.tolist(), values.tolist(), strict=True)
    assert exact_product(factors, values) == sum(a * b for a, b in products)
