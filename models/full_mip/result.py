"""What the exact search returns, and what its callback sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from orsched.common.units import NS_PER_S
from orsched.data.schedule_classes import PLAIN_SCHEDULES

if TYPE_CHECKING:
    from fractions import Fraction

    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.models.full_mip.size import Size

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


@dataclass(frozen=True)
class FullMipResult(Bounded):
    """The answer of the full MIP.

    Attributes:
        schedule: the best schedule, accepted by the independent checker, or None.
        bound_ns: a proven lower bound on the makespan, or None when K is not proven to suffice.
        status: ``optimal``; ``optimal_for_K``: no shorter schedule with at most K prefill stages,
            and nothing is known of more; ``feasible``; ``infeasible``: no schedule with at most K
            stages; ``unknown``: no schedule yet.
        termination: ``finished``; ``time_limit``; ``stopped`` by the callback; ``interrupted`` by
            Ctrl-C; ``too_large``: the model was not built, the schedule is a heuristic's; ``died``:
            the solver's process ended without a word.
        stages: K.
        stages_reason: why K suffices, or that it is not known to.
        size: variables, rows and nonzeros of the model, known before it is built.
        start_accepted: whether the solver took the warm start; None without one or without a word.
        runtimes: seconds, ``start`` (bound and heuristic), ``solve`` and ``total``.
        solver: figures of the solver, such as nodes.
        notes: remarks.
        objective: what was minimised, or the attainment, which is made large.
        value, value_bound: exactly, of an objective that is not the makespan, times in nanoseconds:
            then ``bound_ns`` is the bound rounded up, None for the attainment.
        history: each better makespan and bound in time, as a callback sees it.
        schedules: the class of schedules for which bound and status hold.
    """

    schedule: Schedule | None
    bound_ns: int | None
    status: Status
    termination: Termination
    stages: int
    stages_reason: str
    size: Size
    start_accepted: bool | None = None
    runtimes: dict[str, float] = field(default_factory=dict, compare=False)
    solver: dict[str, Any] = field(default_factory=dict, compare=False)
    notes: tuple[str, ...] = ()
    objective: str = "makespan"
    value: Fraction | None = None
    value_bound: Fraction | None = None
    history: tuple[FullMipProgress, ...] = field(default=(), repr=False, compare=False)
    schedules: ScheduleClass = PLAIN_SCHEDULES

    @property
    def gap(self) -> float | None:
        """How far the objective is from its bound, by the bound, or None."""
        if self.objective == "makespan":
            return super().gap
        if self.value is None or not self.value_bound:
            return None
        return float(abs(self.value - self.value_bound) / self.value_bound)
