"""When an axis is logarithmic, and what its numbers look like: one rule for all pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

LOG_FROM = 30.0
"""An axis is logarithmic where the largest value is more than so many times the smallest."""


def wants_log(values: Iterable[float]) -> bool:
    """Return whether an axis of some values is to be logarithmic: all positive, and far apart."""
    known = np.array([value for value in values if value is not None and np.isfinite(value)])
    return bool(len(known) and known.min() > 0 and known.max() > LOG_FROM * known.min())


def scale_axis(ax: Any, which: str, values: Iterable[float]) -> bool:
    """Make the axis ``x`` or ``y`` logarithmic if its values want it, numbers written in full."""
    if not wants_log(values):
        return False
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    getattr(ax, f"set_{which}scale")("log")
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(LogLocator(10, subs=(1.0,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    low, high = (getattr(np, name)([v for v in values if v is not None]) for name in ("min", "max"))
    if np.log10(high / low) > 3:
        axis.set_minor_formatter(NullFormatter())
    else:  # too few powers of ten to read the axis by
        axis.set_minor_locator(LogLocator(10, subs=(2.0, 5.0), numticks=12))
        axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    return True
