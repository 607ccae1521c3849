"""Measured errors of output-length classifiers: how often each class was predicted for each length.

The counts come from the predictions of Qiu et al. (arXiv 2404.08509): see data/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn

BORDERS = {3: (50, 99), 5: (25, 50, 75, 99)}
"""Percentiles of the true length at which the classes end, by the number of classes.

The published predictions do not say where their classes end; of the usual percentiles these give
the highest accuracy on them, 0.599 with 5 classes and 0.806 with 3.
"""


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each class was predicted for true lengths in each bin of about one percentile.

    Attributes:
        up_to_tokens: longest length of each bin, rising; the last bin has all longer ones as well.
        counts: one row a bin, one column a predicted class.
        borders: longest length of each class but the last.
    """

    up_to_tokens: IntColumn
    counts: IntColumn
    borders: tuple[int, ...]

    def bins(self, tokens: IntColumn) -> IntColumn:
        """Return the bin of each length."""
        return np.minimum(np.searchsorted(self.up_to_tokens, tokens), len(self.up_to_tokens) - 1)

    def bins_of_ranks(self, ranks: NDArray[np.float64]) -> IntColumn:
        """Return the bin of each rank from 0 to 1: bins fill the ranks as their counts do."""
        ends = np.cumsum(self.counts.sum(axis=1)) / self.counts.sum()
        return np.minimum(np.searchsorted(ends, ranks, side="left"), len(ends) - 1)

    def draw(self, bins: IntColumn, uniform: NDArray[np.float64]) -> IntColumn:
        """Return a predicted class for each bin, by one uniform number in [0, 1) each."""
        ends = np.cumsum(self.counts, axis=1)
        reached = uniform * ends[bins, -1]
        drawn: IntColumn = (ends[bins] <= reached[:, None]).sum(axis=1)
        return drawn

    def medians(self) -> tuple[int, ...]:
        """Return the median true length where each class was predicted (that of its bin)."""
        return tuple(int(self.up_to_tokens[row]) for row in self._median_bins())

    def median_ranks(self) -> tuple[float, ...]:
        """Return the rank, from 0 to 1, of the bin of each class's median."""
        ends = np.cumsum(self.counts.sum(axis=1)) / self.counts.sum()
        return tuple(float(ends[row]) for row in self._median_bins())

    def _median_bins(self) -> list[int]:
        sums = np.cumsum(self.counts, axis=0)
        return [int(np.argmax(2 * column >= column[-1])) for column in sums.T]

    def matrix(self) -> IntColumn:
        """Return the confusion matrix: true class by row, predicted class by column."""
        true = np.searchsorted(self.borders, self.up_to_tokens)
        matrix = np.zeros((len(self.borders) + 1,) * 2, np.int64)
        np.add.at(matrix, true, self.counts)
        return matrix

    @property
    def accuracy(self) -> float:
        """The share of lengths whose own class was predicted."""
        matrix = self.matrix()
        return int(np.trace(matrix)) / int(matrix.sum())


@cache
def load_confusion(classes: int = 5) -> Confusion:
    """Return the shipped counts for 3 or 5 classes; raises ``InputError`` for another number."""
    if classes not in BORDERS:
        raise InputError(
            f"there are no counts for {classes!r} classes", field="classes", remedy="3 or 5"
        )
    text = files("orsched.instances").joinpath("data", "output_length_confusion.csv").read_text()
    head, *lines = text.splitlines()
    table = np.array([line.split(",") for line in lines], dtype=np.int64)
    prefix = {3: "three_", 5: "five_"}[classes]
    chosen = [place for place, name in enumerate(head.split(",")) if name.startswith(prefix)]
    counts = table[:, chosen]
    counts.setflags(write=False)
    shares = np.cumsum(counts.sum(axis=1)) * 100
    total = int(counts.sum())
    places = [int(np.argmax(shares >= percent * total)) for percent in BORDERS[classes]]
    return Confusion(table[:, 0], counts, tuple(int(table[place, 0]) for place in places))
