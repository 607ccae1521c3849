"""Workers in processes of their own on this machine.

A process is a fresh interpreter with one end of a socket pair; it ends when the other end closes,
whatever it is doing. So no process outlives its parent.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from orsched.runner.devices.messages import Lost, Pipe, Ready
from orsched.runner.devices.remote import RemoteDevice
from orsched.runner.devices.settings import visible_gpu
from orsched.subprocess_call import interpreter

if TYPE_CHECKING:
    from orsched.runner.devices.messages import Begin, Start

_TAIL = 2000  # characters of what a dying process has written
_DYING_S = 0.2  # a process that was killed is gone at once, but for a driver that cleans up
_LEAVING_S = 10.0


class ProcessDevice(RemoteDevice):
    """A torch worker in a process of its own (``RemoteDevice`` says with which arguments).

    On ``cuda:1`` the process sees that GPU alone.
    """

    process: subprocess.Popen[bytes] | None = None
    pipe: Pipe
    has_pipe = False
    left: tuple[subprocess.Popen[bytes], ...] = ()  # were killed and are not gone yet

    def _launch(self) -> None:
        added, device = visible_gpu(self.settings.device)
        if self.settings.threads is not None:
            added["OMP_NUM_THREADS"] = str(self.settings.threads)
        near, far = socket.socketpair()
        near.setblocking(False)
        self.pipe, self.has_pipe = Pipe(near), True
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process lives
        with far:
            self.process = subprocess.Popen(
                interpreter("orsched.runner.devices.processes:serve", far.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                env={**os.environ, **added},
                pass_fds=(far.fileno(),),
                start_new_session=True,  # Ctrl-C reaches the parent alone
            )
        self.pipe.send((self.settings, device))

    @property
    def pid(self) -> int | None:
        """Return the number of the worker's process."""
        return None if self.process is None else self.process.pid

    def _send(self, message: Start | Begin) -> None:
        self.pipe.send(message, self.hang_ns / 1e9)

    def _receive(self) -> Any:
        answer = self.pipe.receive()
        if answer is None and self.process is not None and self.process.poll() is not None:
            answer = self.pipe.receive()  # it may have been written just before the end
            if answer is None:
                raise EOFError  # a process of its own keeps the other end open
        return answer

    def _channel(self) -> Any:
        return self.pipe

    def _kill(self) -> str:
        """End the process and those that it started; say how it ended."""
        self.left = tuple(one for one in self.left if one.poll() is None)
        process, self.process = self.process, None
        said = "" if process is None else self._end(process)
        if self.has_pipe:
            self.pipe.close()
            self.output.close()
            self.has_pipe = False
        return said

    def _end(self, process: subprocess.Popen[bytes]) -> str:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_DYING_S)
        if process.returncode is None:
            self.left += (process,)
        said = _tail(self.output)
        return f"the process ended with {_ending(process.returncode)}" + (said and f": {said}")

    def close(self) -> None:
        """End the process; none is left behind."""
        super().close()
        for process in self.left:
            process.wait(_LEAVING_S)
        self.left = ()


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"status {code}"
    name = signal.Signals(-code).name
    return f"signal {name}" + (" (is memory short?)" if name == "SIGKILL" else "")


def _tail(output: Any) -> str:
    """Return the end of what was written to a file."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL))
    text: str = output.read().decode(errors="replace")
    return text.strip()


def serve(descriptor: int) -> None:
    """Be the worker's process: answer messages until the other end closes."""
    faulthandler.enable()
    os.set_inheritable(descriptor, False)
    end = socket.socket(fileno=descriptor)
    threading.Thread(target=_follow, args=(end,), daemon=True).start()
    pipe = Pipe(end)
    settings, device = pipe.receive()
    from orsched.runner.devices.serving import ServedWorker  # it imports torch

    worker = ServedWorker(settings, device)
    pipe.send(worker.greeting)
    alive = isinstance(worker.greeting, Ready)
    while alive:
        answer = worker.answer(pipe.receive())
        if answer is not None:
            pipe.send(answer)
        alive = not isinstance(answer, Lost)
    os._exit(0)  # what torch would tidy up ends with the process anyway


def _follow(end: socket.socket) -> None:
    """End this process when nobody is at the other end, even if it hangs."""
    poller = select.poll()
    poller.register(end, 0)  # that the other end has closed is told unasked
    poller.poll()
    os._exit(0)
