"""The clock of a device that the host times: the wall's, or CPU time of the thread that runs it.

CPU time leaves out what other processes take of a core, so that a busy machine does not make steps
longer. Waits for arrivals take none: they are skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import perf_counter_ns, sleep, thread_time_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Sequence

    from orsched.runner.worker.layout import Chunk

WALL, CPU_TIME = "perf_counter", "CPU time (thread_time)"

_SPIN_NS = 200_000  # the last part of a wait is not left to the operating system


class HostClock(ABC):
    """Times of a run, in nanoseconds since its start.

    ``on_cpu``: whether the steps are computed on the CPU, in the thread that begins them. Then a
    run that starts at a moment of its own is timed in CPU time; one that shares a moment with
    others is timed by the wall, which all of them have in common.
    """

    on_cpu = False
    clock = WALL
    zero_ns = 0
    begun: deque[Any]  # times of steps that were begun

    @abstractmethod
    def begin(
        self, chunks: Sequence[Chunk], active: Sequence[int], rounds: int, planned_ns: int
    ) -> None:
        """Begin a step."""

    def start(self, zero_ns: int | None = None) -> None:
        """Let time begin: now, or at a moment of ``perf_counter_ns``."""
        if zero_ns is None and self.on_cpu:
            self.clock, self.zero_ns = CPU_TIME, thread_time_ns()
        else:
            self.clock, self.zero_ns = WALL, perf_counter_ns() if zero_ns is None else zero_ns

    def now_ns(self) -> int:
        """Return the time on the host."""
        return (thread_time_ns() if self.clock == CPU_TIME else perf_counter_ns()) - self.zero_ns

    def aside(self, chunks: list[Chunk], active: list[int], rounds: int) -> int:
        """Execute a step that is not part of the run; return its time, which does not count."""
        before = self.now_ns()
        self.begin(chunks, active, rounds, 0)
        taken = self.begun.pop()
        self.zero_ns += self.now_ns() - before
        return int(taken[1] - taken[0])

    def sleep_until(self, moment_ns: int) -> None:
        """Sleep until a moment, and spin at the end; in CPU time the moment is there at once."""
        if self.clock == CPU_TIME:
            self.zero_ns -= max(0, moment_ns - self.now_ns())
            return
        while (left := moment_ns - self.now_ns()) > 0:
            if left > _SPIN_NS:
                sleep((left - _SPIN_NS) / 1e9)
