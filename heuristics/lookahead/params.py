"""Parameters of the policies that look ahead."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.scalars import require_number


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
