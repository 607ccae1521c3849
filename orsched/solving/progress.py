"""Work under way, for people who wait: in place on a terminal, in lines elsewhere, in notebooks.
What takes less than a moment shows nothing."""

from __future__ import annotations

import os
import sys
import threading
import unicodedata
from itertools import accumulate
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

from orsched.common.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.solving.methods import Progress

INTERVAL_S, SHARE = 2.0, 0.1
"""Seconds between lines at first, then a share of the time so far: files of lines stay short."""
TICK_S, FIRST_S = 0.2, 0.5  # on a terminal: seconds between changes, and until the first


class State:
    """What is being done, since when, and how far it is."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.begin = perf_counter()
        self.record: Progress | None = None
        self._received = self.begin

    def take(self, record: Progress) -> None:
        """Take the record of an iteration."""
        self.what, self.record, self._received = record.method, record, perf_counter()

    def name(self, what: str) -> None:
        """Name the step that begins now."""
        self.what, self.record = what, None

    @property
    def seconds_left(self) -> float:
        """Until the time limit of the search; infinity without one."""
        if self.record is None or self.record.seconds_left == inf:
            return inf
        return max(0.0, self.record.seconds_left - (perf_counter() - self._received))

    def parts(self) -> list[tuple[int, str]]:
        """Return the pieces of the status line behind the time and the name, each with its rank:
        where there is no room, pieces of the highest rank are left out."""
        seen = self.record
        if seen is None:
            return []
        value = seen.makespan_ns if seen.value is None else seen.value
        best = "no schedule yet" if value is None else f"best {_s(value)}"
        found = [(5, f"iteration {seen.iteration}"), (1, best)]
        if seen.bound_ns is not None:
            found.append((4, f"bound {_s(seen.bound_ns)}"))
        if seen.gap is not None:
            found.append((2, f"gap {100 * seen.gap:.2f} %"))
        if self.seconds_left < inf:
            found.append((3, f"{duration(self.seconds_left)} left"))
        return found

    def line(self, width: float = inf) -> str:
        """Return the status in one line of at most a width, in columns of a terminal."""
        begin = f"{duration(perf_counter() - self.begin)}: {printable(self.what)}"
        parts = self.parts()
        while True:
            text = ": ".join([begin, ", ".join(text for _, text in parts)]) if parts else begin
            if not parts or columns(text) <= width:
                return cut(text, width)
            parts.remove(max(parts))


class Surface(Protocol):
    """Where a status is shown."""

    first_s: float  # seconds until it is shown for the first time
    interval_s: float
    """Seconds from one time to the next; infinity: only when there is something new."""

    def show(self, state: State) -> None:
        """Show the state of now."""

    def close(self, state: State) -> None:
        """Show that the work has ended, or take away what was shown."""


class Lines:
    """A line every two seconds at first, after 20 s ever less often: for pipes and files."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.first_s = self.interval_s = INTERVAL_S
        self._write = write

    def show(self, state: State) -> None:
        """Write a line, and the next one later."""
        self._write(state.line())
        self.interval_s = max(INTERVAL_S, SHARE * (perf_counter() - state.begin))

    def close(self, state: State) -> None:
        """Leave what was written."""


