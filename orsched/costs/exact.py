"""Exact integer arithmetic for cost models whose coefficients are finer than a nanosecond."""

from __future__ import annotations

import math
from fractions import Fraction

from orsched.common.errors import InputError
from orsched.common.scalars import printed

FS_PER_NS = 1_000_000
"""Femtoseconds in a nanosecond: the unit of the coefficients is 1e-15 s."""

FS_PER_MS = 10**12

MAX_COEFFICIENT_FS = 2**62
"""Largest size of a coefficient, 4,611 s: every one fits into 64 bits in a file."""


def floor_sum(count: int, divisor: int, slope: int, start: int) -> int:
    """Sum of ``(slope * i + start) // divisor`` over i = 0..count-1, in O(log) steps.

    Counts the lattice points below a line by Euclid's algorithm on (divisor, slope): the whole
    parts are summed in closed form, and what is left is the same sum with the axes exchanged.
    ``divisor`` is positive, ``count`` at least 0; slope and start may be negative.
    """
    total = 0
    while True:
        whole, slope = divmod(slope, divisor)
        total += whole * (count * (count - 1) // 2)
        whole, start = divmod(start, divisor)
        total += whole * count
        end = slope * count + start
        if end < divisor:
            return total
        count, start = divmod(end, divisor)
        divisor, slope = slope, divisor


def round_half_up(numerator: int, denominator: int) -> int:
    """Nearest whole number to the fraction; halves go up."""
    return (2 * numerator + denominator) // (2 * denominator)


def round_half_up_sum(count: int, denominator: int, slope: int, start: int) -> int:
    """Sum of ``round_half_up(start + slope * i, denominator)`` over i = 0..count-1."""
    return floor_sum(count, 2 * denominator, 2 * slope, 2 * start + denominator)


def to_whole_units(value: float | Fraction, units: int, field: str) -> int:
    """Return a number as whole fractions 1/units of one, the nearest.

    Raises ``InputError`` for what is no finite number and for results above 2**62.
    """
    wrong_type = isinstance(value, bool) or not isinstance(value, (int, float, Fraction))
    if wrong_type or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(
            f"{printed(value)} is not a finite number", field=field, remedy="give a finite number"
        )
    whole = round(Fraction(value) * units)
    if abs(whole) > MAX_COEFFICIENT_FS:
        raise InputError(
            f"{printed(value)} is too large",
            field=field,
            remedy="give a smaller number, or another unit",
        )
    return whole
