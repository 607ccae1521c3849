"""One fit in progress: what the fits of all cost models share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from orsched.calibration.confidence import NOT_DETERMINED, confidence
from orsched.calibration.least_squares import solve, split
from orsched.common.errors import InputError
from orsched.costs.exact import FS_PER_NS

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from orsched.calibration.confidence import Constant
    from orsched.calibration.least_squares import FloatArray
    from orsched.calibration.measurements import Measurements
    from orsched.common.columns import IntColumn


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
