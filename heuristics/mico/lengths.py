"""What MICO knows of output lengths: a bucket each (section 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.simulator.policy import ClairvoyantView, PredictedView

if TYPE_CHECKING:
    from orsched.simulator.policy import View


class Lengths:
    """Predicted output lengths, known no finer than their bucket.

    Bucket ``floor(l / (l_max / N))`` of N, the last one for longer predictions too; l is taken to
    be the middle of its bucket.

    Attributes:
        middles: tokens that stand for each bucket, at least 1.
        ends: most tokens of each bucket, at most the output limit.
    """

    def __init__(self, view: View, buckets: int, longest_tokens: int | None) -> None:
        self.count = buckets
        self.limit = view.output_limit_tokens
        self.longest = self.limit if longest_tokens is None else longest_tokens
        self.middles = [
            max(1, (2 * bucket + 1) * self.longest // (2 * buckets)) for bucket in range(buckets)
        ]
        self.ends = [
            min(-(-(bucket + 1) * self.longest // buckets), self.limit) for bucket in range(buckets)
        ]
        self.ends[-1] = self.limit
        self.known = None
        if isinstance(view, PredictedView):
            self.known = view.predicted_tokens
        elif isinstance(view, ClairvoyantView):
            self.known = view.output_tokens

    def bucket(self, request: int) -> int:
        """Return the bucket of a request, the last one without information."""
        if self.known is None:
            return self.count - 1
        label = self.known[request] * self.count // self.longest
        return label if label < self.count else self.count - 1

    def middle(self, request: int) -> int:
        """Return the tokens that stand for a request's answer."""
        return self.middles[self.bucket(request)]

    def end(self, request: int) -> int:
        """Return the most tokens of a request's bucket, at most the output limit."""
        return self.ends[self.bucket(request)]
