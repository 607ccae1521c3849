"""What exact searches tell while they run, and what their results have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from orsched.common.units import NS_PER_S
from orsched.data.schedule_classes import PLAIN_SCHEDULES

if TYPE_CHECKING:
    from fractions import Fraction

    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass


Status = Literal["optimal", "optimal_for_K", "feasible", "infeasible", "unknown"]
Termination = Literal[
    "finished", "time_limit", "stopped", "interrupted", "too_large", "died"
]  # fmt: skip


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


@dataclass(frozen=True)
class BestFirstResult(BoundedValue):
    """The answer of a best-first search, for the makespan or for a sum of times.

    Attributes:
        schedule: the best schedule, accepted by the independent checker, or None.
        bound_ns: a proven lower bound on the objective, rounded up, or None.
        status: ``optimal``, ``feasible``, or ``unknown``: no schedule yet.
        termination: ``finished``; ``time_limit``; ``too_large``: as many states as are kept, or too
            many first stages; ``stopped`` by the callback; ``interrupted`` by Ctrl-C.
        expanded, left_out: states whose successors were looked at; those of which another is known
            to lead to no worse an end.
        objective: what was minimised.
        value, value_bound: exactly, times in nanoseconds; None for the makespan.
        runtimes: seconds, ``start`` (bound and heuristics), ``solve`` and ``total``.
        notes: remarks.
        history: each better value and bound in time, as a callback sees it.
        schedules: the class of schedules for which bound and status hold.
    """

    schedule: Schedule | None
    bound_ns: int | None
    status: Status
    termination: Termination
    expanded: int
    left_out: int
    objective: str = "makespan"
    value: Fraction | None = None
    value_bound: Fraction | None = None
    runtimes: dict[str, float] = field(default_factory=dict, compare=False)
    notes: tuple[str, ...] = ()
    history: tuple[FullMipProgress, ...] = field(default=(), repr=False, compare=False)
    schedules: ScheduleClass = PLAIN_SCHEDULES
