"""Predicted distributions of lengths as few lengths that are equally likely."""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING

from orsched.data.length_quantiles import LengthLaw

if TYPE_CHECKING:
    from collections.abc import Sequence

ATOMS = 16
"""Lengths that stand for a distribution."""


class LengthAtoms:
    """Reads quantiles at shared levels as ``ATOMS`` equally likely lengths, the shortest first.

    Each is the middle of its share of the distribution, as ``LengthLaw`` reads it: a whole length
    from 1 to the output limit. Equal quantiles are one length.
    """

    def __init__(self, levels: tuple[float, ...], limit: int) -> None:
        law = LengthLaw(levels)
        middles = [(2 * place + 1) / (2 * ATOMS) for place in range(ATOMS)]
        self._places = [law.place(level) for level in middles]
        self._limit, self._most = limit, log(limit)

    def of(self, quantiles: Sequence[int]) -> list[int]:
        """Return the lengths of a request with these quantiles."""
        if quantiles[0] == quantiles[-1]:
            return [min(quantiles[0], self._limit)] * ATOMS
        logs = [log(each) for each in quantiles]
        most, found = self._most, []
        for left, share in self._places:
            low = logs[left]
            found.append(round(exp(min(max(low + share * (logs[left + 1] - low), 0.0), most))))
        return found

    def mean(self, quantiles: Sequence[int]) -> int:
        """Return the mean length of a request with these quantiles, in whole tokens."""
        return max(1, round(sum(self.of(quantiles)) / ATOMS))
