"""Distributions over lengths: quantiles, and log-t tails beyond the outermost ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.calibration.intervals import log_density, upper_quantiles
from orsched.common.errors import InputError
from orsched.common.scalars import is_number, require_number
from orsched.files.document import require_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from orsched.common.columns import IntColumn

    Floats = NDArray[np.float64]


LOG_T = "log-t"

FREEDOMS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60)
"""Degrees of freedom that are tried: 1 is Cauchy's law, with 60 the tail is nearly a normal one."""

BEYOND = (0.5, 0.2, 0.1, 0.04, 0.02)
"""Shares of a tail's probability that its knots leave beyond them: above the quantile 0.95 the
quantiles 0.975, 0.99, 0.995, 0.998 and 0.999. Between knots the logarithm is linear."""

LEAST_ROWS = 20  # held-out replies beyond the outermost quantile that a tail is fitted on, at least

MOST_SCALE = 10.0

MOST_LOG = 40.0  # logarithm of a length that no knot exceeds: no file can make one overflow


@dataclass(frozen=True)
class Tail:
    """One side beyond the outermost quantile, whose level leaves a share p beyond it.

    The logarithm of a length is as far beyond that quantile's as ``scale`` times the difference of
    the quantiles of Student's t.
    """

    freedom: int  # degrees of freedom, one of ``FREEDOMS``
    scale: float  # of the logarithm of the length, above 0

    def beyond(self, share: float) -> Floats:
        """Return how far the knots are beyond the quantile that leaves a share; ``BEYOND``."""
        left = share * np.concatenate(([1.0], BEYOND))
        places = upper_quantiles(self.freedom, left)
        return np.asarray(self.scale * (places[1:] - places[0]), np.float64)


@dataclass(frozen=True)
class Tails:
    """Both sides."""

    lower: Tail
    upper: Tail

    def document(self) -> dict[str, Any]:
        """Return what is written into a predictor's file; ``tails_from`` is the inverse."""
        sides = {name: vars(getattr(self, name)) for name in ("lower", "upper")}
        return {"law": LOG_T, **{name: dict(values) for name, values in sides.items()}}

    def knots(self, levels: Floats, logs: Floats) -> tuple[Floats, Floats]:
        """Return levels and logarithms with the knots of both tails; (k + 10,) and (n, k + 10).

        The lower tail ends at 1 token.
        """
        low, high = float(levels[0]), float(1 - levels[-1])
        shares = np.array(BEYOND)
        below = np.maximum(logs[:, :1] - self.lower.beyond(low)[::-1], 0.0)
        last = logs[:, -1:]
        above = np.maximum(last, np.minimum(last + self.upper.beyond(high), MOST_LOG))
        found = np.concatenate((low * shares[::-1], levels, 1 - high * shares))
        return found, np.hstack([below, logs, above])


def fit_tails(logs: Floats, truth: Floats, levels: Floats) -> Tails:
    """Return the tails under which held-out lengths beyond the outermost quantiles are likeliest.

    Logarithms of calibrated quantiles are (n, k), those of the lengths (n,), levels (k,). Raises
    ``InputError`` where fewer than ``LEAST_ROWS`` lengths are beyond one of them.
    """
    below, above = logs.min(axis=1) - truth, truth - logs.max(axis=1)
    return Tails(
        _fitted(below[below > 0], float(levels[0]), f"below the quantile {levels[0]:g}"),
        _fitted(above[above > 0], float(1 - levels[-1]), f"above the quantile {levels[-1]:g}"),
    )


def _fitted(excess: Floats, share: float, where: str) -> Tail:
    if len(excess) < LEAST_ROWS:
        raise InputError(
            f"{len(excess)} held-out replies are {where}, too few for a tail",
            field="tails",
            remedy=f"at least {LEAST_ROWS}: give more rows, or leave tails away",
        )
    scales = np.geomspace(1e-3, MOST_SCALE, 400)
    best = None
    for freedom in FREEDOMS:
        start = float(upper_quantiles(freedom, np.array([share]))[0])
        # The excess is scale * (T - start) for T of Student's law above start.
        places = start + excess[:, None] / scales
        likely = log_density(freedom, places).sum(axis=0) - len(excess) * np.log(scales)
        place = int(np.argmax(likely))
        # Laws of other freedoms have other constants, and the same share above their starts.
        if best is None or likely[place] > best[0]:
            best = (likely[place], Tail(freedom, float(scales[place])))
    assert best is not None
    return best[1]


def tails_from(value: object) -> Tails | None:
    """Return the tails of a predictor's document, None where it has none; ``InputError``."""
    if value is None:
        return None
    values = require_object(value, "tails")
    if values.get("law") != LOG_T:
        raise InputError(
            f"{values.get('law')!s:.40} is not a law", field="tails.law", remedy=f"{LOG_T}"
        )
    return Tails(_tail(values.get("lower"), "lower"), _tail(values.get("upper"), "upper"))


def _tail(value: object, side: str) -> Tail:
    values = require_object(value, f"tails.{side}")
    freedom = values.get("freedom")
    if type(freedom) is not int or freedom not in FREEDOMS:
        known = ", ".join(map(str, FREEDOMS))
        raise InputError(
            f"{freedom!r:.40} is none of {known}",
            field=f"tails.{side}.freedom",
            remedy="train again",
        )
    field = f"tails.{side}.scale"
    return Tail(freedom, require_number(values.get("scale"), field, 0.0, MOST_SCALE, above=True))


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
            raise InputError(f"{level!r} is not a probability", field="level", remedy="from 0 to 1")
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
            f"{point!r} is not a point of a distribution",
            field="point",
            remedy="median, mean, or a number between 0 and 1 for that quantile",
        )
    return level


def class_of(lengths: ArrayLike, edges: Sequence[float] | Floats) -> IntColumn:
    """Return the class of each length; a length on an edge belongs below it, as in ``buckets``."""
    return np.searchsorted(np.asarray(edges, np.float64), lengths, side="left").astype(np.int64)