class InPlace:
    """One line of a terminal that is written again, as wide as the terminal is at that moment. No
    escape codes: the cursor goes back with a carriage return, blanks cover what was there."""

    first_s, interval_s = FIRST_S, TICK_S
    current: InPlace | None = None
    """The one in use; what else is printed on the terminal takes its text away first."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._written = 0
        self._ended = False
        self._lock = threading.Lock()
        InPlace.current = self

    def show(self, state: State) -> None:
        """Write the status over the one before, until the end."""
        with self._lock:
            if self._ended:
                return
            text = state.line(_columns_of(self._stream) - 1)
            width = columns(text)
            self._put(text + " " * (self._written - width))
            self._written = width

    def clear(self, *, end: bool = False) -> None:
        """Take the line away; ``end``: for good."""
        with self._lock:
            self._ended = self._ended or end
            if self._written:
                # All of it: a terminal shows ^C behind the text.
                self._put(" " * (_columns_of(self._stream) - 1) + "\r")
                self._written = 0

    def close(self, state: State) -> None:
        """Take the line away."""
        self.clear(end=True)
        InPlace.current = None

    def _put(self, text: str) -> None:
        try:
            self._stream.write("\r" + text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal has gone
            pass


class Cell:
    """A line below a notebook's cell, with a bar of the time limit; needs no widgets. It is renewed
    when the search reports, in the thread of the cell."""

    first_s, interval_s = 0.0, inf

    def __init__(self) -> None:
        self._handle: Any = None
        self._last = -inf

    def show(self, state: State) -> None:
        """Show or renew it, at most five times a second."""
        now = perf_counter()
        if now - self._last >= TICK_S:
            self._last = now
            self._update(state, done=False)

    def close(self, state: State) -> None:
        """Leave the last state."""
        if self._handle is not None:
            self._update(state, done=True)

    def _update(self, state: State, *, done: bool) -> None:
        from IPython.display import display

        page = {"text/plain": state.line(), "text/html": _html(state, done)}
        if self._handle is None:
            self._handle = display(page, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(page, raw=True)


class Watch:
    """Shows what is being done until its block ends; ``surface`` None shows nothing. ``callback``
    goes to ``solve``, ``say`` names a step of the work."""

    def __init__(self, what: str, surface: Surface | None) -> None:
        self.state, self._surface = State(what), surface
        self._done = threading.Event()
        ticks = surface is not None and surface.interval_s < inf
        self._thread = threading.Thread(target=self._tick, daemon=True) if ticks else None

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if self._surface is not None:
            self._surface.close(self.state)

    def say(self, what: str) -> None:
        """Name the step that begins now."""
        self.state.name(what)

    def callback(self, progress: Progress) -> None:
        """Take the record of an iteration."""
        self.state.take(progress)
        if self._surface is not None and self._thread is None:
            self._surface.show(self.state)

    def _tick(self) -> None:
        assert self._surface is not None
        wait = self._surface.first_s
        while not self._done.wait(wait):
            self._surface.show(self.state)
            wait = self._surface.interval_s


def watch(what: str, write: Callable[[str], None] | None = None) -> Watch:
    """Return a watch that shows its work where this process can be seen: in a notebook below the
    cell, on a terminal in place, else in lines on standard error; ``write`` writes such a line."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):  # of a notebook; nothing is imported for it
        return Watch(what, Cell())
    stream = sys.stderr
    if is_terminal(stream):
        return Watch(what, InPlace(stream))
    return Watch(what, Lines(write or (lambda line: print(line, file=sys.stderr, flush=True))))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal on which a line can be written again."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def clear_line(*, end: bool = False) -> None:
    """Take a status line away before something else is printed; ``end``: none is shown then."""
    if InPlace.current is not None:
        InPlace.current.clear(end=end)


def duration(seconds: float) -> str:
    """Return a time as a person says it: 59 s, 2 min 5 s, 1 h 2 min."""
    whole = int(seconds + 0.5)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min"


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: some characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: float) -> str:
    """Return a text cut to a width in columns."""
    if columns(text) <= width:
        return text
    ends = accumulate(map(columns, text))
    return "".join(character for character, end in zip(text, ends, strict=True) if end <= width)


def printable(text: str) -> str:
    """Return a text on one line, control characters and what cannot be seen as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _s(ns: float) -> str:
    seconds = ns / NS_PER_S
    return f"{seconds:.3f} s" if seconds < 100 else f"{seconds:.2f} s"


def _columns_of(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _html(state: State, done: bool) -> str:
    from html import escape

    spent = perf_counter() - state.begin
    left = state.seconds_left
    bar = ""
    if not done and left < inf:
        share = spent / (spent + left) if spent + left > 0 else 1.0
        bar = f' <progress value="{share:.3f}" max="1" style="vertical-align:middle"></progress>'
    parts = state.line().partition(": ")[2].partition(": ")[2] or "..."
    return (
        '<div style="font-variant-numeric:tabular-nums">'
        f"<b>{escape(printable(state.what))}</b> {escape(duration(spent))}{bar} {escape(parts)}"
        f"{', done' if done else ''}</div>"
    )
