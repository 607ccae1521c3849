"""Sums, maxima and counts over intervals, against one place at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.common.columns import exact_sum
from orsched.metrics.timeline_rows import (
    NOTHING,
    before,
    covered_above,
    covered_max,
    covered_sum,
    exact_product,
)


@st.composite
def cases(draw):
    """Number of places, intervals (some empty), a value for each, and a limit for each place."""
    n = draw(st.integers(1, 40))
    count = draw(st.integers(0, 12))
    first = [draw(st.integers(0, n - 1)) for _ in range(count)]
    last = [draw(st.integers(f - 1, n - 1)) for f in first]
    value = [draw(st.integers(0, 50)) for _ in range(count)]
    limit = [draw(st.integers(0, 70)) for _ in range(n)]
    return n, *(np.array(column, np.int64) for column in (first, last, value, limit))


def drawn(seed):
    """The same, larger: values beyond 2**31, more pairs than are compared one by one."""
    dice = np.random.default_rng(seed)
    n, many = int(dice.integers(1, 300)), int(dice.integers(0, 200))
    ends = np.sort(dice.integers(0, n, (2, many)), axis=0)
    most = int(dice.choice([1, 2, 7, 8, 100, 2**31 - 1]))
    return n, ends[0], ends[1], dice.integers(0, most, many), dice.integers(0, most + 1, n)


def require_right(n, first, last, value, limit):
    held = [value[(first <= place) & (place <= last)].tolist() for place in range(n)]
    assert covered_sum(n, first, last).tolist() == [len(there) for there in held]
    assert covered_sum(n, first, last, value).tolist() == [sum(there) for there in held]
    largest = [max((v - 25 for v in there), default=NOTHING) for there in held]
    assert covered_max(n, first, last, value - 25).tolist() == largest
    above = [sum(v > least for v in there) for there, least in zip(held, limit, strict=True)]
    assert covered_above(first, last, value, limit).tolist() == above


@given(cases())
def test_each_place_sees_the_intervals_that_hold_it(case):
    require_right(*case)


@pytest.mark.parametrize("seed", range(60))
def test_many_intervals(seed):
    require_right(*drawn(seed))


def test_many_pairs_are_counted_bit_by_bit():
    """Most of the cases above have more pairs than are compared one by one."""
    assert sum(drawn(s)[0] * len(drawn(s)[1]) > 4096 for s in range(60)) > 30


def test_sums_before_each_place():
    assert before(np.array([3, 0, 4])).tolist() == [0, 3, 3, 7]
    assert before(np.empty(0, np.int64)).tolist() == [0]


def test_huge_values_have_a_maximum():
    ends = np.array([0, 1])
    assert covered_max(2, ends, ends, np.array([2**61, -(2**61)])).tolist() == [2**61, -(2**61)]


def test_sums_beyond_64_bits():
    values = np.array([2**62, 2**62 - 1, 2**62, 5], np.int64)
    factors = np.array([2**31 - 1, 3, 2**30, 0], np.int64)
    assert exact_sum(values) == 3 * 2**62 + 4
    products = zip(factors.tolist(), values.tolist(), strict=True)
    assert exact_product(factors, values) == sum(a * b for a, b in products)
