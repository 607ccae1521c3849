"""Results: a checked schedule with its bound, gap, status and runtimes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orsched.units import NS_PER_S

if TYPE_CHECKING:
    from orsched.schedule import Schedule


class Status(StrEnum):
    """What is proven of a schedule."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"


class Termination(StrEnum):
    """Why a method ended."""

    FINISHED = "finished"
    ITERATIONS = "iterations"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    TARGET_GAP = "target_gap"


@dataclass(frozen=True)
class Result:
    """What ``solve`` and ``simulate`` return.

    Attributes:
        schedule: the schedule, with its reported numbers, bound and ``run`` block.
        status: ``optimal`` when the makespan equals the bound (``certified``), or when a solver
            proved it, of which there is no certificate: the notes say so, and the gap stays
            that to the certified bound.
        termination: why the method ended.
        checked: whether the independent checker accepted the schedule.
        runtimes: seconds spent in ``solve``, ``bound``, ``check`` and in ``total``.
        notes: remarks, such as that ordering cannot help here.
        reference: values that are no bounds (Pang's (31)-(32)), in nanoseconds.
        label: the method as it was given, with its parameters; else its name.
    """

    schedule: Schedule
    status: Status
    termination: Termination
    checked: bool
    runtimes: dict[str, float] = field(compare=False)
    notes: tuple[str, ...] = ()
    reference: dict[str, int] = field(default_factory=dict)
    label: str = ""

    @property
    def makespan_ns(self) -> int:
        """End of the last stage."""
        return int(self.schedule.results["makespan_ns"])

    @property
    def makespan(self) -> float:
        """End of the last stage, in seconds."""
        return self.makespan_ns / NS_PER_S

    @property
    def bound_ns(self) -> int | None:
        """The proven lower bound."""
        value: int | None = self.schedule.results["bound_ns"]
        return value

    @property
    def bound(self) -> float | None:
        """The proven lower bound, in seconds."""
        return None if self.bound_ns is None else self.bound_ns / NS_PER_S

    @property
    def gap(self) -> float | None:
        """(makespan - bound) / bound."""
        value: float | None = self.schedule.results["gap"]
        return value

    @property
    def certified(self) -> bool:
        """Whether the makespan equals the bound, so that the bound's certificate proves it optimal.

        An optimal result that is not certified was proven by a solver's search alone.
        """
        return self.makespan_ns == self.bound_ns

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The bound's certificate."""
        return None if self.schedule.bound is None else self.schedule.bound["certificate"]

    @property
    def information(self) -> str:
        """What the method knew of output lengths."""
        return self.schedule.information

    def attainment(self, name: str = "interactive") -> float:
        """Return the share of a class's requests that are within its limits on TTFT and TPOT.

        Raises ``InputError`` for an unknown class, and for one without limits or requests.
        """
        from orsched.class_rows import attainment_of

        return attainment_of(self.schedule.results, name)

    def to_row(self) -> dict[str, Any]:
        """Return the figures of one line of ``orsched compare``."""
        results = self.schedule.results
        decision = self.schedule.run.get("decision_ns") or {}
        p99 = decision.get("p99")
        return {
            "method": self.label or self.schedule.method,
            "information": self.information,
            "makespan_s": self.makespan,
            "slot_utilization": results["slot_utilization"],
            "prefill_stages": results["prefill_stages"],
            "decode_rounds": results["decode_rounds"],
            "tokens_per_s": results["tokens_per_s"],
            "bound_s": self.bound,
            "gap": self.gap,
            "decision_p99_s": None if p99 is None else p99 / NS_PER_S,
            "checked": self.checked,
        }

    def _repr_html_(self) -> str:
        return self.schedule._repr_html_()
