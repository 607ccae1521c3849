"""Cells of the page's tables: numbers with half the widths of their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orsched.calibration.intervals import Interval


def shown(interval: Interval, sign: int = 1, digits: int = 1) -> str:
    """Return a share in per cent with half the width of its interval."""
    scaled = [None if x is None else 100 * x for x in interval[1:]]
    mean, _, high = scaled
    assert mean is not None
    half = "" if high is None else f" ±{high - mean:.{digits}f}"
    return f"{number(sign * mean, digits)}{half}"


def number(value: float, digits: int) -> str:
    """Return a number with a true minus, and 0 without one."""
    text = f"{value:.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text.replace("-", "−")
