"""Progress on stderr, from two seconds on."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING, Self

from orsched.cli.output import say
from orsched.units import NS_PER_S

if TYPE_CHECKING:
    from orsched.methods import Progress

INTERVAL_S = 2.0


class ProgressPrinter:
    """Prints every two seconds the current step and the incumbent.

    A context manager; ``callback`` goes to ``solve``, ``say`` names a step of the work. What
    takes less than two seconds prints nothing.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._detail = ""
        self._begin = perf_counter()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._print, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def say(self, what: str) -> None:
        """Name the step that begins now."""
        self._what, self._detail = what, ""

    def callback(self, progress: Progress) -> None:
        """Record an iteration."""
        best = progress.makespan_ns
        value = "no schedule yet" if best is None else f"best {best / NS_PER_S:.3f} s"
        self._what = progress.method
        self._detail = f": iteration {progress.iteration}, {value}"

    def _print(self) -> None:
        while not self._done.wait(INTERVAL_S):
            spent = perf_counter() - self._begin
            say(f"{spent:.0f} s: {self._what}{self._detail}")
