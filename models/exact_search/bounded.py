"""What exact searches tell while they run, and what their results have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.common.units import NS_PER_S

if TYPE_CHECKING:
    from fractions import Fraction

    from orsched.data.schedule import Schedule


class FullMipProgress(NamedTuple):
    """What a callback sees after each better incumbent or bound.

    Attributes:
        makespan_ns: the incumbent's makespan, or None.
        bound_ns: the proven bound, or None (also while K is not proven to suffice).
        elapsed_s: seconds since the call.
        value: what is minimised, times in whole nanoseconds; for the makespan that.
    """

    makespan_ns: int | None
    bound_ns: int | None
    elapsed_s: float
    value: int | None = None


class Bounded:
    """A schedule or none, with a proven bound or none, in seconds and as a gap."""

    schedule: Schedule | None
    bound_ns: int | None

    @property
    def makespan_ns(self) -> int | None:
        """End of the schedule's last stage, or None."""
        return None if self.schedule is None else self.schedule.makespan_ns

    @property
    def makespan(self) -> float | None:
        """The same in seconds."""
        return None if self.makespan_ns is None else self.makespan_ns / NS_PER_S

    @property
    def bound(self) -> float | None:
        """The bound in seconds."""
        return None if self.bound_ns is None else self.bound_ns / NS_PER_S

    @property
    def gap(self) -> float | None:
        """(makespan - bound) / bound, or None."""
        if self.makespan_ns is None or not self.bound_ns:
            return None
        return (self.makespan_ns - self.bound_ns) / self.bound_ns


class BoundedValue(Bounded):
    """The same of any objective, whose value and bound are there exactly. ``value``,
    ``value_bound``: times in nanoseconds; None where the objective is the makespan alone."""

    objective: str  # what was minimised, or the attainment, which is made large
    value: Fraction | None
    value_bound: Fraction | None

    @property
    def gap(self) -> float | None:
        """How far the objective is from its bound, by the bound, or None."""
        if self.value is None and self.objective == "makespan":
            return super().gap
        if self.value is None or not self.value_bound:
            return None
        return float(abs(self.value - self.value_bound) / self.value_bound)
