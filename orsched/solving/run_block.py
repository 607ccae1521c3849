"""What a schedule's ``run`` block keeps of how it was found, for reports and files: the verdict and
the history of the search. Nothing is proven by it: what cannot be read is left."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.data.schedule_classes import ScheduleClass

if TYPE_CHECKING:
    from orsched.data.schedule import Schedule


class Verdict(NamedTuple):
    """What is proven of a schedule, as its file keeps it."""

    objective: str  # name of what was minimised
    status: str  # ``optimal`` or ``feasible``
    certified: bool  # by a certificate; else by a search, which the checker cannot repeat
    termination: str  # why the method ended
    features: list[str] | None = None  # of the class of which this one is the best; None: of none

    @property
    def by_search(self) -> bool:
        """Whether a search alone proved the optimum."""
        return self.status == "optimal" and not self.certified

    @property
    def words(self) -> str:
        """The status with its class, with the objective if not the makespan, and who proved it."""
        by = ", by search without a certificate" if self.by_search else ""
        of = "" if self.objective == "makespan" else f" for {self.objective}"
        known = self.features is not None
        among = f" among {ScheduleClass(frozenset(self.features or ()))}" if known else ""
        return f"{self.status}{of}{among}{by}"

    @property
    def closes_gap(self) -> bool:
        """Whether no shorter schedule is possible by a search, so that the makespan's gap is 0."""
        return self.by_search and self.objective == "makespan"


class HistoryPoint(NamedTuple):
    """What was known at a moment of the search."""

    seconds: float  # since ``solve`` was called
    value: float | None  # of the objective, of the best schedule so far; times in nanoseconds
    bound: float | None  # on the objective, the best so far


class HistoryRecorder:
    """A callback that keeps what is better than before; ``largest``: more of the value is."""

    def __init__(self, largest: bool = False) -> None:
        self.largest, self.points = largest, list[HistoryPoint]()

    def __call__(self, progress: Any) -> None:
        """Take the ``Progress`` of an iteration."""
        self.add(progress.seconds_spent, progress.value, progress.bound_ns)

    def add(self, seconds: float, value: float | None, bound: float | None) -> None:
        """Keep a moment if value or bound is better than before."""
        last = self.points[-1] if self.points else HistoryPoint(0.0, None, None)
        best = _better(value, last.value, self.largest)
        proven = _better(bound, last.bound, not self.largest)
        if (best, proven) != last[1:]:
            self.points.append(HistoryPoint(max(seconds, last.seconds), best, proven))

    def hold(self, bound: float | None) -> None:
        """Take back bounds beyond one that holds for the schedule that was found, unlike them."""
        points, self.points = self.points, []
        for seconds, value, proven in points:
            known = None if bound is None else _better(proven, bound, self.largest)
            self.add(seconds, value, None if proven is None else known)

    def block(self) -> dict[str, Any]:
        """Return what the ``run`` block of a file has: columns and rows."""
        rows = [[round(seconds, 6), *rest] for seconds, *rest in self.points]
        return {"columns": list(HistoryPoint._fields), "rows": rows}


def _better(new: float | None, old: float | None, largest: bool) -> float | None:
    if new is None or old is None:
        return old if new is None else new
    return max(new, old) if largest else min(new, old)


def history_of(schedule: Schedule) -> tuple[HistoryPoint, ...]:
    """Return the search that made a schedule; () where its file does not say, or not rightly."""
    block = schedule.run.get("history")
    rows = block.get("rows") if isinstance(block, dict) else None
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        return ()
    return tuple(HistoryPoint(*row) for row in rows)


def _is_row(row: object) -> bool:
    if not isinstance(row, list) or len(row) != 3 or not _is_number(row[0]):
        return False
    return all(value is None or _is_number(value) for value in row[1:])


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
