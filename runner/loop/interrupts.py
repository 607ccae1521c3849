"""Ctrl-C between two steps: noted at any time, raised where a run can be stopped."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_KEPT = 3
"""Interrupts held back while an interrupted run is put in order; one more ends even that."""


class Interrupts:
    """Keeps a first Ctrl-C until ``check``, or until it may be raised; a second one is raised.

    Once one was raised, further ones are kept, but where they may be raised: what was done until
    then must not be lost while it is put in order, checked and written. Outside the main thread
    signals stay as they are.

    Args:
        told: whether one was raised already.
    """

    def __init__(self, told: bool = False) -> None:
        self.asked = 0
        self.may_raise = False
        self.told = told

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
            self._raise()

    def _take(self, *_: Any) -> None:
        self.asked += 1
        if self.may_raise or self.asked > (_MOST_KEPT if self.told else 1):
            self._raise()

    def _raise(self) -> NoReturn:
        self.told, self.may_raise = True, False
        raise KeyboardInterrupt


@contextmanager
def finishing(stopped: str) -> Iterator[None]:
    """Keep Ctrl-C while a run that was stopped is checked and written."""
    if not stopped:
        yield
        return
    with Interrupts(told=True).kept():
        yield
