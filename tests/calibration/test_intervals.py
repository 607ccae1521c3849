"""Intervals of means, and Student's t against printed tables and its own definition."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.calibration.intervals import mean_interval, student_cdf, student_quantile
from tests.refusals import refused

# Quantiles of Student's t at 0.975, as printed in statistical tables.
PRINTED = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 11: 2.201, 19: 2.093,
    29: 2.045, 30: 2.042, 120: 1.980, 1000: 1.962,
}  # fmt: skip


def test_quantiles_are_those_of_printed_tables():
    for freedom, value in PRINTED.items():
        assert round(student_quantile(0.975, freedom), 3) == value
    assert student_quantile(0.975, 10**6) == pytest.approx(1.9599639845, abs=1e-5)
    assert student_quantile(0.75, 1) == pytest.approx(1)  # Cauchy: tan(pi / 4)
    assert student_quantile(0.9, 2) == pytest.approx(0.8 / math.sqrt(2 * 0.9 * 0.1))


@given(st.floats(0, 50), st.integers(1, 200))
def test_the_distribution_function_rises_and_has_its_quantiles(t, freedom):
    value = student_cdf(t, freedom)
    assert 0.5 <= value <= 1
    assert student_cdf(t + 1, freedom) >= value
    if 0.5 < value < 1 - 1e-9:
        assert student_quantile(value, freedom) == pytest.approx(t, rel=1e-5, abs=1e-6)


def test_intervals_hold_the_mean_as_often_as_they_say():
    draws = random.Random(0)
    held = 0
    for _ in range(2000):
        interval = mean_interval([draws.gauss(3, 2) for _ in range(5)])
        held += interval.low <= 3 <= interval.high
    assert 0.935 < held / 2000 < 0.965


def test_one_value_has_no_interval_and_none_no_mean():
    assert mean_interval([4.0]) == (1, 4.0, None, None)
    assert mean_interval([4.0, 4.0]) == (2, 4.0, 4.0, 4.0)
    refused("no values", mean_interval, [], kind=ValueError)
    for probability, freedom in ((0.4, 3), (1.0, 3), (0.9, 0)):
        refused("no quantile", student_quantile, probability, freedom, kind=ValueError)
