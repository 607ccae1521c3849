"""Service-level objectives: limits on TTFT and TPOT."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S, time_ns

Limits = tuple[int | None, int | None]
"""Limits on TTFT and TPOT in nanoseconds, None where there is none."""


@dataclass(frozen=True, init=False)
class SLO:
    """A service-level objective: a limit on TTFT, on TPOT, or on both.

    ``SLO(ttft_s=2, tpot_s=0.05)``; either may be left out, and is None then. A request of one token
    has no TPOT and keeps that limit.

    Attributes:
        ttft_ns, tpot_ns: the limits in whole nanoseconds, None where there is none.

    Raises:
        InputError: no limit is given, one is given in both units, or one is no time.
    """

    ttft_ns: int | None
    tpot_ns: int | None

    def __init__(
        self,
        *,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
        ttft_ns: int | None = None,
        tpot_ns: int | None = None,
    ) -> None:
        object.__setattr__(self, "ttft_ns", time_ns(ttft_ns, ttft_s, "slo.ttft"))
        object.__setattr__(self, "tpot_ns", time_ns(tpot_ns, tpot_s, "slo.tpot"))
        if self.limits_ns == (None, None):
            raise InputError("no limit is given", field="slo", remedy="SLO(ttft_s=2, tpot_s=0.05)")

    @property
    def limits_ns(self) -> Limits:
        """Both limits in nanoseconds."""
        return self.ttft_ns, self.tpot_ns

    @property
    def ttft_s(self) -> float | None:
        """The limit on TTFT in seconds."""
        return None if self.ttft_ns is None else self.ttft_ns / NS_PER_S

    @property
    def tpot_s(self) -> float | None:
        """The limit on TPOT in seconds."""
        return None if self.tpot_ns is None else self.tpot_ns / NS_PER_S


def require_slo(value: object) -> None:
    """Raise ``InputError`` for what is neither an SLO nor None."""
    if value is not None and not isinstance(value, SLO):
        raise InputError(
            f"{value!r} is not an SLO", field="slo", remedy="SLO(ttft_s=2, tpot_s=0.05), or None"
        )
