"""Log-t tails: what is beyond the outermost quantiles, fitted on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.common.intervals import log_density, upper_quantiles
from orsched.common.scalars import require_number
from orsched.files.document import require_object

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LOG_T = "log-t"

FREEDOMS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60)
"""Degrees of freedom that are tried: 1 is Cauchy's law, with 60 the tail is nearly a normal one."""

BEYOND = (0.5, 0.2, 0.1, 0.04, 0.02)
"""Shares of a tail's probability that its knots leave beyond them: above the quantile 0.95 the
quantiles 0.975, 0.99, 0.995, 0.998 and 0.999. Between knots the logarithm is linear."""

LEAST_ROWS = 20
"""Held-out replies beyond the outermost quantile that a tail is fitted on, at least."""

MOST_SCALE = 10.0

MOST_LOG = 40.0
"""Logarithm of a length that no knot exceeds: no file can make one overflow."""


@dataclass(frozen=True)
class Tail:
    """One side beyond the outermost quantile, whose level leaves a share p beyond it.

    The logarithm of a length is as far beyond that quantile's as ``scale`` times the difference of
    the quantiles of Student's t.

    Attributes:
        freedom: degrees of freedom, one of ``FREEDOMS``.
        scale: of the logarithm of the length, above 0.
    """

    freedom: int
    scale: float

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

    Args:
        logs: calibrated logarithms of the quantiles; shape (n, k).
        truth: logarithms of the lengths; shape (n,).
        levels: (k,).

    Raises:
        InputError: fewer than ``LEAST_ROWS`` lengths are beyond one of them.
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
            f"{values.get('law')!s:.40} is no law", field="tails.law", remedy=f"{LOG_T}"
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
