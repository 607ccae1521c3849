"""Conversions between the integer nanoseconds inside and the seconds at the edge of the API."""

from __future__ import annotations

import math
from fractions import Fraction

from orsched.errors import InputError
from orsched.scalars import is_number

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

MAX_TIME_NS = 2**62
"""Largest time that orsched stores (146 years): twice it still fits into 64 bits."""

MAX_TOKENS = 2**31 - 1
"""Largest token count of one request."""


def seconds_to_ns(seconds: float, field: str = "time") -> int:
    """Round seconds to integer nanoseconds, exactly (no float product).

    Raises ``InputError`` for NaN, infinity, negative values and times above ``MAX_TIME_NS``.
    """
    if not is_number(seconds):
        raise InputError(f"{seconds!r} is not a number of seconds", field=field)
    if not math.isfinite(seconds):
        raise InputError(f"{seconds} is not a finite time", field=field, remedy="give seconds")
    ns = round(Fraction(seconds) * NS_PER_S)
    if ns < 0:
        raise InputError(f"{seconds} s is negative", field=field, remedy="times start at 0")
    if ns > MAX_TIME_NS:
        raise InputError(f"{seconds} s is too large", field=field, remedy="the limit is 2**62 ns")
    return ns


def ns_to_seconds(ns: int) -> float:
    """Return nanoseconds as seconds, correctly rounded."""
    return ns / NS_PER_S
