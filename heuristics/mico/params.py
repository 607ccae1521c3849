"""Parameters of MICO."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.common.scalars import require_bool, require_one_of, set_whole
from orsched.common.units import MAX_TOKENS

_CHOICES = {
    "distribution": (None, "workload", "quantity"),
    "batching": ("iteration", "batch"),
    "shares": ("power", "equal"),
    "order": ("arrival", "random", "short_prompt", "long_answer"),
    "insertion": ("mixed", "decoupled", "cheaper"),
}


@dataclass(frozen=True)
class MicoParams:
    """The parts of MICO; the paper's Q and I are ``distribution`` and ``batching``.

    Attributes:
        distribution: workload (Q: groups of predicted length, in descending order) or quantity
            (not Q: as many requests for each cloud, in turn); None: workload if the lengths are
            known, else quantity.
        batching: iteration (I: the place of a finished request is taken at once) or batch (not I:
            static batches, returned as a whole).
        buckets: classes of predicted length.
        longest_tokens: l_max, the length that the buckets divide; None: the output limit.
        shares: power (a cloud's share grows with its clients and its speed) or equal.
        backoff: whether a cloud without waiting requests takes some from others.
        batch_size: most requests at once on a cloud; None: adaptive, as many as clients and memory
            hold.
        order: which of a cloud's waiting requests is next: the first to arrive, any (by the seed;
            section 4.2.2), the one with the shortest prompt (section 3.5.1) or the longest
            predicted answer.
        insertion: mixed (the prompt is processed beside the round of the others), decoupled (in a
            step of its own, section 3.5.1) or cheaper (by the cost model, each time).
        trade_off: whether an insertion waits while it would hold the running requests up for
            longer than it lets a place rest (section 3.5.1).

    Raises:
        InputError: a value is out of range.
    """

    distribution: str | None = None
    batching: str = "iteration"
    buckets: int = 10
    longest_tokens: int | None = None
    shares: str = "power"
    backoff: bool = True
    batch_size: int | None = None
    order: str = "arrival"
    insertion: str = "cheaper"
    trade_off: bool = False

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            require_one_of(getattr(self, name), name, choices)
        for name in ("backoff", "trade_off"):
            require_bool(getattr(self, name), name)
        set_whole(self, "buckets", minimum=1, maximum=MAX_TOKENS)
        limits = ("longest_tokens", "batch_size")
        set_whole(self, *limits, minimum=1, maximum=MAX_TOKENS, optional=True)


ABLATION: dict[str, dict[str, str]] = {
    "QI": {"distribution": "workload", "batching": "iteration"},
    "Q": {"distribution": "workload", "batching": "batch"},
    "I": {"distribution": "quantity", "batching": "iteration"},
    "neither": {"distribution": "quantity", "batching": "batch"},
}
"""What the four variants of section 4.1.3 set of ``MicoParams``."""
