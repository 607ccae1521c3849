"""Kendall's tau against the count of all pairs."""

from __future__ import annotations

from itertools import combinations
from math import isnan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.prediction.evaluation import inversions, kendall_tau


def by_pairs(first, second):
    agreed = in_x = in_y = 0
    for (x, y), (u, v) in combinations(zip(first, second, strict=True), 2):
        agreed += np.sign(x - u) * np.sign(y - v)
        in_x += x != u
        in_y += y != v
    return agreed / sqrt(in_x * in_y) if in_x and in_y else float("nan")


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=2, max_size=40))
def test_it_is_that_of_all_pairs(pairs):
    first, second = (np.array(column) for column in zip(*pairs, strict=True))
    found, wanted = kendall_tau(first, second), by_pairs(first, second)
    assert (isnan(found) and isnan(wanted)) or found == pytest.approx(wanted)


def test_it_is_that_of_scipy_on_many_rows():
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    first = random.integers(0, 300, 5000)
    second = first + random.integers(0, 200, 5000)
    assert kendall_tau(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


@given(st.lists(st.integers(0, 20), max_size=30))
def test_inversions(ranks):
    wanted = sum(a > b for a, b in combinations(ranks, 2))
    assert inversions(np.array(ranks, np.int64)) == wanted


def test_ends_and_refusals():
    rising = np.arange(10)
    assert kendall_tau(rising, 3 * rising) == pytest.approx(1)
    assert kendall_tau(rising, -rising) == pytest.approx(-1)
    assert isnan(kendall_tau(rising, rising * 0))
    with pytest.raises(InputError):
        kendall_tau(rising, rising[:-1])
