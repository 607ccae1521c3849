"""Parameters of the policies that look ahead."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.columns import whole_number
from orsched.scalars import require_number
from orsched.units import MAX_TOKENS


@dataclass(frozen=True)
class MarginParams:
    """Parameters of ``mc_sf`` and ``svf``.

    Attributes:
        margin: predicted lengths count as so much longer, 0.1 for 10 %, rounded up, at most as the
            output limit; true lengths count as they are.
    """

    margin: float = 0.0

    def __post_init__(self) -> None:
        require_number(self.margin, "margin", 0, 1000)


@dataclass(frozen=True)
class IntervalParams:
    """Parameters of ``a_max`` and ``a_min``.

    Attributes:
        width: without predicted quantiles a length L, predicted or true, stands for the interval
            from L / (1 + width) to L * (1 + width), rounded inwards; where quantiles are predicted
            the interval is from the first to the last of them.
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        require_number(self.width, "width", 0, 1000)


@dataclass(frozen=True)
class OneBitParams:
    """Parameters of ``svf_1bit``.

    Attributes:
        split: the bit says whether a request is longer than so many tokens; 0: than the median of
            those that have arrived.
    """

    split: int = 0

    def __post_init__(self) -> None:
        whole_number(self.split, "split", maximum=MAX_TOKENS)


@dataclass(frozen=True)
class BatchParams:
    """Parameters of ``sorted_f``.

    Attributes:
        pool: a batch is chosen among so many waiting requests, those with the fewest output tokens.
        exact: among up to so many of them every batch is compared.
        swaps: shorter requests that are tried in place of each member of a greedy batch.
    """

    pool: int = 64
    exact: int = 8
    swaps: int = 8

    def __post_init__(self) -> None:
        whole_number(self.pool, "pool", minimum=1, maximum=MAX_TOKENS)
        whole_number(self.exact, "exact", maximum=16)
        whole_number(self.swaps, "swaps", maximum=MAX_TOKENS)


@dataclass(frozen=True)
class PhaseParams:
    """Parameters of ``gba`` and ``gsa``.

    Attributes:
        first: the length of the first phase in tokens; each further one is twice as long.
    """

    first: int = 1

    def __post_init__(self) -> None:
        whole_number(self.first, "first", minimum=1, maximum=MAX_TOKENS)


@dataclass(frozen=True)
class ThresholdParams:
    """Parameters of ``wait`` and ``nested_wait``.

    Attributes:
        threshold: a class, or a segment, starts when so many of it wait; 0: the fluid model says
            how many from what has arrived so far.
        first: the length of the first class or segment in tokens; each further one is twice as
            long.
    """

    threshold: int = 0
    first: int = 1

    def __post_init__(self) -> None:
        whole_number(self.threshold, "threshold", maximum=MAX_TOKENS)
        whole_number(self.first, "first", minimum=1, maximum=MAX_TOKENS)
