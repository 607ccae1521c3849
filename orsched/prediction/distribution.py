"""Distributions over output lengths, as quantiles; points and classes are derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.common.scalars import is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from orsched.common.columns import IntColumn
    from orsched.prediction.tails import Tails

    Floats = NDArray[np.float64]

POINTS = ("median", "mean")
"""The points that have a name; a number between 0 and 1 is that quantile."""


@dataclass(frozen=True, eq=False)
class LengthDistribution:
    """Predicted lengths of n requests.

    Between quantiles the logarithm of the length is linear in the probability; below the first it
    falls to 1 token, above the last it rises to the longest. With tails it follows their law there,
    up to where each leaves a fiftieth of its probability.

    Attributes:
        levels: (k,), strictly increasing, between 0 and 1.
        values: (n, k), tokens, at least 1, in each row not decreasing.
        longest: tokens at probability 1; a row whose last quantile, or last knot of the tail, is
            above it ends there.
        tails: what is beyond the outermost quantiles; None: straight lines.
    """

    levels: Floats
    values: Floats
    longest: float
    tails: Tails | None = None

    def __post_init__(self) -> None:
        values = self.values
        if values.ndim != 2 or values.shape[1:] != self.levels.shape:
            raise InputError(
                "one row a request, one column a level",
                field="values",
                remedy="give an array of two dimensions",
            )
        require_levels(self.levels)
        if not (np.isfinite(values).all() and (values >= 1).all()):
            raise InputError("must be finite, and at least 1 token", field="values")
        if (values[:, 1:] < values[:, :-1]).any():
            raise InputError("must not decrease with the level", field="values")

    def __len__(self) -> int:
        return len(self.values)

    def columns(self) -> tuple[Floats, Floats]:
        """Return levels and quantiles, those of the tails among them; shapes (m,) and (n, m)."""
        if self.tails is None:
            return self.levels, self.values
        levels, logs = self.tails.knots(self.levels, np.log(self.values))
        values = np.exp(logs)
        side = (len(levels) - len(self.levels)) // 2
        values[:, side:-side] = self.values
        return levels.round(9), values

    def quantile(self, level: float) -> Floats:
        """Return the length that the requests stay below with a probability; shape (n,)."""
        if not is_number(level) or not 0 <= level <= 1:
            raise InputError(f"{level!r} is no probability", field="level", remedy="from 0 to 1")
        levels, logs = self._knots()
        right = int(np.clip(np.searchsorted(levels, level), 1, len(levels) - 1))
        share = (level - levels[right - 1]) / (levels[right] - levels[right - 1])
        found = np.exp(logs[:, right - 1] * (1 - share) + logs[:, right] * share)
        return np.asarray(found, np.float64)

    def mean(self) -> Floats:
        """Return the mean lengths; shape (n,)."""
        levels, logs = self._knots()
        steps, widths = np.diff(logs, axis=1), np.diff(levels)
        lengths = np.exp(logs)
        # The mean of exp over a straight piece is its difference over the difference of logs.
        flat = steps < 1e-9
        pieces = np.where(
            flat, lengths[:, :-1], np.diff(lengths, axis=1) / np.where(flat, 1, steps)
        )
        return np.asarray(pieces @ widths, np.float64)

    def tokens(self, point: str | float = "median") -> IntColumn:
        """Return whole tokens, at least 1: ``median``, ``mean`` or the quantile of a number."""
        if point == "mean":
            found = self.mean()
        else:
            found = self.quantile(0.5 if point == "median" else read_point(point))
        return np.maximum(np.rint(found), 1).astype(np.int64)

    def below(self, thresholds: ArrayLike) -> Floats:
        """Return the probability of at most so many tokens; shape (n, number of thresholds)."""
        levels, logs = self._knots()
        wanted = np.log(np.maximum(np.asarray(thresholds, np.float64), 1e-300))
        found = np.empty((len(self), len(wanted)))
        rows = np.arange(len(self))
        for place, limit in enumerate(wanted):
            right = np.clip((logs <= limit).sum(axis=1), 1, len(levels) - 1)
            low, high = logs[rows, right - 1], logs[rows, right]
            flat = high <= low
            share = np.clip((limit - low) / np.where(flat, 1, high - low), 0, 1)
            share = np.where(flat, limit >= high, share)
            found[:, place] = levels[right - 1] + share * (levels[right] - levels[right - 1])
        return found

    def buckets(self, edges: ArrayLike) -> Floats:
        """Return the probability of each class of lengths; shape (n, number of edges + 1).

        A class ends with the edge: at most the first edge, above it and at most the second, ...
        """
        up_to = self.below(edges)
        ends = (np.zeros((len(self), 1)), up_to, np.ones((len(self), 1)))
        return np.maximum(np.diff(np.hstack(ends), axis=1), 0)

    def _knots(self) -> tuple[Floats, Floats]:
        """Return levels with 0 and 1, and the logarithms of the lengths at them."""
        levels, logs = self.levels, np.log(self.values)
        if self.tails is not None:
            levels, logs = self.tails.knots(levels, logs)
        last = np.maximum(logs[:, -1:], np.log(self.longest))
        levels = np.concatenate(([0.0], levels, [1.0]))
        return levels, np.hstack([np.zeros((len(logs), 1)), logs, last])


def require_levels(levels: Floats) -> None:
    """Raise ``InputError`` unless levels increase strictly between 0 and 1."""
    inside = levels.ndim == 1 and len(levels) and levels[0] > 0 and levels[-1] < 1
    if not inside or not (np.diff(levels) > 0).all():
        raise InputError("must increase strictly between 0 and 1", field="levels")


def read_point(point: object) -> float:
    """Return the level that a point stands for; raises ``InputError`` for anything but a number."""
    try:
        level = float(point)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        level = -1.0
    if not 0 < level < 1:
        raise InputError(
            f"{point!r} is no point of a distribution",
            field="point",
            remedy="median, mean, or a number between 0 and 1 for that quantile",
        )
    return level


def class_of(lengths: ArrayLike, edges: Sequence[float] | Floats) -> IntColumn:
    """Return the class of each length; a length on an edge belongs below it, as in ``buckets``."""
    return np.searchsorted(np.asarray(edges, np.float64), lengths, side="left").astype(np.int64)
