"""The search as it went: each better value and bound with its time, kept in a schedule's run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from orsched.data.schedule import Schedule

HISTORY_KEY = "history"
"""Where it stands in the ``run`` block."""


class Found(Protocol):
    """What is read of the ``Progress`` of an iteration."""

    @property
    def seconds_spent(self) -> float:
        """Since the search began."""
        ...

    @property
    def value(self) -> float | None:
        """The incumbent's value of the objective."""
        ...

    @property
    def bound_ns(self) -> int | None:
        """The best bound so far."""
        ...


class HistoryPoint(NamedTuple):
    """What was known at a moment of the search.

    Attributes:
        seconds: since ``solve`` was called.
        value: of the objective, of the best schedule so far, or None; times in nanoseconds.
        bound: on the objective, the best so far, or None.
    """

    seconds: float
    value: float | None
    bound: float | None


class HistoryRecorder:
    """A callback that keeps what is better than before; ``largest``: more of the value is."""

    def __init__(self, largest: bool = False) -> None:
        self.largest, self.points = largest, list[HistoryPoint]()

    def __call__(self, progress: Found) -> None:
        """Take the record of an iteration."""
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
    """Return the search that made a schedule; () where its file does not say, or says it wrongly.

    The ``run`` block is free, and nothing is proven by it.
    """
    block = schedule.run.get(HISTORY_KEY)
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
