"""Stopping criteria that run out of time without a clock, for tests of time limits."""

from __future__ import annotations

LONG_S = 1000.0
"""Seconds that are left until the end: no machine is so busy that a test would take them."""


class TimeUp:
    """A stop whose time ends after a number of iterations; after none it is up from the start.

    Until then so many seconds are left, always the same: searches that plan by them plan alike.
    """

    def __init__(self, iterations: int = 0, seconds: float = LONG_S) -> None:
        self.iterations = iterations
        self.seconds_left = seconds if iterations else 0.0

    def start(self) -> None:
        """There is no clock to start."""

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """Whether so many iterations are done."""
        if iteration >= self.iterations:
            self.seconds_left = 0.0
        return self.seconds_left == 0.0


class CpuPast:
    """A CPU clock on which time passes only when it is read: ``cpu_seconds`` of a test."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        """Return the seconds so far."""
        self.now += self.step
        return self.now


class Countdown:
    """A stop whose seconds pass only where a test says so, by ``now``."""

    def __init__(self, limit: float) -> None:
        self.limit, self.now = limit, 0.0

    def start(self) -> None:
        """There is no clock to start."""

    def __call__(self, iteration: int, best_ns: int | None) -> bool:
        """End after the first iteration."""
        return True

    @property
    def seconds_left(self) -> float:
        """Seconds until the end."""
        return self.limit - self.now
