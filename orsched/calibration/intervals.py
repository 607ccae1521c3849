"""Confidence intervals of means and shares, and Student's t law: one implementation of each."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    Floats = np.ndarray[Any, np.dtype[np.float64]]


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
            "no values to take the mean of",
            field="values",
            remedy="give at least one value",
        )
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(1, mean, None, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = student_quantile(0.5 + level / 2, n - 1) * math.sqrt(variance / n)
    return Interval(n, mean, mean - half, mean + half)


def wilson(attained: int, requests: int, level: float) -> tuple[float, float]:
    """Return Wilson's interval of a share of independent requests (Wilson 1927)."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, square = attained / requests, z * z / requests
    middle = (share + square / 2) / (1 + square)
    half = z / (1 + square) * math.sqrt(share * (1 - share) / requests + square / (4 * requests))
    low = 0.0 if attained == 0 else max(0.0, middle - half)
    return low, 1.0 if attained == requests else min(1.0, middle + half)


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """Return Student's t quantile by bisection; ``ValueError`` unless 0.5 <= p < 1 <= freedom."""
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


def upper_quantiles(freedom: int, shares: Floats) -> Floats:
    """Return where Student's t leaves shares above it, each above 0 and at most a half.

    With t = sqrt(freedom) tan(a) its density in a is cos(a) to the power freedom - 1: bounded, on
    a bounded interval, so a sum over a grid is exact to six digits down to shares of 1e-4.
    """
    angles, above = _above(freedom)
    found = np.interp(np.log(shares), above[::-1], angles[::-1])
    return np.asarray(np.sqrt(freedom) * np.tan(found), np.float64)


_GRID = 20_000


@cache
def _above(freedom: int) -> tuple[Floats, Floats]:
    """Return angles from 0 and the logarithm of the share above each."""
    angles = np.linspace(0, np.pi / 2, _GRID + 1)
    middles = (angles[1:] + angles[:-1]) / 2
    pieces = np.cos(middles) ** (freedom - 1)
    above = np.cumsum(pieces[::-1])[::-1] / (2 * pieces.sum())
    return angles[:-1], np.log(above)


def log_density(freedom: int, places: Floats) -> Floats:
    """Return the logarithm of Student's density."""
    constant = (
        math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    )
    return np.asarray(
        constant - (freedom + 1) / 2 * np.log1p(places * places / freedom), np.float64
    )
