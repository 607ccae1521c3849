"""Service-level objectives: limits on TTFT and TPOT."""

from __future__ import annotations

from dataclasses import dataclass

from orsched.columns import whole_number
from orsched.errors import InputError
from orsched.units import MAX_TIME_NS, NS_PER_S, seconds_to_ns

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
        ttft_ns: int | None = None,
        tpot_ns: int | None = None,
        *,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
    ) -> None:
        object.__setattr__(self, "ttft_ns", _limit(ttft_ns, ttft_s, "ttft"))
        object.__setattr__(self, "tpot_ns", _limit(tpot_ns, tpot_s, "tpot"))
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


def _limit(ns: int | None, seconds: float | None, name: str) -> int | None:
    field = f"slo.{name}_ns"
    if ns is not None and seconds is not None:
        raise InputError("the limit is given twice", field=field, remedy=f"give {name}_s alone")
    if seconds is not None:
        return seconds_to_ns(seconds, f"slo.{name}_s")
    return None if ns is None else whole_number(ns, field, maximum=MAX_TIME_NS)


def require_slo(value: object) -> None:
    """Raise ``InputError`` for what is neither an SLO nor None."""
    if value is not None and not isinstance(value, SLO):
        raise InputError(
            f"{value!r} is no SLO", field="slo", remedy="SLO(ttft_s=2, tpot_s=0.05), or None"
        )
