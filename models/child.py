"""Work that may not stop, in a child process that is ended at its deadline.

A solver can overrun its own time limit, hold the interpreter or run out of memory. In a child
process it streams what it finds through a pipe, and the parent ends it when time is up: what was
streamed by then is all that is lost or kept.

The child is a fresh interpreter that imports the target by name; unlike ``multiprocessing``'s
spawn it never imports the caller's ``__main__``, so scripts need no guard.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from orsched.errors import OrschedError
from orsched.subprocess_call import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable

Reason = Literal["finished", "deadline", "stopped", "interrupted", "died"]

_HEADER = struct.Struct(">Q")
_CHUNK = 1 << 16
_LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True)
class ChildOutcome:
    """How a child's work ended.

    Attributes:
        reason: ``finished``; ``deadline``: ended by the parent in time; ``stopped``:
            ``on_message`` returned True; ``interrupted``: Ctrl-C in the parent; ``died``: the
            child ended without a word, for example for want of memory.
        value: what the target returned when it finished, else None.
        detail: why the child died, else "".
    """

    reason: Reason
    value: Any = None
    detail: str = ""


def run_in_child(
    target: Callable[[Any, Callable[[Any], None]], Any],
    payload: Any,
    deadline_s: float | None,
    on_message: Callable[[Any], object] | None = None,
) -> ChildOutcome:
    """Run ``target(payload, send)`` in a child process and return how it ended.

    Args:
        target: a function at the top level of an importable module; whatever it passes to
            ``send`` arrives at ``on_message`` in order.
        payload: any picklable value.
        deadline_s: seconds from this call after which the child is killed, or None.
        on_message: called in this thread with each message, also with those that were under way
            when the child ended; returning True ends the child.

    What the child raises is raised here: an ``OrschedError`` as it is, anything else as a
    ``RuntimeError`` with the child's traceback. Ctrl-C here ends the child and is *not* raised
    again: the reason says ``interrupted``.
    """
    end = None if deadline_s is None else perf_counter() + deadline_s
    try:
        child = _Child(f"{target.__module__}:{target.__qualname__}", payload)
    except KeyboardInterrupt:  # a child that was started ends with its pipe
        return ChildOutcome("interrupted")
    try:
        return _listen(child, end, on_message or (lambda _: None))
    except KeyboardInterrupt:
        child.kill()
        with contextlib.suppress(KeyboardInterrupt):
            _deliver(child.received(), on_message or (lambda _: None))
        return ChildOutcome("interrupted")
    finally:
        child.close()


class _Child:
    """The child process and the pipe on which it answers."""

    def __init__(self, target: str, payload: Any) -> None:
        data = pickle.dumps((target, payload))
        self.reading, writing = os.pipe()
        self.buffer = bytearray()
        try:
            self.process = subprocess.Popen(
                interpreter("orsched.models.child:child_main", writing),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(writing,),
                start_new_session=True,  # Ctrl-C reaches the parent alone
            )
        except BaseException:
            os.close(self.reading)
            raise
        finally:
            os.close(writing)
        assert self.process.stdin is not None
        self.stdin = self.process.stdin
        # The pipe stays open afterwards: its end tells the child that the parent is gone.
        feeder = threading.Thread(target=self._feed, args=(data,), daemon=True)
        feeder.start()

    def _feed(self, data: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.stdin.write(_HEADER.pack(len(data)) + data)
            self.stdin.flush()

    def wait(self, seconds: float | None) -> bool:
        """Read what arrives within some seconds; False when the pipe has ended."""
        ready, _, _ = select.select([self.reading], [], [], seconds)
        if not ready:
            return True
        data = os.read(self.reading, _CHUNK)
        self.buffer += data
        return bool(data)

    def messages(self) -> list[tuple[str, Any]]:
        """Return the complete messages in the buffer."""
        found = []
        while len(self.buffer) >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self.buffer)
            stop = _HEADER.size + size
            if len(self.buffer) < stop:
                break
            found.append(pickle.loads(bytes(self.buffer[_HEADER.size : stop])))
            del self.buffer[:stop]
        return found

    def received(self) -> list[tuple[str, Any]]:
        """Return what is still in the pipe of a child that was killed."""
        while self.wait(0) and select.select([self.reading], [], [], 0)[0]:
            pass
        return self.messages()

    def kill(self) -> None:
        """End the process now."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the process and close both pipes."""
        self.kill()
        with contextlib.suppress(OSError):
            self.stdin.close()
        with contextlib.suppress(OSError):
            os.close(self.reading)


def _listen(child: _Child, end: float | None, on_message: Callable[[Any], object]) -> ChildOutcome:
    """Pass messages on until the child finishes, dies or must end."""
    while True:
        left = None if end is None else end - perf_counter()
        if left is not None and left <= 0:
            child.kill()
            return _deliver(child.received(), on_message) or ChildOutcome("deadline")
        alive = child.wait(None if left is None else min(left, _LONGEST_WAIT_S))
        outcome = _deliver(child.messages(), on_message)
        if outcome is not None:
            return outcome
        if not alive:
            code = child.process.wait()
            signalled = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
            return ChildOutcome("died", detail=f"the child process ended with {signalled}")


def _deliver(
    messages: list[tuple[str, Any]], on_message: Callable[[Any], object]
) -> ChildOutcome | None:
    for kind, value in messages:
        if kind == "done":
            return ChildOutcome("finished", value)
        if kind == "raised":
            raise value if isinstance(value, OrschedError) else RuntimeError(value)
        if on_message(value) is True:
            return ChildOutcome("stopped")
    return None


def child_main(writing: int) -> None:
    """Run in the child: read target and payload, call it, answer on file descriptor ``writing``."""
    source = sys.stdin.buffer
    (size,) = _HEADER.unpack(source.read(_HEADER.size))
    name, payload = pickle.loads(source.read(size))
    threading.Thread(target=_follow_parent, args=(source,), daemon=True).start()
    lock = threading.Lock()  # solvers call back from threads of their own

    def answer(kind: str, value: Any) -> None:
        data = pickle.dumps((kind, value))
        with lock:
            view = memoryview(_HEADER.pack(len(data)) + data)
            while view:
                view = view[os.write(writing, view) :]

    module, _, attribute = name.partition(":")
    try:
        value = getattr(import_module(module), attribute)(payload, lambda v: answer("message", v))
        answer("done", value)
    except OrschedError as error:
        answer("raised", _picklable(error))
    except Exception:
        import traceback

        answer("raised", f"in a child process:\n{traceback.format_exc()}")
    os._exit(0)  # skip the solvers' clean-up, which can take long


def _follow_parent(source: Any) -> None:
    """End this process when the parent's end of the pipe closes."""
    source.read()
    os._exit(1)


def _picklable(error: OrschedError) -> OrschedError:
    """Return the error, or a plain one with its text where it cannot travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return OrschedError(str(error))
    return error
