"""Ctrl-C between two steps: asked for at any time, raised where a run can be left."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Interrupts:
    """Keeps a first Ctrl-C until ``check``, or until it may be raised; a second one is raised.

    Outside the main thread signals stay as they are.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.may_raise = False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what comes in this block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._take)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise what comes in this block: nothing is amiss if it is left."""
        self.check()
        self.may_raise = True
        try:
            yield
        finally:
            self.may_raise = False

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if it was asked for."""
        if self.asked:
            raise KeyboardInterrupt

    def _take(self, *_: Any) -> None:
        self.asked += 1
        if self.may_raise or self.asked > 1:
            raise KeyboardInterrupt
