"""Schedules on the plane of two objectives, which of them others dominate, and bounds on both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from orsched.common.registry import attached
from orsched.data.schedule_classes import PLAIN_SCHEDULES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from orsched.data.instance import Instance
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.solving.comparison import Failure
    from orsched.solving.objectives import Objective
    from orsched.solving.result import Result


@dataclass(frozen=True)
class FrontierPoint:
    """A schedule, seen by two objectives.

    Attributes:
        label: the method, with the weighted sum that it searched for, if any.
        first, second: the values, seconds for times.
        share: of the first objective in the weighted sum, from 0 to 1; None for a method alone.
        efficient: whether no other point is better in one and as good in the other.
        result: what ``solve`` returned.
    """

    label: str
    first: float
    second: float
    share: float | None
    efficient: bool
    result: Result


@dataclass(frozen=True)
class Frontier(Sequence[FrontierPoint]):
    """Points of two objectives, in the order of the first one, and what is proven of each.

    Attributes:
        first, second: the objectives.
        points: one a schedule.
        first_bound, second_bound: proven bounds that hold for every schedule here, or None.
        failed: methods without a schedule, each with the reason.
        notes: remarks.
        instance: the problem.
        schedules: the class of schedules for which the bounds hold.
    """

    first: Objective
    second: Objective
    points: tuple[FrontierPoint, ...]
    first_bound: float | None
    second_bound: float | None
    failed: tuple[Failure, ...]
    notes: tuple[str, ...]
    instance: Instance
    schedules: ScheduleClass = PLAIN_SCHEDULES

    def __len__(self) -> int:
        return len(self.points)

    @overload
    def __getitem__(self, index: int) -> FrontierPoint: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FrontierPoint, ...]: ...
    def __getitem__(self, index: int | slice) -> FrontierPoint | tuple[FrontierPoint, ...]:
        return self.points[index]

    def __iter__(self) -> Iterator[FrontierPoint]:
        return iter(self.points)

    @property
    def efficient(self) -> tuple[FrontierPoint, ...]:
        """The points that no other one dominates: the frontier."""
        return tuple(point for point in self.points if point.efficient)

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a row for each point, as ``orsched frontier --format json`` prints."""
        return [
            {
                "method": point.label,
                "share": point.share,
                self.first.name: point.first,
                self.second.name: point.second,
                "efficient": point.efficient,
                f"{self.first.name}_bound": self.first_bound,
                f"{self.second.name}_bound": self.second_bound,
                "information": point.result.information,
                "objective": point.result.objective.name,
                "status": point.result.status.value,
            }
            for point in self.points
        ]

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.to_rows())

    def plot(self, figure: Figure | None = None, **options: Any) -> Figure:
        """Return a matplotlib figure of the plane; options of ``orsched.frontier_chart``."""
        (ax,) = attached("frontier_chart")(self, figure, **options)
        found: Figure | None = ax.get_figure(root=True)
        assert found is not None
        return found

    def __repr__(self) -> str:
        return (
            f"Frontier of {self.first.name} and {self.second.name} on {self.instance.name!r}: "
            f"{len(self.efficient)} of {len(self)} points efficient"
        )


def dominated(
    place: int, values: Sequence[tuple[Any, Any]], aims: tuple[Objective, Objective]
) -> bool:
    """Return whether some point is better in one objective and as good in the other.

    Of equal points the first one stands.
    """
    own = values[place]
    for other_place, other in enumerate(values):
        pairs = list(zip(aims, other, own, strict=True))
        if any(aim.better(mine, theirs) for aim, theirs, mine in pairs):
            continue
        if other != own or other_place < place:
            return True
    return False
