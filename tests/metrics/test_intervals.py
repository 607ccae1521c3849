"""Sums, maxima and counts over intervals, against a loop over places."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orsched.intervals import NOTHING, before, covered_at_least, covered_max, covered_sum


@st.composite
def cases(draw):
    """Number of places, intervals (some empty), and a value for each."""
    n = draw(st.integers(1, 40))
    count = draw(st.integers(0, 12))
    first = [draw(st.integers(0, n - 1)) for _ in range(count)]
    last = [draw(st.integers(f - 1, n - 1)) for f in first]
    value = [draw(st.integers(0, 50)) for _ in range(count)]
    return n, *(np.array(column, np.int64) for column in (first, last, value))


def covering(first, last, place):
    return np.flatnonzero((first <= place) & (place <= last))


@given(cases())
def test_sums_and_maxima(case):
    n, first, last, value = case
    sums, counts = covered_sum(n, first, last, value), covered_sum(n, first, last)
    largest = covered_max(n, first, last, value - 25)
    for place in range(n):
        rows = covering(first, last, place)
        assert sums[place] == value[rows].sum()
        assert counts[place] == len(rows)
        assert largest[place] == (value[rows] - 25).max(initial=NOTHING)


@given(cases(), st.data())
def test_counts_of_values_that_are_large_enough(case, data):
    n, first, last, value = case
    least = np.array([data.draw(st.integers(1, 70)) for _ in range(n)], np.int64)
    found = covered_at_least(first, last, value, least)
    for place in range(n):
        assert found[place] == (value[covering(first, last, place)] >= least[place]).sum()


def test_sums_before_each_place():
    assert before(np.array([3, 0, 4])).tolist() == [0, 3, 3, 7]
    assert before(np.empty(0, np.int64)).tolist() == [0]


def test_huge_values_have_a_maximum():
    ends = np.array([0, 1])
    assert covered_max(2, ends, ends, np.array([2**61, -(2**61)])).tolist() == [2**61, -(2**61)]
