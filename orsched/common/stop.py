"""Stopping criteria; the clock starts when ``solve`` is called."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter, process_time
from typing import Protocol

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import is_number, require_seconds

FIRST_S = 10.0
"""Seconds that a first schedule may take, whatever the time limit: policies take milliseconds."""


class Stop(Protocol):
    """A stopping criterion, evaluated after each iteration of a search.

    One that has a method ``bounded(bound_ns)`` is told each lower bound on the makespan.
    """

    def start(self) -> None:
        """Start the clock."""

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Return True to end; ``best_ns`` is the incumbent's makespan, or None."""

    @property
    def seconds_left(self) -> float:
        """Seconds until a time limit; infinity without one."""


class CpuSeconds(float):
    """A time limit in seconds of the CPU, in the place of one in seconds of the clock.

    What counts is what this process has used with all its threads, and what its child processes
    had used when they ended. A product, quotient or difference is a limit of the same kind.
    Solvers do not count so: each ends after as many seconds of the clock as are left, on one
    thread, so never more. So a limit holds on a busy machine, where a solver does less by it.

    >>> result = orsched.solve(orsched.load("gate"), "hybrid", time_limit=orsched.CpuSeconds(20))
    >>> result.checked
    True
    """

    def __mul__(self, other: float) -> CpuSeconds:
        return CpuSeconds(float(self) * other)

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> CpuSeconds:
        return CpuSeconds(float(self) / other)

    def __sub__(self, other: float) -> CpuSeconds:
        return CpuSeconds(float(self) - other)


def cpu_seconds() -> float:
    """Return CPU seconds of this process so far, and of its children that have ended."""
    times = os.times()
    return process_time() + times.children_user + times.children_system


class Clock:
    """A time limit above 0 in seconds, counted from now, or none: None or infinity."""

    def __init__(self, time_limit: float | None) -> None:
        given = math.inf if time_limit is None else require_seconds(time_limit, "time_limit")
        on_cpu = isinstance(given, CpuSeconds)
        self.seconds = given if on_cpu else float(given)
        self.limited = given != math.inf
        self._now = cpu_seconds if on_cpu else perf_counter
        self._end = self._now() + float(given)

    def out(self) -> bool:
        """Whether time is up."""
        return self.limited and self._now() >= self._end

    def left(self) -> float:
        """Seconds until the end, at least 0, of the limit's kind; infinity without one."""
        return type(self.seconds)(max(0.0, self._end - self._now()))


class _Timeless:
    """A criterion without a clock."""

    seconds_left = math.inf

    def start(self) -> None:
        """Nothing to start."""


@dataclass
class MaxIterations(_Timeless):
    """End after a number of iterations: reproducible."""

    iterations: int

    def __post_init__(self) -> None:
        self.iterations = whole_number(self.iterations, "iterations", minimum=1)

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether all iterations are done."""
        return iteration >= self.iterations


@dataclass
class MaxRuntime:
    """End after a number of seconds since ``start``, of the clock or ``CpuSeconds``."""

    seconds: float

    def __post_init__(self) -> None:
        require_seconds(self.seconds, "time_limit")
        self._clock = Clock(None)

    def start(self) -> None:
        """Start the clock."""
        self._clock = Clock(self.seconds)

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether time is up."""
        return self._clock.out()

    @property
    def seconds_left(self) -> float:
        """Seconds until the end, at least 0."""
        return self._clock.left()


@dataclass
class Until:
    """End so many seconds before a clock does: these are kept back."""

    clock: Clock
    kept_back: float

    def start(self) -> None:
        """The clock is running."""

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether time is up."""
        return self.seconds_left <= 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the end, at least 0."""
        left = self.clock.left()
        return type(left)(max(0.0, left - self.kept_back))


