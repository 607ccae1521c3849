"""Work in processes of their own: their start, messages, supervision and end.

A child is a fresh interpreter. It imports what this process would import, and nothing from the
working folder that this process would not: its paths of imports are set before its first import.
It imports the function that it calls by name; unlike ``multiprocessing``'s spawn it never imports
the caller's ``__main__``, so scripts need no guard. Ctrl-C reaches the parent alone, and a child
ends with its parent, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from importlib import import_module
from math import inf
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, Literal

from orsched.common.errors import OrschedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_SIZE = struct.Struct(">Q")
_AT_ONCE = 1 << 20


class Child:
    """A process that runs a function with its end of a pipe, and this end of it.

    Args:
        function: ``module:name`` of what is called with a ``Pipe``; when it returns, the process
            ends without the clean-up of the interpreter, which can take long.
        environment: what is added to this process's environment.
        output: a file for what the child prints; None: errors go where those of this process go.
        waits: whether ``receive`` waits.

    Raises ``OSError`` when no process can be started.

    Attributes:
        process: the process.
        pipe: this end.
    """

    def __init__(
        self,
        function: str,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
        *,
        waits: bool = False,
    ) -> None:
        near, far = socket.socketpair()
        near.setblocking(waits)
        self.pipe = Pipe(near)
        try:
            self.process = subprocess.Popen(
                interpreter("orsched.common.subprocess_call:serve", function, far.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if output is None else output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                pass_fds=(far.fileno(),),
                start_new_session=True,  # Ctrl-C reaches the parent alone
            )
        except BaseException:
            near.close()
            raise
        finally:
            far.close()

    def receive(self) -> Any:
        """Return the next message; None where it is not there yet, unless ``waits``.

        Raises:
            EOFError: the child has ended, or has closed its end.
        """
        message = self.pipe.receive()
        if message is None and self.process.poll() is not None:
            message = self.pipe.receive()  # it may have been written just before the end
            if message is None:
                raise EOFError  # a process that the child has started keeps the other end open
        return message

    def kill(self, seconds: float | None = None) -> str:
        """End the process and those that it started; wait for its end and say how it came.

        Args:
            seconds: to wait at most; None: as long as it takes.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.wait(seconds)

    def wait(self, seconds: float | None = None) -> str:
        """Wait for the end of the process and say how it came: a signal, or a status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        code = self.process.returncode
        return f"status {code}" if code is None or code >= 0 else f"signal {_name(-code)}"

    def close(self) -> str:
        """End the process, close the pipe and say how the process ended."""
        said = self.kill()
        self.pipe.close()
        return said


class Pipe:
    """Messages over a socket: each is its size, then the pickled value.

    Args:
        end: a connected socket; where it does not block, ``receive`` does not wait.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.buffer = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self.socket.fileno()

    def send(self, value: object, seconds: float = inf) -> None:
        """Send a message.

        Raises:
            OSError: there is no other end.
            TimeoutError: the other end has not made room for it in time.
        """
        data = pickle.dumps(value, 5)
        left = memoryview(_SIZE.pack(len(data)) + data)
        while left:
            try:
                left = left[self.socket.send(left) :]
            except BlockingIOError:
                poller = select.poll()
                poller.register(self.socket, select.POLLOUT)
                if not poller.poll(None if seconds == inf else max(0.0, seconds * 1000)):
                    raise TimeoutError("the messages are not read") from None

    def receive(self) -> Any:
        """Return the next message, or None where it is not there yet.

        Raises:
            EOFError: there is no other end.
        """
        while (size := self._size()) is None or len(self.buffer) < size:
            try:
                data = self.socket.recv(_AT_ONCE)
            except BlockingIOError:
                return None
            except OSError:
                data = b""
            if not data:
                raise ClosedError
            self.buffer += data
        message = pickle.loads(memoryview(self.buffer)[_SIZE.size : size])
        del self.buffer[:size]
        return message

    def _size(self) -> int | None:
        """Return what the first message takes of the buffer, as far as that is known."""
        if len(self.buffer) < _SIZE.size:
            return None
        found: int = _SIZE.unpack_from(self.buffer)[0]
        return _SIZE.size + found

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


class ClosedError(EOFError):
    """The other end of a pipe is closed."""


def serve(function: str, descriptor: int) -> None:
    """Be a child: call ``module:name`` with the end of the pipe on a file descriptor."""
    os.set_inheritable(descriptor, False)
    end = socket.socket(fileno=descriptor)
    threading.Thread(target=_follow, args=(end,), daemon=True).start()
    module, _, name = function.partition(":")
    with contextlib.suppress(ClosedError, BrokenPipeError, ConnectionResetError):
        getattr(import_module(module), name)(Pipe(end))
    os._exit(0)


