"""The orders in which policies that look ahead admit requests, and what each knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.lookahead.lengths import expected_tokens, interval
from orsched.heuristics.lookahead.policy import LookAhead

if TYPE_CHECKING:
    from orsched.heuristics.lookahead.params import IntervalParams, MarginParams
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
        tokens = self.length(view, request)
        return view.prompt_tokens[request] * tokens + tokens * (tokens + 1) // 2


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

    def length(self, view: View, request: int) -> int:
        """Return the lower end of the interval, or the tokens that have been seen."""
        return max(interval(view, request, self.width)[0], view.generated(request))

    def key(self, view: View, request: int) -> int:
        """Return the same."""
        return self.length(view, request)

    def victim(self, view: View) -> int:
        """Return the request of the least bound."""
        return min(view.running, key=lambda request: (self.length(view, request), request))
