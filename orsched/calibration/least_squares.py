"""Least squares for a few coefficients; those that the data do not determine are named."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration.intervals import student_quantile
from orsched.common.errors import InputError
from orsched.costs.exact import FS_PER_NS

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.calibration.measurements import Measurements
    from orsched.common.columns import IntColumn


FloatArray = np.ndarray[Any, np.dtype[np.float64]]

RANK_TOLERANCE = 1e-9
"""Share of a normed column that must be new; the features are whole numbers, so no noise is."""


def solve(
    design: FloatArray, target: FloatArray, names: Sequence[str], *, nonnegative: bool
) -> FloatArray:
    """Return the coefficients that minimise ``|design @ x - target|``, optionally all >= 0.

    The non-negative optimum is the plain one on its own support, which is grown coefficient by
    coefficient (Lawson and Hanson, *Solving Least Squares Problems*, 1974, ch. 23).

    Raises ``InputError`` that names the coefficients that the rows do not determine.
    """
    scale = _identified(design, names)
    q, r = np.linalg.qr(design / scale)
    right = q.T @ target
    plain: FloatArray = np.linalg.solve(r, right)
    if not nonnegative or bool((plain >= 0).all()):
        return plain / scale
    return _grown(r, right) / scale


def _grown(r: FloatArray, right: FloatArray) -> FloatArray:
    """Return the x >= 0 that minimises ``|r @ x - right|``: one coefficient more at a time."""
    found, free = np.zeros(r.shape[1]), np.zeros(r.shape[1], bool)
    least = 1e-12 * float(np.abs(r.T @ right).max())
    for _ in range(3 * len(found)):
        gain = np.where(free, -np.inf, r.T @ (right - r @ found))
        if gain.max() <= least:
            break
        free[int(np.argmax(gain))] = True
        while True:
            wanted = np.zeros(len(found))
            wanted[free] = np.linalg.lstsq(r[:, free], right, rcond=None)[0]
            below = free & (wanted <= 0)
            if not below.any():
                found = wanted
                break
            share = found[below] / (found[below] - wanted[below])
            found = found + float(share.min()) * (wanted - found)
            free[np.flatnonzero(below)[share == share.min()]] = False
            found[~free] = 0.0
    return found


def _identified(design: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return the column norms, or name the coefficients in the null space of the design."""
    scale: FloatArray = np.linalg.norm(design, axis=0)
    free = scale == 0
    if not free.any():
        # Padding with zero rows gives the full set of right singular vectors for few rows too.
        padded = np.vstack([design / scale, np.zeros((len(names), len(names)))])
        _, values, vectors = np.linalg.svd(padded, full_matrices=False)
        null = vectors[values <= RANK_TOLERANCE * values[0]]
        free = (np.abs(null) > 1e-6).any(axis=0)
    if free.any():
        unknown = ", ".join(name for name, open_ in zip(names, free, strict=True) if open_)
        raise InputError(
            f"the measurements do not determine {unknown}",
            field=unknown.split(",")[0],
            remedy="measure more different sizes, varied independently of each other",
        )
    return scale


def split(design: FloatArray, share: float, rng: random.Random) -> tuple[IntColumn, IntColumn]:
    """Return the rows to fit to and the rows held out, each in order.

    The rows are shuffled; the first that raise the rank of the design always stay with the fit,
    so that holding out never makes determined coefficients undetermined.
    """
    order = list(range(len(design)))
    rng.shuffle(order)
    needed = _spanning(design, order)
    rest = [row for row in order if row not in needed]
    wanted = max(1, round(share * len(design))) if share > 0 else 0
    held = sorted(rest[:wanted])
    kept = sorted(needed.union(rest[wanted:]))
    return np.array(kept, np.int64), np.array(held, np.int64)


def _spanning(design: FloatArray, order: Sequence[int]) -> set[int]:
    """Return the first rows in this order that span the row space (Gram and Schmidt)."""
    scale = np.linalg.norm(design, axis=0)
    normed = design / np.where(scale > 0, scale, 1.0)
    left = normed.copy()
    size = np.linalg.norm(normed, axis=1)
    found: set[int] = set()
    for _ in range(design.shape[1]):
        fresh: NDArray[np.bool_] = np.linalg.norm(left, axis=1) > 1e-6 * size
        row = next((row for row in order if fresh[row]), None)
        if row is None:
            break
        found.add(row)
        axis = left[row] / np.linalg.norm(left[row])
        left -= np.outer(left @ axis, axis)
    return found


