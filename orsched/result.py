"""Results: a checked schedule with its bound, gap, status and runtimes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orsched.flat_figures import flat_figures
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


_OF_OLD = ("makespan_s", "slot_utilization", "tokens_per_s", "bound_s", "gap")
"""Figures that stand further ahead in a row."""


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
    def figures(self) -> dict[str, float | None]:
        """The figures that people ask for, times in seconds (``orsched.flat_figures``)."""
        return flat_figures(self.schedule.results)

    @property
    def makespan_s(self) -> float:
        """End of the last stage, in seconds."""
        return self.makespan

    @property
    def bound_s(self) -> float | None:
        """The proven lower bound, in seconds."""
        return self.bound

    @property
    def ttft_mean_s(self) -> float | None:
        """Mean time to first token."""
        return self.figures["ttft_mean_s"]

    @property
    def ttft_p50_s(self) -> float | None:
        """Median time to first token (nearest rank)."""
        return self.figures["ttft_p50_s"]

    @property
    def ttft_p99_s(self) -> float | None:
        """99th percentile of the time to first token (nearest rank)."""
        return self.figures["ttft_p99_s"]

    @property
    def tpot_mean_s(self) -> float | None:
        """Mean time per output token after the first, of the requests that have several."""
        return self.figures["tpot_mean_s"]

    @property
    def tpot_p50_s(self) -> float | None:
        """Median time per output token after the first."""
        return self.figures["tpot_p50_s"]

    @property
    def tpot_p99_s(self) -> float | None:
        """99th percentile of the time per output token after the first."""
        return self.figures["tpot_p99_s"]

    @property
    def itl_max_s(self) -> float | None:
        """Largest time between two successive tokens of a request, over all requests."""
        return self.figures["itl_max_s"]

    @property
    def jct_mean_s(self) -> float | None:
        """Mean job completion time: from the arrival to the last token."""
        return self.figures["jct_mean_s"]

    @property
    def jct_p50_s(self) -> float | None:
        """Median job completion time."""
        return self.figures["jct_p50_s"]

    @property
    def jct_p99_s(self) -> float | None:
        """99th percentile of the job completion time."""
        return self.figures["jct_p99_s"]

    @property
    def slo_attainment(self) -> float | None:
        """Share of requests within the limits: of the SLO if one was given, else of the classes."""
        return self.figures["slo_attainment"]

    @property
    def goodput_per_s(self) -> float | None:
        """Requests within the limits by the makespan."""
        return self.figures["goodput_per_s"]

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens by the makespan."""
        return self.figures["tokens_per_s"]

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
            **{name: value for name, value in self.figures.items() if name not in _OF_OLD},
        }

    def _repr_html_(self) -> str:
        return self.schedule._repr_html_()
