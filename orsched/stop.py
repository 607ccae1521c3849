"""Stopping criteria; the clock starts when ``solve`` is called."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from orsched.columns import whole_number
from orsched.scalars import require_seconds


class Stop(Protocol):
    """A stopping criterion, evaluated after each iteration of a search."""

    def start(self) -> None:
        """Start the clock."""

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Return True to end; ``best_ns`` is the incumbent's makespan, or None."""

    @property
    def seconds_left(self) -> float:
        """Seconds until a time limit; infinity without one."""


class Clock:
    """A time limit in seconds, counted from now, or none: None or infinity.

    Raises ``InputError`` for a limit that is no number above 0.
    """

    def __init__(self, time_limit: float | None) -> None:
        seconds = math.inf if time_limit is None else time_limit
        self.limited = seconds != math.inf
        self._end = perf_counter() + require_seconds(seconds, "time_limit")

    def out(self) -> bool:
        """Whether time is up."""
        return self.limited and perf_counter() >= self._end

    def left(self) -> float:
        """Seconds until the end, at least 0; infinity without one."""
        return max(0.0, self._end - perf_counter())


@dataclass
class MaxIterations:
    """End after a number of iterations: reproducible."""

    iterations: int

    def __post_init__(self) -> None:
        self.iterations = whole_number(self.iterations, "iterations", minimum=1)

    def start(self) -> None:
        """Nothing to start."""

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether all iterations are done."""
        return iteration >= self.iterations

    @property
    def seconds_left(self) -> float:
        """No time limit."""
        return math.inf


@dataclass
class MaxRuntime:
    """End after a number of seconds since ``start``."""

    seconds: float

    def __post_init__(self) -> None:
        require_seconds(self.seconds, "time_limit")
        self._end = math.inf

    def start(self) -> None:
        """Start the clock."""
        self._end = perf_counter() + self.seconds

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether time is up."""
        return perf_counter() >= self._end

    @property
    def seconds_left(self) -> float:
        """Seconds until the end, at least 0."""
        return max(0.0, self._end - perf_counter())


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

    @property
    def seconds_left(self) -> float:
        """The least of all."""
        return min((c.seconds_left for c in self.criteria), default=math.inf)


@dataclass
class OnlyTime:
    """Another criterion's time limit without its iterations: for a part of a longer search."""

    whole: Stop

    def start(self) -> None:
        """The clock of the whole search is already running."""

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether time is up."""
        return self.seconds_left <= 0

    @property
    def seconds_left(self) -> float:
        """Seconds left of the whole search."""
        return self.whole.seconds_left