LEVEL = 0.95  # how often an interval holds the true constant, if the model's form is right

NOT_DETERMINED = "not determined by these rows"


class Constant(NamedTuple):
    """A fitted constant and what the rows say of it; its interval is that at ``LEVEL``."""

    name: str  # with its unit in the end, or without one: nanoseconds
    value: float  # as fitted
    standard_error: float | None  # None where the rows do not determine it
    low: float | None  # None where it has no end
    high: float | None  # None where it has no end

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
            half = student_quantile(0.5 + LEVEL / 2, rest) * error
            low, high = centre - half, centre + half
            if nonnegative:
                low, high = max(0.0, low), max(0.0, high)
        constants.append(Constant(name, value, error, low, high))
    return constants


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


@dataclass
class Work:
    """One fit in progress: data, options, the split of each phase, and warnings."""

    data: Measurements
    weighting: str
    nonnegative: bool
    holdout: float
    rng: random.Random
    level_caps: Sequence[int] | None
    quantile: float
    fitted: dict[str, IntColumn] = field(default_factory=dict)
    held: dict[str, IntColumn] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)

    def rows(self, phase: str, names: Sequence[str]) -> IntColumn:
        """Return the rows of a phase; without any, the coefficients' names go into the error."""
        rows = self.data.rows(phase)
        if len(rows) == 0:
            raise InputError(
                f"no {phase} measurement, but {', '.join(names)} are to be fitted",
                field="phase",
                remedy="measure such steps, or fit another model",
            )
        return rows

    def take(self, phase: str, rows: IntColumn, design: FloatArray) -> IntColumn:
        """Split a phase; return the positions in ``rows`` that are fitted to."""
        kept, held = split(design, self.holdout, self.rng)
        if self.holdout > 0 and len(held) == 0:
            raise InputError(
                f"{len(rows)} {phase} measurements leave none to hold out",
                field="phase",
                remedy=f"measure at least {len(kept) + 1} steps or set holdout=0",
            )
        self.fitted[phase], self.held[phase] = rows[kept], rows[held]
        return kept

    def weights(self, rows: IntColumn) -> FloatArray:
        """Return the factor of each row's residual."""
        if self.weighting == "relative":
            return 1.0 / self.data.column("duration_ns")[rows]
        return np.ones(len(rows))

    def linear(self, phase: str, names: Sequence[str], design: FloatArray) -> list[float]:
        """Fit the coefficients of a phase that is linear in them, in nanoseconds."""
        rows = self.rows(phase, names)
        self.solve(names, design, rows)  # names what all rows together do not determine
        kept = self.take(phase, rows, design)
        values = self.solve(names, design[kept], rows[kept])
        weights = self.weights(rows[kept])
        target = weights * self.data.column("duration_ns")[rows[kept]]
        self.judge(names, design[kept] * weights[:, None], target, values)
        if self.nonnegative:
            plain = self.solve(names, design[kept], rows[kept], nonnegative=False)
            for name, value in zip(names, plain, strict=True):
                if round(value * (FS_PER_NS if name.endswith("_fs") else 1)) < 0:
                    self.notes.append(f"{name} would be negative: held to at least 0")
        return values

    def judge(
        self,
        names: Sequence[str],
        design: FloatArray,
        target: FloatArray,
        values: Sequence[float],
        *,
        nonnegative: bool | None = None,
    ) -> None:
        """Keep how firmly weighted rows determine constants, in the units of their names."""
        bounded = self.nonnegative if nonnegative is None else nonnegative
        for found in confidence(design, target, names, values, nonnegative=bounded):
            self.constants.append(found.times(FS_PER_NS) if found.name.endswith("_fs") else found)
            if not found.determined:
                self.notes.append(f"{found.name}: {NOT_DETERMINED}")

    def solve(
        self,
        names: Sequence[str],
        design: FloatArray,
        rows: IntColumn,
        *,
        nonnegative: bool | None = None,
    ) -> list[float]:
        """Solve the weighted least squares over these rows."""
        weights = self.weights(rows)
        target = weights * self.data.column("duration_ns")[rows]
        if nonnegative is None:
            nonnegative = self.nonnegative
        return self.least(names, design * weights[:, None], target, nonnegative=nonnegative)

    @staticmethod
    def least(
        names: Sequence[str], design: FloatArray, target: FloatArray, *, nonnegative: bool
    ) -> list[float]:
        """Solve a least squares problem that is weighted already."""
        return [float(value) for value in solve(design, target, names, nonnegative=nonnegative)]
