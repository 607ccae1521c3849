"""Ctrl-C is not lost: some packages swallow it while they are imported."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` after a block in which it was raised but swallowed."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
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
