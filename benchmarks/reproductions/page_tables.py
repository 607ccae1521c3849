"""Tables as pages have them: rows between bars, means with half their confidence intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration.intervals import Interval


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a table of a page, all with the columns of the first."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(interval: Interval, digits: int = 1) -> str:
    """Return a mean with half the width of its 95 % confidence interval."""
    half = "" if interval.high is None else f" ±{interval.high - interval.mean:.{digits}f}"
    return f"{interval.mean:.{digits}f}{half}".replace("-", "−")
