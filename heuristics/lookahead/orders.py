"""The orders in which policies that look ahead admit requests, and what each knows."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from orsched.heuristics.lookahead.lengths import expected_tokens, interval, volume
from orsched.heuristics.lookahead.policy import LookAhead

if TYPE_CHECKING:
    from orsched.heuristics.lookahead.params import IntervalParams, MarginParams, OneBitParams
    from orsched.policy import Information, View


class ShortestThatFits(LookAhead):
    """MC-SF: the fewest output tokens first (Jaillet et al., arXiv 2502.07115, algorithm 1).

    Those that run go on; the first by output tokens that does not fit ends the admission. With all
    at time 0 its latency is 1.005 times that of the hindsight optimum in the mean, with arrivals
    1.047 times, on the authors' instances by their account. Ties go by arrival, then row.
    """

    def __init__(self, params: MarginParams, information: Information) -> None:
        super().__init__("mc_sf", information)
        self.margin = params.margin

    def length(self, view: View, request: int) -> int:
        """Return the true tokens, or the predicted ones with the margin."""
        return expected_tokens(view, request, self.margin)

    def key(self, view: View, request: int) -> int:
        """Return the tokens."""
        return self.length(view, request)


class SmallestVolume(ShortestThatFits):
    """SVF: the least memory times rounds first (Kong et al., arXiv 2606.22327).

    A request of s prompt and o output tokens holds s + 1 to s + o tokens for a round each: its
    volume is s o + o (o + 1) / 2. The abstract does not say what admission goes with the order;
    here it is that of MC-SF. Ties go by arrival, then row.
    """

    def __init__(self, params: MarginParams, information: Information) -> None:
        super().__init__(params, information)
        self.name = "svf"

    def key(self, view: View, request: int) -> int:
        """Return the volume of the whole request in token-rounds, whatever it has yielded."""
        return volume(view.prompt_tokens[request], self.length(view, request))


class SmallestVolumeOfOneBit(LookAhead):
    """SVF with one bit: a request is known to be short or long (Kong et al., arXiv 2606.22327).

    The abstract names the variant and no rule. Here the bit says whether the length, true or
    predicted, is above ``split``, by default the median of the lengths that have arrived, itself
    included. Short ones are taken for ``split`` tokens, long ones for twice as many, within the
    output limit; the least volume by that goes first, and admission and evictions are those of
    MC-SF with predictions.
    """

    def __init__(self, params: OneBitParams, information: Information) -> None:
        super().__init__("svf_1bit", information)
        self.split = params.split
        self.seen: list[int] = []
        self.taken_for: dict[int, int] = {}

    def on_arrival(self, view: View, request: int) -> None:
        """Learn the bit, once, and queue the request."""
        if request not in self.taken_for:
            tokens = expected_tokens(view, request, 0.0)
            insort(self.seen, tokens)
            split = self.split or self.seen[(len(self.seen) - 1) // 2]
            most = split if tokens <= split else 2 * split
            self.taken_for[request] = min(most, view.output_limit_tokens)
        super().on_arrival(view, request)

    def length(self, view: View, request: int) -> int:
        """Return what the bit stands for."""
        return self.taken_for[request]

    def key(self, view: View, request: int) -> int:
        """Return the volume by that length."""
        return volume(view.prompt_tokens[request], self.taken_for[request])


class LongestPossible(LookAhead):
    """A_max: every length is the greatest of its interval (Chen et al., arXiv 2508.14544).

    The shortest by that length goes first; memory never overflows where intervals are right.
    """

    def __init__(self, params: IntervalParams, information: Information) -> None:
        super().__init__("a_max", information)
        self.width = params.width

    def length(self, view: View, request: int) -> int:
        """Return the upper end of the interval."""
        return interval(view, request, self.width)[1]

    def key(self, view: View, request: int) -> int:
        """Return the upper end as well."""
        return self.length(view, request)


class ShortestPossible(LookAhead):
    """A_min: every length is the least of its interval until more is seen (arXiv 2508.14544).

    The bound of a request rises to the tokens that it has yielded. The least bound goes first,
    and memory is foreseen for it alone, so that it may overflow: those with the least bound are
    evicted then, one by one, until the next round fits. Ties go by row, where the paper draws lots.
    In the paper an evicted request loses its tokens; here it keeps them and its cache is made anew.
    """

    def __init__(self, params: IntervalParams, information: Information) -> None:
        super().__init__("a_min", information)
        self.width = params.width
        self.low: dict[int, int] = {}  # lower end of each request that has arrived and not ended

    def on_arrival(self, view: View, request: int) -> None:
        """Note the lower end of the interval, which stays as it is, and queue the request."""
        if request not in self.low:
            self.low[request] = interval(view, request, self.width)[0]
        super().on_arrival(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Forget the request."""
        self.low.pop(request, None)
        super().on_finish(view, request, client)

    def length(self, view: View, request: int) -> int:
        """Return the lower end of the interval, or the tokens that have been seen."""
        return max(self.low[request], view.generated(request))

    def key(self, view: View, request: int) -> int:
        """Return the same."""
        return self.length(view, request)

    def victim(self, view: View) -> int:
        """Return the request of the least bound."""
        low, generated = self.low, view.generated
        best, victim = -1, -1
        for request in view.running:  # each eviction goes over all that run: no call but one
            tokens = low[request]
            if -1 < best < tokens:
                continue
            seen = generated(request)
            tokens = max(tokens, seen)
            if best < 0 or (tokens, request) < (best, victim):
                best, victim = tokens, request
        return victim
