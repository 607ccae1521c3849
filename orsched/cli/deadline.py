"""A time limit on a whole command: loading and bounding do not observe one themselves."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from orsched.common.errors import TimeLimitError

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_S = 1e7


@contextmanager
def ended_by(time_limit: float | None) -> Iterator[None]:
    """Raise ``TimeLimitError`` in a block that outlasts its time limit by 5 % and 0.3 s.

    But not before ``FIRST_S``, which a first schedule may take, whatever the limit. Methods end by
    themselves in time; this is for what comes before and after them. The timer
    repeats, since a method may return its incumbent after the first signal. Systems without
    interval timers, and threads beside the main one, go without it.
    """
    from orsched.common import stop  # imports numpy, which help texts do without

    timer = getattr(signal, "setitimer", None)
    main = threading.current_thread() is threading.main_thread()
    if time_limit is None or not time_limit < LONGEST_S or timer is None or not main:
        yield
        return
    before = signal.signal(signal.SIGALRM, _out_of_time)
    rings = max(1.05 * time_limit + 0.3, stop.FIRST_S)
    timer(signal.ITIMER_REAL, rings, 0.02 * time_limit + 0.1)
    try:
        yield
    finally:
        timer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _out_of_time(number: int, frame: object) -> NoReturn:
    raise TimeLimitError("the time limit ended before there was a checked schedule")
