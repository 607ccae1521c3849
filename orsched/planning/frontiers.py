"""Frontiers of two objectives: methods, then searches for weighted sums, and what is dominated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING, Any, overload

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.registry import attached
from orsched.common.stop import MaxIterations, MaxRuntime
from orsched.common.units import NS_PER_S
from orsched.data.instance import require_instance
from orsched.data.schedule_classes import ALLOWANCES, PLAIN_SCHEDULES, ScheduleClass, class_of
from orsched.data.service_classes import SLO, require_slo
from orsched.models.bounds.bounds import bound
from orsched.simulator.policy import Information
from orsched.solving.checked_run import minimises, require_defined
from orsched.solving.comparison import Failure, attempted, require_any
from orsched.solving.method_choice import Chosen, choose, choose_all, method_named, require_fit
from orsched.solving.objectives import (
    LINEAR,
    MAKESPAN,
    Objective,
    objective_named,
    other_name,
    weighted_sum,
)
from orsched.solving.result import Termination
from orsched.solving.solver import solve

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from matplotlib.figure import Figure

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.solving.methods import Progress
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

    Of equal points the first one stays.
    """
    own = values[place]
    for other_place, other in enumerate(values):
        pairs = list(zip(aims, other, own, strict=True))
        if any(aim.better(mine, theirs) for aim, theirs, mine in pairs):
            continue
        if other != own or other_place < place:
            return True
    return False


METHODS = ("fcfs", "hybrid", "gittins@clairvoyant")
"""Methods whose schedules are on the plane, whatever the weights."""

POINTS = 9
MOST_POINTS = 1_000
_STEPS = 10**6


