"""Answer lengths seen so far, and how many tokens a request may still yield."""

from __future__ import annotations

from bisect import bisect_right, insort

KEPT = 4096
LEAST = 20
"""So many answers are needed before their quantiles count."""


class AnswerLengths:
    """The newest answer lengths.

    Args:
        limit: no answer is longer.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.order: list[int] = []
        self.sorted: list[int] = []
        self.oldest = 0
        self.total = 0

    def add(self, tokens: int) -> None:
        """Take note of an answer, and forget the oldest of many."""
        insort(self.sorted, tokens)
        self.total += tokens
        if len(self.order) < KEPT:
            self.order.append(tokens)
            return
        gone = self.order[self.oldest]
        self.order[self.oldest] = tokens
        self.oldest = (self.oldest + 1) % KEPT
        self.total -= gone
        del self.sorted[bisect_right(self.sorted, gone) - 1]

    @property
    def mean(self) -> float:
        """The mean length, 1 before any was seen."""
        return self.total / len(self.sorted) if self.sorted else 1.0

    def rest(self, yielded: int, quantile: float) -> int:
        """Return the tokens still to come, at a quantile of those longer than what was yielded.

        At least 1. Those up to the limit before enough answers were seen, or where none was longer.
        """
        lengths = self.sorted
        first = bisect_right(lengths, yielded)
        longer = len(lengths) - first
        if len(lengths) < LEAST or not longer:
            return max(1, self.limit - yielded)
        place = min(longer - 1, int(quantile * longer))
        return lengths[first + place] - yielded
