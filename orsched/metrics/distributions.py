"""Quotients and percentiles of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn

PERCENTILES = (50, 90, 95, 99)


def ratio(numerator: int, denominator: int) -> float | None:
    """Return the quotient of two integers, correctly rounded; None for a denominator of 0."""
    return numerator / denominator if denominator else None


def distribution(values: IntColumn | Sequence[int]) -> dict[str, int | float] | None:
    """Return mean, nearest-rank percentiles and maximum of integers; None when there are none."""
    import numpy as np  # which help texts do without

    from orsched.common.columns import exact_sum

    n = len(values)
    if n == 0:
        return None
    ordered = np.sort(np.asarray(values, np.int64))
    summary: dict[str, int | float] = {"mean": exact_sum(ordered) / n}
    for percent in PERCENTILES:
        summary[f"p{percent}"] = int(ordered[-(-percent * n // 100) - 1])
    summary["max"] = int(ordered[-1])
    return summary
