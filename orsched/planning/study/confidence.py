"""Confidence intervals of means, by Student's t; numpy-free and without scipy."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Interval(NamedTuple):
    """A mean with the ends of its confidence interval, which are None for fewer than two values."""

    size: int
    mean: float
    low: float | None
    high: float | None


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean of values with its two-sided confidence interval at a level.

    ``mean +- t sqrt(s^2 / n)`` with the sample variance s^2 and the quantile t of Student's law
    with n - 1 degrees of freedom: exact for normal values, by the central limit theorem for many.

    Raises ``InputError`` for no values.
    """
    n = len(values)
    if n == 0:
        raise InputError(
            "there are no values to take the mean of",
            field="values",
            remedy="give at least one value",
        )
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(1, mean, None, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = student_quantile(0.5 + level / 2, n - 1) * math.sqrt(variance / n)
    return Interval(n, mean, mean - half, mean + half)


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t law with some degrees of freedom, by bisection.

    Raises ``ValueError`` unless 0.5 <= probability < 1 and freedom >= 1.
    """
    if not 0.5 <= probability < 1 or freedom < 1:
        raise ValueError(f"no quantile at {probability} with {freedom} degrees of freedom")
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < probability:
        low, high = high, 2 * high
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return middle
        low, high = (middle, high) if student_cdf(middle, freedom) < probability else (low, middle)


def student_cdf(t: float, freedom: int) -> float:
    """Return P(T <= t), t >= 0, from the regularised incomplete beta function.

    P(T <= t) = 1 - I_x(v/2, 1/2) / 2 with x = v / (v + t^2) (Abramowitz and Stegun, 26.7.1).
    """
    x = freedom / (freedom + t * t)
    return 1 - _incomplete_beta(freedom / 2, 0.5, x) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return I_x(a, b) by its continued fraction (Abramowitz and Stegun, 26.5.8)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x)) / a
    # Evaluated from the end: the number of terms is far beyond what this range of x needs.
    fraction = 1.0
    for m in range(200, 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        fraction = 1 + even / (1 + odd / fraction)
    return front / (1 - (a + b) * x / (a + 1) / fraction)
