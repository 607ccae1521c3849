"""Least squares for a few coefficients; those that the data do not determine are named."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

RANK_TOLERANCE = 1e-9
"""Share of a normed column that must be new; the features are whole numbers, so no noise is."""


def solve(
    design: FloatArray, target: FloatArray, names: Sequence[str], *, nonnegative: bool
) -> FloatArray:
    """Return the coefficients that minimise ``|design @ x - target|``, optionally all >= 0.

    The non-negative optimum is the plain one on its own support, so that with at most four
    coefficients trying every support finds it exactly.

    Raises ``InputError`` that names the coefficients that the rows do not determine.
    """
    scale = _identified(design, names)
    q, r = np.linalg.qr(design / scale)
    right = q.T @ target
    plain: FloatArray = np.linalg.solve(r, right)
    if not nonnegative or bool((plain >= 0).all()):
        return plain / scale
    best, least = np.zeros(len(scale)), float(right @ right)
    for size in range(1, len(scale)):
        for support in combinations(range(len(scale)), size):
            part = r[:, support]
            x = np.linalg.lstsq(part, right, rcond=None)[0]
            error = part @ x - right
            if (x >= 0).all() and float(error @ error) < least:
                least = float(error @ error)
                best = np.zeros(len(scale))
                best[list(support)] = x
    return best / scale


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
