"""How a command ends: exit codes (docs/cli.md has the table), Ctrl-C and time limits.

It imports little, so that Ctrl-C is handled before the commands are imported.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_INVALID = 1
EXIT_INPUT = 2
EXIT_TIME_LIMIT = 3
EXIT_FAILED_CELLS = 4
EXIT_BUG = 70
"""EX_SOFTWARE of sysexits.h."""
EXIT_MACHINE = 71
"""EX_OSERR of sysexits.h: the machine failed, not the input."""
EXIT_INTERRUPTED = 130

LONGEST_S = 1e7


def interrupted_early(number: int, frame: object) -> NoReturn:
    """End at once: nothing was begun, and an exception could get lost in what is imported."""
    os.write(2, b"orsched: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def interrupted_late(number: int, frame: object) -> NoReturn:
    """End at once: all is done and said, but something keeps the interpreter from ending."""
    os._exit(EXIT_INTERRUPTED)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Raise a ``KeyboardInterrupt`` that a block swallowed, as imports of some packages do."""
    if not _in_main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # someone else handles it
        return
    received = []

    def interrupt(number: int, frame: object) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if received:
        raise KeyboardInterrupt


@contextmanager
def ended_by(time_limit: float | None) -> Iterator[None]:
    """Raise ``TimeLimitError`` in a block that outlasts its time limit by 5 % and 0.3 s.

    But not before ``FIRST_S``, which a first schedule may take, whatever the limit. Methods end by
    themselves in time; this is for what comes before and after them: loading and bounding. The
    timer repeats, since a method may return its incumbent after the first signal, but leaves a
    fifth of the time to check that: a schedule that is late is better than none. Systems without
    interval timers, and threads beside the main one, go without it. A limit of CPU seconds has a
    timer that counts these.
    """
    from orsched.common import stop  # imports numpy, which help texts do without

    timer = getattr(signal, "setitimer", None)
    if time_limit is None or not time_limit < LONGEST_S or timer is None or not _in_main_thread():
        yield
        return
    number, of = signal.SIGALRM, signal.ITIMER_REAL
    if isinstance(time_limit, stop.CpuSeconds):
        number, of = signal.SIGPROF, signal.ITIMER_PROF
    before = signal.signal(number, _out_of_time)
    rings = max(1.05 * time_limit + 0.3, stop.FIRST_S)
    timer(of, rings, 0.2 * time_limit + 1.0)
    try:
        yield
    finally:
        timer(of, 0)
        signal.signal(number, before)


def _out_of_time(number: int, frame: object) -> NoReturn:
    from orsched.common.errors import TimeLimitError

    raise TimeLimitError("the time limit ended before there was a checked schedule")