def _follow(end: socket.socket) -> None:
    """End this process when the other end is closed, even if it hangs."""
    poller = select.poll()
    poller.register(end, select.POLLHUP)
    while not any(event & ~select.POLLIN for _, event in poller.poll()):
        time.sleep(0.1)
    os._exit(0)


def interpreter(function: str, *arguments: str | int) -> list[str]:
    """Return the command line of a fresh interpreter that calls ``module:name``."""
    module, _, name = function.partition(":")
    call = f"from {module} import {name}; {name}(*{arguments!r})"
    code = f"import sys; sys.path[:] = sys.argv[1:]; {call}"
    return [sys.executable, *_flags(), "-c", code, *import_paths()]


def import_paths() -> list[str]:
    """Return the paths of imports, the working folder by its name."""
    try:
        here = [os.getcwd()]
    except FileNotFoundError:  # it was removed
        here = []
    return [entry for path in sys.path for entry in ([path] if path else here)]


def _flags() -> list[str]:
    """Return this interpreter's isolation; ``-c`` alone would look into the working folder first.

    ``-I`` is not for all: it would leave out the user's packages, whose ``.pth`` files make
    editable installs importable.
    """
    if sys.flags.isolated:
        return ["-I"]
    own = {"-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return ["-P", *(flag for flag, is_set in own.items() if is_set)]


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


Reason = Literal["finished", "deadline", "stopped", "interrupted", "died"]

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
    end = inf if deadline_s is None else perf_counter() + deadline_s
    hear = on_message or (lambda _: None)
    try:
        child = Child("orsched.common.subprocess_call:answer_call")
    except KeyboardInterrupt:  # a child that was started ends with its pipe
        return ChildOutcome("interrupted")
    try:
        return _call(child, (f"{target.__module__}:{target.__qualname__}", payload), end, hear)
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            return _ended(child, hear, ChildOutcome("interrupted"))
        return ChildOutcome("interrupted")
    finally:
        child.close()


def _call(
    child: Child, job: tuple[str, Any], end: float, on_message: Callable[[Any], object]
) -> ChildOutcome:
    """Pass messages on until the child finishes, dies or must end."""
    poller = select.poll()
    poller.register(child.pipe, select.POLLIN)
    try:
        child.pipe.send(job, end - perf_counter())
    except TimeoutError:
        return ChildOutcome("deadline")
    except OSError:
        return _died(child)
    while (left := end - perf_counter()) > 0:
        try:
            message = child.receive()
        except EOFError:
            return _died(child)
        if message is None:
            poller.poll(min(left, _LONGEST_WAIT_S) * 1000)
        elif (outcome := _outcome(message, on_message)) is not None:
            return outcome
    return _ended(child, on_message, ChildOutcome("deadline"))


def _ended(
    child: Child, on_message: Callable[[Any], object], outcome: ChildOutcome
) -> ChildOutcome:
    """End the child; what it had sent by then may be that it finished."""
    child.kill()
    with contextlib.suppress(EOFError):
        while (message := child.receive()) is not None:
            if (better := _outcome(message, on_message)) is not None:
                return better if outcome.reason == "deadline" else outcome
    return outcome


def _died(child: Child) -> ChildOutcome:
    return ChildOutcome("died", detail=f"the child process ended with {child.wait()}")


def _outcome(message: tuple[str, Any], on_message: Callable[[Any], object]) -> ChildOutcome | None:
    """Pass a message on; return what it means for the call, if it ends it."""
    kind, value = message
    if kind == "done":
        return ChildOutcome("finished", value)
    if kind == "raised":
        raise value if isinstance(value, OrschedError) else RuntimeError(value)
    return ChildOutcome("stopped") if on_message(value) is True else None


def answer_call(pipe: Pipe) -> None:
    """Run in the child: read target and payload, call it and answer."""
    name, payload = pipe.receive()
    lock = threading.Lock()  # solvers call back from threads of their own

    def answer(kind: str, value: Any) -> None:
        with lock:
            pipe.send((kind, value))

    module, _, attribute = name.partition(":")
    try:
        value = getattr(import_module(module), attribute)(payload, lambda v: answer("message", v))
        answer("done", value)
    except OrschedError as error:
        answer("raised", _picklable(error))
    except Exception:
        import traceback

        answer("raised", f"in a child process:\n{traceback.format_exc()}")


def _picklable(error: OrschedError) -> OrschedError:
    """Return the error, or a plain one with its text where it cannot travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return OrschedError(str(error))
    return error
