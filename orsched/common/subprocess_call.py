"""Work in processes of their own: start, messages, supervision and end.

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
from importlib import import_module
from math import inf
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


_SIZE = struct.Struct(">Q")
_AT_ONCE = 1 << 20


class Child:
    """A process that runs a function with its end of a pipe, and this end of it.

    ``function`` is ``module:name`` of what is called with a ``Pipe``; when it returns, the process
    ends without the clean-up of the interpreter, which can take long. ``environment`` is added to
    this process's; ``output`` is a file for what the child prints (None: errors go where those of
    this process go). Raises ``OSError`` when no process can be started.
    """

    def __init__(
        self,
        function: str,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
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
        """Return the next message, None where it is not there yet; ``EOFError``: nor will be."""
        message = self.pipe.receive()
        if message is None and self.process.poll() is not None:
            message = self.pipe.receive()  # it may have been written just before the end
            if message is None:
                raise EOFError  # a process that the child has started keeps the other end open
        return message

    def kill(self, seconds: float | None = None) -> str:
        """End the process and those that it started; wait for its end and say how it came."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.wait(seconds)

    def wait(self, seconds: float | None = None) -> str:
        """Wait for the end, so many seconds at most, and say how it came: a signal, or a status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        code = self.process.returncode
        if code is None or code >= 0:
            return f"status {code}"
        known = -code in set(signal.Signals)
        return f"signal {signal.Signals(-code).name if known else -code}"  # a real-time one

    def close(self) -> str:
        """End the process, close the pipe and say how the process ended."""
        said = self.kill()
        self.pipe.close()
        return said


class Pipe:
    """Messages over a connected socket: each is its size, then the pickled value.

    Where the socket does not block, ``receive`` does not wait.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.buffer = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self.socket.fileno()

    def send(self, value: object, seconds: float = inf) -> None:
        """Send a message (``OSError``: there is no other end; ``TimeoutError``: it is not read)."""
        data = pickle.dumps(value, 5)
        left = memoryview(_SIZE.pack(len(data)) + data)
        while left:
            try:
                left = left[self.socket.send(left) :]
            except BlockingIOError:
                if not polled(self, select.POLLOUT, seconds):
                    raise TimeoutError("the messages are not read") from None

    def receive(self) -> Any:
        """Return the next message, or None where it is not there yet."""
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
    while not any(event & ~select.POLLIN for event in polled(end, select.POLLHUP)):
        time.sleep(0.1)
    os._exit(0)


def polled(end: socket.socket | Pipe, event: int, seconds: float = inf) -> list[int]:
    """Wait for an event on a socket, at most so long; return what came."""
    poller = select.poll()
    poller.register(end, event)
    return [found for _, found in poller.poll(None if seconds == inf else max(0.0, seconds * 1000))]


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
