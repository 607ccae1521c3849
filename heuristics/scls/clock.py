"""The schedule interval: when the pool is fetched next (SCLS, eq. 12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MILLION = 1_000_000


class Clock:
    """Moments at which the pool is fetched, the first at 0.

    Attributes:
        next_ns: the next moment.
        interval_ns: T.
    """

    def __init__(self, least_ns: int, share: float, adaptive: bool) -> None:
        self.least_ns = least_ns
        self.share_ppm = round(share * MILLION)
        self.adaptive = adaptive
        self.interval_ns = least_ns
        self.next_ns = 0

    def advance(self, loads_ns: Sequence[int]) -> None:
        """Set T to ``max(lambda min load, Gamma)`` after an offloading, and go on by it."""
        if self.adaptive:
            share = self.share_ppm * min(loads_ns) // MILLION
            self.interval_ns = max(share, self.least_ns)
        self.next_ns += self.interval_ns

    def skip_to(self, moment_ns: int) -> None:
        """Pass the moments at which the pool is empty: those before this one, at least one."""
        left = moment_ns - self.next_ns
        self.next_ns += max(1, -(-left // self.interval_ns)) * self.interval_ns
