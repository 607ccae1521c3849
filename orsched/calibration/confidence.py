"""How firmly rows determine fitted constants: standard errors and intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration.least_squares import RANK_TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration.least_squares import FloatArray

LEVEL = 0.95
"""How often an interval holds the true constant, if the model's form is right."""

NOT_DETERMINED = "not determined by these rows"

_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_NORMAL = 1.959964


class Constant(NamedTuple):
    """A fitted constant and what the rows say of it.

    Attributes:
        name: with its unit in the end, or without one: nanoseconds.
        value: as fitted.
        standard_error: None where the rows do not determine it.
        low, high: the interval at ``LEVEL``; None where it has no end.
    """

    name: str
    value: float
    standard_error: float | None
    low: float | None
    high: float | None

    @property
    def determined(self) -> bool:
        """Whether the interval has two ends."""
        return self.low is not None and self.high is not None

    def times(self, factor: float) -> Constant:
        """Return it in a unit that is smaller by a factor."""
        numbers = (None if x is None else factor * x for x in self[1:])
        return Constant(self.name, *numbers)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return value, standard_error, interval_95 (None: no end) and determined."""
        return {
            "value": self.value,
            "standard_error": self.standard_error,
            "interval_95": [self.low, self.high],
            "determined": self.determined,
        }

    def text(self) -> str:
        """Return it in words."""
        shown = f"{self.name} {self.value:,.6g}"
        if self.low is None or self.high is None:
            return f"{shown}, {NOT_DETERMINED}"
        return f"{shown} (95 %: {self.low:,.6g} to {self.high:,.6g})"


def confidence(
    design: FloatArray,
    target: FloatArray,
    names: Sequence[str],
    values: Sequence[float],
    *,
    nonnegative: bool,
) -> list[Constant]:
    """Return the constants of a least squares fit with their standard errors and intervals.

    Rows are weighted already, and are taken for independent and of equal variance, which is
    estimated from what the fit leaves. With ``nonnegative`` a constant of 0 is held there: the
    others are judged as if it were no constant, and it itself as if it were free; no interval
    goes below 0.
    """
    found = np.array(values, np.float64)
    held = nonnegative & (found <= 0)
    free = np.flatnonzero(~held)
    rest = len(target) - len(free)
    misses = design @ found - target
    variance = float(misses @ misses) / rest if rest > 0 else math.nan
    errors = dict(zip(free.tolist(), _errors(design[:, free], variance), strict=True))
    constants = []
    for place, (name, value) in enumerate(zip(names, found.tolist(), strict=True)):
        centre, error = value, errors.get(place)
        if place not in errors:
            columns = [*free.tolist(), place]
            error = _errors(design[:, columns], variance)[-1]
            centre = _last(design[:, columns], target) if error is not None else 0.0
        low = high = None
        if error is not None:
            half = student(rest) * error
            low, high = centre - half, centre + half
            if nonnegative:
                low, high = max(0.0, low), max(0.0, high)
        constants.append(Constant(name, value, error, low, high))
    return constants


def student(freedom: int) -> float:
    """Return the two-sided quantile of Student's t at ``LEVEL``."""
    if freedom < 1:
        return math.inf
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = _NORMAL
    found = z + (z**3 + z) / (4 * freedom)  # Fisher's expansion
    found += (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return found + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)


def _errors(design: FloatArray, variance: float) -> list[float | None]:
    """Return the standard error of each column's constant; None: not determined."""
    if design.shape[1] == 0:
        return []
    if math.isnan(variance):
        return [None] * design.shape[1]
    scale = np.linalg.norm(design, axis=0)
    normed = design / np.where(scale > 0, scale, 1.0)
    padded = np.vstack([normed, np.zeros((design.shape[1], design.shape[1]))])
    _, sizes, vectors = np.linalg.svd(padded, full_matrices=False)
    none = sizes <= RANK_TOLERANCE * max(float(sizes[0]), 1e-300)
    shares = (vectors / np.where(none, np.inf, sizes)[:, None]) ** 2
    unknown = (np.abs(vectors[none]) > 1e-6).any(axis=0) | (scale == 0)
    sums = shares.sum(axis=0)
    return [
        None if open_ else math.sqrt(variance * total) / size
        for open_, total, size in zip(unknown.tolist(), sums.tolist(), scale.tolist(), strict=True)
    ]


def _last(design: FloatArray, target: FloatArray) -> float:
    """Return the constant of the last column where all are free."""
    scale = np.linalg.norm(design, axis=0)
    values = np.linalg.lstsq(design / scale, target, rcond=None)[0] / scale
    return float(values[-1])