@dataclass
class TargetGap(_Timeless):
    """End as soon as the makespan is proven to be within a gap: (best - bound) / bound.

    The bound is the best that is known so far; ``solve`` and the search tell it, to searches that
    know the true lengths. Alone in ``solve`` it has a time limit of a minute; a criterion of your
    own around it should have one, too. Raises ``InputError`` if the gap is not a number from 0 to
    below 1; 0.01 is 1 %.
    """

    gap: float

    def __post_init__(self) -> None:
        self.gap = require_gap(self.gap)
        self._bound_ns: int | None = None

    def start(self) -> None:
        """Forget the bound of an earlier search."""
        self._bound_ns = None

    def bounded(self, bound_ns: int) -> None:
        """Take a proven lower bound; the best counts."""
        self._bound_ns = max(bound_ns, self._bound_ns or 0)

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether the incumbent is within the gap of the bound."""
        reached = gap_of(best_ns, self._bound_ns)
        return reached is not None and reached <= self.gap


def require_gap(value: object, field: str = "gap") -> float:
    """Return a gap that is a number from 0 to below 1; else raise ``InputError``."""
    if is_number(value) and 0 <= value < 1:
        return float(value)
    remedy = "0.01 is 1 %"
    if is_number(value) and 1 <= value <= 100:
        remedy = f"for {value:g} % write {value / 100:g}"
    raise InputError(
        f"{value!r} is not a gap: a share from 0 to below 1", field=field, remedy=remedy
    )


def gap_of(best_ns: float | None, bound_ns: int | None) -> float | None:
    """Return (best - bound) / bound; None while one is unknown, or the bound is 0 and not met."""
    if best_ns is None or bound_ns is None:
        return None
    if bound_ns == 0:
        return 0.0 if best_ns == 0 else None
    return (best_ns - bound_ns) / bound_ns


def most_within(gap: float, bound_ns: int) -> int:
    """Return the largest whole makespan within a gap of a bound, exactly."""
    return bound_ns if gap == 0 else bound_ns + math.floor(Fraction(gap) * bound_ns)


def target_gap(stop: Stop) -> float | None:
    """Return the gap at which a criterion ends a search, the widest of several, or None."""
    if isinstance(stop, TargetGap):
        return stop.gap
    if isinstance(stop, FirstOf):
        known = [gap for part in stop.criteria if (gap := target_gap(part)) is not None]
        return max(known, default=None)
    return target_gap(stop.whole) if isinstance(stop, OnlyTime) else None


def gap_met(stop: Stop, best_ns: int | None) -> bool:
    """Whether a criterion asks for a gap, and the incumbent is within it."""
    if isinstance(stop, FirstOf):
        return any(gap_met(part, best_ns) for part in stop.criteria)
    if isinstance(stop, OnlyTime):
        return gap_met(stop.whole, best_ns)
    return isinstance(stop, TargetGap) and stop(0, best_ns)


def tell_bound(stop: Stop, bound_ns: int) -> None:
    """Tell a criterion a proven lower bound, if it wants to know."""
    tell = getattr(stop, "bounded", None)
    if tell is not None:
        tell(bound_ns)


@dataclass
class FirstOf:
    """End when the first of several criteria is met."""

    criteria: tuple[Stop, ...]

    def start(self) -> None:
        """Start all clocks."""
        for criterion in self.criteria:
            criterion.start()

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether any criterion is met."""
        return any(criterion(iteration, best_ns) for criterion in self.criteria)

    def bounded(self, bound_ns: int) -> None:
        """Tell all a proven lower bound."""
        for criterion in self.criteria:
            tell_bound(criterion, bound_ns)

    @property
    def seconds_left(self) -> float:
        """The least of all."""
        return min((c.seconds_left for c in self.criteria), default=math.inf)


@dataclass
class OnlyTime:
    """Another criterion's time limit and gap without its iterations: for a part of a search."""

    whole: Stop

    def start(self) -> None:
        """The clock of the whole search is already running."""

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether time is up, or the gap of the whole search reached."""
        return self.seconds_left <= 0 or gap_met(self.whole, best_ns)

    @property
    def seconds_left(self) -> float:
        """Seconds left of the whole search."""
        return self.whole.seconds_left
