"""Lengths as a head's targets, and a head's outputs as logarithms of quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.prediction.distribution import class_of
from orsched.prediction.evaluation import PERCENTILES
from orsched.prediction.proxies.recipes import ORDINAL, REGRESSION

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn

    Floats = NDArray[np.float64]

MICO_BUCKETS = 10


@dataclass(frozen=True, eq=False)
class Targets:
    """The scale of a head.

    Attributes:
        head: one of ``recipes.HEADS``.
        edges: (c - 1,), tokens, where classes end, increasing; empty for regression and ranks.
        middles: tokens: (c,), what stands for a class in ordinal regression; (1,), what one unit
            of a regression is; empty for the others.
        longest: tokens.
    """

    head: str
    edges: Floats
    middles: Floats
    longest: float

    def outputs(self) -> int:
        """Return how many numbers the head gives: one a class, else one."""
        return len(self.edges) + 1 if self.in_classes() else 1

    def in_classes(self) -> bool:
        """Return whether the head gives a probability to each class."""
        return self.head in ("classes", "binary", "buckets")

    def labels(self, lengths: IntColumn) -> Floats:
        """Return what the head is to give: the class, or a real number; shape (n,)."""
        if self.head in REGRESSION:
            return np.asarray(lengths / self.middles[0], np.float64)
        if self.head == "ranks":
            return lengths.astype(np.float64)
        return class_of(lengths, self.edges).astype(np.float64)

    def logs(self, outputs: Floats, levels: Floats) -> Floats:
        """Return logarithms of quantiles, before calibration; (n, k) from (n, outputs).

        Classes: inside a class the logarithm is linear in the probability. Real numbers: the same
        at all levels. Ranks: the score itself.
        """
        if self.in_classes():
            return self._quantiles(outputs, levels)
        values = outputs[:, 0]
        if self.head in REGRESSION:
            values = np.log(np.maximum(values * self.middles[0], 1.0))
        elif self.head in ORDINAL:
            places = np.arange(len(self.middles), dtype=np.float64)
            values = np.interp(values, places, np.log(self.middles))
        return np.repeat(values[:, None], len(levels), axis=1)

    def _quantiles(self, outputs: Floats, levels: Floats) -> Floats:
        shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        up_to = np.hstack([np.zeros((len(shares), 1)), np.cumsum(shares, axis=1)])
        top = max(self.longest, float(self.edges.max(initial=1.0)))
        ends = np.log(np.concatenate(([1.0], self.edges, [top])))
        return np.array([np.interp(levels, row, ends) for row in up_to]).reshape(-1, len(levels))


def targets_for(head: str, lengths: IntColumn) -> Targets:
    """Return the scale of a head for the lengths that are trained on.

    SSJF's five classes end at the percentiles 25, 50, 75 and 99, its two at the median; MICO's ten
    buckets are ``floor(length / (longest / 10))``. A regression's unit is the mean length, so that
    a head that starts near 0 is not thousands of steps away.

    Raises:
        InputError: all lengths are in one class.
    """
    longest = float(lengths.max())
    nothing = np.zeros(0)
    if head in REGRESSION:
        return Targets(head, nothing, np.array([lengths.mean()]), longest)
    if head == "ranks":
        return Targets(head, nothing, nothing, longest)
    if head == "buckets":
        # Lengths are whole: the largest below each multiple of the width ends its bucket.
        edges = np.ceil(np.arange(1, MICO_BUCKETS) * longest / MICO_BUCKETS) - 1
    else:
        edges = np.percentile(lengths, (50,) if head == "binary" else PERCENTILES)
    edges = np.unique(edges[(edges >= 1) & (edges < longest)])
    if not len(edges):
        raise InputError(
            "all lengths are in one class", field="output_tokens", remedy="give other lengths"
        )
    place = class_of(lengths, edges)
    middles = nothing
    if head in ORDINAL:
        middles = np.array([np.median(_some(lengths, place == c)) for c in range(len(edges) + 1)])
    return Targets(head, edges.astype(np.float64), middles, longest)


def _some(lengths: IntColumn, wanted: NDArray[np.bool_]) -> IntColumn:
    return lengths[wanted] if wanted.any() else lengths
