"""Parameters of the sample-average program."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.columns import whole_number
from orsched.scalars import require_number

MOST_SCENARIOS = 1000


@dataclass(frozen=True)
class SampleParams:
    """Parameters of ``sample_average``.

    Attributes:
        scenarios: lengths of all requests that are drawn, and planned for on the average.
        risk: with paged memory: the share of scenarios in which an admission may let the caches
            outgrow it; the last in the order is evicted where they do.

    Raises:
        InputError: a value is out of range.
    """

    scenarios: int = 16
    risk: float = 0.05

    def __post_init__(self) -> None:
        whole_number(self.scenarios, "scenarios", minimum=1, maximum=MOST_SCENARIOS)
        require_number(self.risk, "risk", 0.0, 1.0)
