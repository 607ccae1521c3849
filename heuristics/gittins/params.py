"""Parameters of the Gittins index policy."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, inf, log

from orsched.common.columns import whole_number
from orsched.common.scalars import require_number, require_one_of
from orsched.common.units import MAX_TOKENS, NS_PER_S, seconds_to_ns

INDICES = ("gittins", "serpt")

_RANGES = {
    "aging": (0.0, 1e9),
    "gate": (1e-6, 1e9),
    "gate_aging": (0.0, 1e9),
    "window_s": (1e-3, 1e9),
    "reserve": (0.0, 1e3),
    "batch_weight": (1e-6, 1.0),
    "ttft_s": (0.0, 1e9),
    "boost_s": (1e-3, 1e9),
    "crowd": (1e-3, 1e9),
}
OPTIONAL = ("ttft_s", "boost_s", "crowd")  # None: what they are for does not happen

OVERTAKEN = 2.0  # by those that come within so many times ``ttft_s`` after it


LEAST_SHARE = 0.25  # of its prompt tokens a step keeps this share, however many decode


@dataclass(frozen=True)
class GittinsParams:
    """Parameters of ``gittins``; the defaults are one set for all workloads.

    Attributes:
        index: what a waiting request is ranked by: ``gittins`` (the least ratio of expected work
            to the chance of being done by it) or ``serpt`` (expected remaining work).
        aging: seconds of waiting that offset one second of additional work. 0 is first come first
            served; without limit the index alone decides, and a request may wait forever.
        max_num_batched_tokens: most prompt tokens of a step.
        gate: a prefill waits while it would delay expected finishes by more than this many times
            what its own request loses by a round of delay.
        gate_aging: how much the gate opens for each service time, at the present speed, that a
            request has waited.
        window_s: seconds over which a worker's time per round is averaged.
        reserve: share of the expected growth of the running caches that an admission leaves free.
        batch_weight: weight of a second of a batch request; one of an interactive request counts 1.
        ttft_s: a limit on TTFT in seconds. After this wait neither gate nor placing holds a request
            back, and no request that comes more than twice as long after it passes it. None: no
            limit, the least mean JCT.
        boost_s: scale of the boost in seconds, for the tail of the JCT: small requests move
            forward, large ones stay in the order of arrival. None: no boost.
        crowd: for the tail too: with more decoding requests than this, a step has fewer prompt
            tokens, down to a quarter. None: always the same number.

    Raises:
        InputError: a value is out of range.
    """

    index: str = "gittins"
    aging: float = 30.0
    max_num_batched_tokens: int = 2048
    gate: float = 3.0
    gate_aging: float = 6.0
    window_s: float = 20.0
    reserve: float = 0.5
    batch_weight: float = 1.0
    ttft_s: float | None = None
    boost_s: float | None = None
    crowd: float | None = None

    def __post_init__(self) -> None:
        require_one_of(self.index, "index", INDICES)
        whole_number(
            self.max_num_batched_tokens, "max_num_batched_tokens", minimum=1, maximum=MAX_TOKENS
        )
        for name, (least, most) in _RANGES.items():
            if getattr(self, name) is not None or name not in OPTIONAL:
                require_number(getattr(self, name), name, least, most)

    def prompt_tokens(self, decoding: int) -> int:
        """Return the most prompt tokens of a step beside so many decoding requests."""
        most = self.max_num_batched_tokens
        if self.crowd is None or decoding <= self.crowd:
            return most
        return max(1, int(most * max(LEAST_SHARE, self.crowd / decoding)))

    def later_ns(self, rank_ns: float) -> float:
        """Return how much later than its arrival a request's key is, by its index; of a limit on
        TTFT at most what that allows. With a boost (Yu and Scully 2024, with the index in the place
        of the size) it is negative: large requests have none, and among them the first to come is
        first."""
        rank_ns *= self.aging
        if self.boost_s is not None:
            span_ns = self.boost_s * NS_PER_S
            shrunk = -expm1(-max(rank_ns, 1.0) / span_ns)
            rank_ns = span_ns * log(shrunk) if shrunk > 0 else -inf
        patience_ns = self.patience_ns
        if patience_ns is None:
            return rank_ns
        # A boost is taken from the arrival, a wait added to it: neither beyond the limit.
        limit_ns = float(OVERTAKEN * patience_ns)
        return max(-limit_ns, min(rank_ns, limit_ns))

    @property
    def patience_ns(self) -> int | None:
        """The wait after which nothing holds a request back; None: there is no limit."""
        return None if self.ttft_s is None else seconds_to_ns(self.ttft_s, "ttft_s")
