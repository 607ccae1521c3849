"""Fit of the pooling cost model, whose prefill is a maximum of two forms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from orsched.calibration.measurements import DECODE, MIXED, PREFILL
from orsched.common.errors import InputError
from orsched.costs.exact import FS_PER_NS
from orsched.costs.pooling import COEFFICIENTS, PPM, PoolingCost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.calibration.fit_work import Work
    from orsched.calibration.least_squares import FloatArray
    from orsched.common.columns import IntColumn

    BoolArray = NDArray[np.bool_]

PREFILL_NAMES = ("alpha_fs", "beta_fs")
DECODE_NAMES = ("gamma_fs", "delta_fs")
MOST_STARTS = 64
MOST_TURNS = 50


def fit_pooling(work: Work) -> PoolingCost:
    """Fit Echo's eq. (6), (7) and, when there are mixed rows, (8).

    Raises ``InputError`` that names the coefficients that the rows do not determine.
    """
    alpha, beta, least = _fit_prefill(work)
    rows = work.rows(DECODE, DECODE_NAMES)
    columns = [work.data.column(name)[rows] for name in ("count", "context_sum", "context_max")]
    count, total, longest = (column.astype(np.float64) for column in columns)
    gamma, delta = work.linear(DECODE, DECODE_NAMES, np.stack([longest, total / count], axis=1))
    named = zip(COEFFICIENTS, (alpha, beta, least, gamma, delta), strict=True)
    whole = {name: round(value * FS_PER_NS) for name, value in named}
    return _fit_lambda(work, PoolingCost(**whole))


def _fit_prefill(work: Work) -> tuple[float, float, float]:
    rows = work.rows(PREFILL, ("alpha_fs", "beta_fs", "c_fs"))
    count, tokens, longest = (
        work.data.column(name)[rows] for name in ("count", "tokens", "longest")
    )
    unequal = tokens != count * longest
    if unequal.any():
        raise InputError(
            "prompts of unequal length in one stage: their sum does not tell their times apart",
            row=int(rows[np.argmax(unequal)]),
            field="tokens",
            remedy="measure single prompts or prompts of one length for the pooling model",
        )
    x, n = longest.astype(np.float64), count.astype(np.float64)
    design = np.stack([n * x * x, n * x], axis=1)
    work.solve(PREFILL_NAMES, design, rows)
    kept = work.take(PREFILL, rows, np.column_stack([design, n]))
    return _alternate(work, rows[kept], x[kept], n[kept])


def _alternate(
    work: Work, rows: IntColumn, x: FloatArray, n: FloatArray
) -> tuple[float, float, float]:
    """Alternate between assigning rows to the two forms of the maximum and fitting each form.

    The lengths where the floor can end are the starts; of what they lead to, the least error
    wins, and the shorter floor unless the longer one is better by more than a thousandth.
    """
    lengths = np.unique(x)
    step = max(1, -(-len(lengths) // MOST_STARTS))
    weights = work.weights(rows)
    target = weights * work.data.column("duration_ns")[rows]
    best: tuple[float, float, float] | None = None
    least_error = np.inf
    for end in lengths[: max(1, len(lengths) - 1) : step]:
        found = _settle(work, rows, x, n, x < end)
        if found is None:
            continue
        alpha, beta, least = found
        error = weights * n * np.maximum((alpha * x + beta) * x, least) - target
        squared = float(error @ error) / float(target @ target)
        if squared < 0.999 * least_error - 1e-18:
            best, least_error = found, squared
    if best is None:
        raise InputError(
            "the measurements do not determine alpha_fs, beta_fs: too few different lengths",
            field="alpha_fs",
            remedy="measure more prompt lengths",
        )
    for name, value in zip(PREFILL_NAMES, best[:2], strict=True):
        if value == 0:
            work.notes.append(f"{name} is 0, the least that it may be")
    if best[2] == 0:
        work.notes.append("no measured prompt is short enough to show c_fs: set to 0")
    return best


def _settle(
    work: Work, rows: IntColumn, x: FloatArray, n: FloatArray, floor: BoolArray
) -> tuple[float, float, float] | None:
    """Return (alpha, beta, c) once the assignment no longer changes; None without a solution."""
    weights = work.weights(rows)
    target = weights * work.data.column("duration_ns")[rows]
    alpha = beta = least = 0.0
    for _ in range(MOST_TURNS):
        curve = ~floor
        if len(np.unique(x[curve])) < 2:
            return None
        design = np.stack([n * x * x, n * x], axis=1)[curve]
        alpha, beta = work.solve(PREFILL_NAMES, design, rows[curve])
        level = (weights * n)[floor]
        least = float(level @ target[floor] / (level @ level)) if floor.any() else 0.0
        again = (alpha * x + beta) * x < least
        if (again == floor).all():
            break
        floor = again
    return alpha, beta, least


def _fit_lambda(work: Work, cost: PoolingCost) -> PoolingCost:
    """Fit lambda: a mixed step's time over its smaller part is linear in it."""
    rows = work.data.rows(MIXED)
    if len(rows) == 0:
        work.notes.append("no mixed measurement: lambda_ppm is 1000000, the larger part alone")
        return cost
    smaller, larger = replace(cost, lambda_ppm=0), replace(cost, lambda_ppm=PPM)
    low, high = (
        np.array([work.data.predicted_ns(part, row) for row in rows.tolist()], np.float64)
        for part in (smaller, larger)
    )
    slope = high - low
    if not slope.any():
        raise InputError(
            "the mixed measurements do not determine lambda_ppm",
            field="lambda_ppm",
            remedy="measure more mixed steps of different sizes, or leave them out",
        )
    kept = work.take(MIXED, rows, slope[:, None])
    weights = work.weights(rows[kept])
    run, rise = weights * slope[kept], weights * (work.data.column("duration_ns")[rows] - low)[kept]
    value = float(run @ rise / (run @ run))
    if work.nonnegative and value < 0:
        work.notes.append("lambda_ppm would be negative: held to at least 0")
        value = 0.0
    return replace(cost, lambda_ppm=round(value * PPM))