def frontier(
    instance: Instance,
    first: str | Objective = "makespan",
    second: str | Objective = "jct_mean",
    points: int = POINTS,
    *,
    methods: str | Iterable[Any] = METHODS,
    search: Any = "auto",
    seed: int = 0,
    time_limit: float | None = None,
    iterations: int | None = None,
    slo: SLO | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> Frontier:
    """Return schedules between two objectives: those of methods, and of searches for weighted sums.

    Args:
        instance: the problem.
        first, second: figures, such as ``makespan``, ``jct_mean``, ``ttft_mean``, ``ttft_p99``,
            ``tokens_per_s``. Weighted sums are searched for where both are sums of times.
        points: how many weighted sums, from the second objective alone to the first alone. Weights
            are such that either counts by how much it differs between the methods.
        methods: whose schedules are shown beside; each is run once.
        search: the method for weighted sums.
        seed, slo, callback: as in ``solve``.
        time_limit: seconds for all together.
        iterations: of each search that counts them; ``exact`` ends after its own minute (a note).

    Raises:
        InputError: an argument is wrong. OrschedError: no method made a schedule.

    >>> case = orsched.load("gate")
    >>> found = orsched.frontier(case, second="ttft_mean", points=2, methods="fcfs")
    >>> [each.label for each in found.points]
    ['exact for ttft_mean', 'exact for makespan', 'fcfs']
    """
    require_instance(instance)
    instance = instance.admitted()
    require_slo(slo)
    with _argument("first"):
        one = _required(instance, first, slo)
    with _argument("second"):
        other = _required(instance, second, slo)
        if one == other:
            raise InputError(f"{one.name} appears twice", remedy="name another one")
    aims = (one, other)
    points = whole_number(points, "points", minimum=0, maximum=MOST_POINTS)
    seed = whole_number(seed, "seed")
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates
    if iterations is not None:
        MaxIterations(iterations)  # so does this
    several = isinstance(methods, Iterable) and not isinstance(methods, (str, Chosen))
    chosen = choose_all(methods if several else [methods])  # type: ignore[list-item]
    options = {"seed": seed, "slo": slo, "callback": callback, "iterations": iterations}
    sweep = _Sweep(instance, aims, options, time_limit)
    sweep.run_methods(chosen, points)
    sweep.run_weighted(choose(search, field="search"), points)
    require_any(sweep.failed, [result for _, _, result in sweep.found])
    return sweep.frontier()


@contextmanager
def _argument(field: str) -> Iterator[None]:
    """Name the argument in errors of the objective that it gives."""
    try:
        yield
    except InputError as error:
        raise InputError(error.problem, field=field, remedy=error.remedy) from None


def _required(instance: Instance, name: str | Objective, slo: SLO | None) -> Objective:
    """Return the objective of a name if schedules alone have a value of it."""
    aim = objective_named(name)
    if aim.shares or aim.name in ("gap", "bound"):
        raise InputError(
            f"{aim.name} is not a figure of a schedule alone",
            remedy="name one figure, e.g. makespan, jct_mean, ttft_p99, tokens_per_s",
        )
    if aim.of_limits or aim.is_linear:
        require_defined(instance, aim, slo)
    return aim


class _Sweep:
    """Schedules as they are made; ``options`` are those of ``solve``."""

    def __init__(
        self,
        instance: Instance,
        aims: tuple[Objective, Objective],
        options: dict[str, Any],
        time_limit: float | None,
    ) -> None:
        self.instance, self.aims, self.options = instance, aims, options
        self.end = math.inf if time_limit is None else perf_counter() + time_limit
        self.found: list[tuple[str, float | None, Result]] = []
        self.failed: list[Failure] = []
        self.notes: list[str] = []
        self.interrupted = False

    def run_methods(self, methods: Sequence[Chosen], searches: int) -> None:
        """Run each method once: of the time, as much as a search gets."""
        for place, method in enumerate(methods):
            self._run(method, MAKESPAN, None, len(methods) - place + searches)

    def run_weighted(self, method: Chosen, points: int) -> None:
        """Search for weighted sums, from the second objective alone to the first alone."""
        why = self._why_no_search(method)
        if why:
            self.notes.append(why)
        elif points:
            scales = [self._scale(aim) for aim in self.aims]
            shares = [Fraction(place, max(1, points - 1)) for place in range(points)]
            shares = shares if points > 1 else [Fraction(1, 2)]
            shares.sort(key=lambda share: -abs(share - Fraction(1, 2)))  # both ends first
            for place, share in enumerate(shares):
                self._run(method, self._sum(share, scales), float(share), points - place + 1)

    def _why_no_search(self, method: Chosen) -> str | None:
        """Return why there are no weighted sums to search for, or None where there are."""
        from orsched.models.exact import choose as pick

        other = [aim.name for aim in self.aims if aim.name not in LINEAR]
        if other:
            return f"{', '.join(other)} has no weighted sums: the points are those of the methods"
        mixed = self._sum(Fraction(1, 2), [Fraction(1), Fraction(1)])
        found = method.method
        if found.name == "auto" and len(self.instance):
            found = method_named(pick(self.instance, mixed)[0])
        if getattr(found, "live", False) or not minimises(found, mixed):
            return f"{found.name} searches for no weighted sums: the points are those of methods"
        return None

    def _scale(self, aim: Objective) -> Fraction:
        """Return by how much an objective differs between the methods, or its value."""
        values = [value for _, _, result in self.found if (value := aim.value(result)) is not None]
        spread = max(values) - min(values) if values else 0.0
        return Fraction(spread or max(values, default=0.0) or 1.0)

    def _sum(self, share: Fraction, scales: Sequence[Fraction]) -> Objective:
        """Return a weighted sum with the larger weight 1, or a figure where the other has none."""
        if share in (0, 1):
            return self.aims[share == 0]
        weights = [share / scales[0], (1 - share) / scales[1]]
        largest = max(weights)
        rounded = [
            max(Fraction(1, _STEPS), Fraction(round(w / largest * _STEPS), _STEPS)) for w in weights
        ]
        return weighted_sum(zip(rounded, self.aims, strict=True))

    def _run(self, method: Chosen, aim: Objective, share: float | None, parts: int) -> None:
        """Make a schedule in a part of the time left."""
        if self.interrupted:
            return
        options = dict(self.options)
        left = self.end - perf_counter()
        if left < math.inf:
            options["time_limit"] = max(1e-3, left / parts)
        if share is not None:
            options["initial_schedule"] = self._known(method, aim)
        position = len(self.found) + len(self.failed)

        def solved(chosen: Chosen) -> Result:
            require_fit(self.instance, chosen)  # all serve the same requests: none rejects some
            return solve(self.instance, chosen, aim, **options)

        done = attempted(method, position, solved)
        if isinstance(done, Failure):
            self.failed.append(done)
            return
        self.interrupted = done.termination is Termination.INTERRUPTED
        name = done.label or done.schedule.method
        label = name if share is None else f"{done.schedule.method} for {aim.name}"
        self.found.append((label, share, done))

    def _known(self, method: Chosen, aim: Objective) -> Schedule | None:
        """Return the best schedule to start from; MIPs take none with chunks or mixed steps."""
        if method.information is not Information.CLAIRVOYANT:
            return None
        plain = method.method.name in ("exact", "auto")
        results = [
            result
            for _, _, result in self.found
            if aim.value(result) is not None
            and not (plain and class_of(self.instance, result.schedule).features)
        ]
        best = aim.best(results)
        return results[best[0]].schedule if best else None

    def _schedules(self) -> ScheduleClass:
        """Return the class of all schedules here, with pauses."""
        classes = (class_of(self.instance, result.schedule) for _, _, result in self.found)
        return ScheduleClass.allowing(name for each in classes for name in each.names)

    def _bounds(self) -> list[float | None]:
        """Return bounds on both objectives that hold for all that the schedules here do."""
        allows = self._schedules().features.intersection(ALLOWANCES)
        left = self.end - perf_counter()
        found: dict[str, float] = {}
        for aim in self.aims:
            name = other_name(aim.name)
            if aim.is_linear and len(self.instance):
                limit = None if left == math.inf else max(0.1, left / 2)
                proven = bound(self.instance, name, limit, sorted(allows))
                found[name] = proven.value_ns / NS_PER_S
        return [aim.bound(found) for aim in self.aims]

    def frontier(self) -> Frontier:
        """Return the points in the order of the first objective."""
        first, second = self.aims
        seen = [
            (label, share, result, first.value(result), second.value(result))
            for label, share, result in self.found
        ]
        plane = [each for each in seen if each[3] is not None and each[4] is not None]
        if len(plane) < len(seen):
            self.notes.append("schedules without one of the figures are left out")
        values = [(each[3], each[4]) for each in plane]
        points = [
            FrontierPoint(label, x, y, share, not dominated(place, values, self.aims), result)  # type: ignore[arg-type]
            for place, (label, share, result, x, y) in enumerate(plane)
        ]
        points.sort(key=lambda point: (point.first, point.second), reverse=first.largest)
        results = [result for _, _, result in self.found]
        bounds = self._bounds()
        notes = dict.fromkeys([*self.notes, *(n for r in results for n in r.notes)])
        return Frontier(
            first, second, tuple(points), bounds[0], bounds[1],
            tuple(self.failed), tuple(notes), self.instance, self._schedules(),
        )  # fmt: skip
