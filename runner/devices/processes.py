"""Workers in processes of their own on this machine."""

from __future__ import annotations

import faulthandler
import os
import tempfile
from typing import TYPE_CHECKING, Any

from orsched.common.subprocess_call import Child
from orsched.runner.devices.messages import Lost, Ready
from orsched.runner.devices.remote import RemoteDevice
from orsched.runner.devices.settings import visible_gpu

if TYPE_CHECKING:
    from orsched.common.subprocess_call import Pipe
    from orsched.runner.devices.messages import Begin, Start

_TAIL = 2000  # characters of what a dying process has written
_DYING_S = 0.2  # a process that was killed is gone at once, but for a driver that cleans up
_LEAVING_S = 10.0


class ProcessDevice(RemoteDevice):
    """A torch worker in a process of its own (``RemoteDevice`` says with which arguments).

    On ``cuda:1`` the process sees that GPU alone.
    """

    child: Child | None = None
    left: tuple[Child, ...] = ()  # were killed and are not gone yet

    def _launch(self) -> None:
        added, device = visible_gpu(self.settings.device)
        if self.settings.threads is not None:
            added["OMP_NUM_THREADS"] = str(self.settings.threads)
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process lives
        try:
            self.child = Child("orsched.runner.devices.processes:serve", added, self.output)
        except BaseException:
            self.output.close()
            raise
        self.child.pipe.send((self.settings, device))

    @property
    def pid(self) -> int | None:
        """Return the number of the worker's process."""
        return None if self.child is None else self.child.process.pid

    def _here(self) -> Child:
        assert self.child is not None
        return self.child

    def _send(self, message: Start | Begin) -> None:
        self._here().pipe.send(message, self.hang_ns / 1e9)

    def _receive(self) -> Any:
        return self._here().receive()

    def _channel(self) -> Any:
        return self._here().pipe

    def _kill(self) -> str:
        """End the process and those that it started; say how it ended."""
        self.left = tuple(one for one in self.left if one.process.poll() is None)
        child, self.child = self.child, None
        if child is None:
            return ""
        ending = child.kill(_DYING_S)
        if child.process.returncode is None:
            self.left += (child,)
        said = _tail(self.output)
        child.pipe.close()
        self.output.close()
        short = " (is memory short?)" if ending == "signal SIGKILL" else ""
        return f"the process ended with {ending}{short}" + (said and f": {said}")

    def close(self) -> None:
        """End the process; none is left behind."""
        super().close()
        for child in self.left:
            child.wait(_LEAVING_S)
        self.left = ()


def _tail(output: Any) -> str:
    """Return the end of what was written to a file."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL))
    text: str = output.read().decode(errors="replace")
    return text.strip()


def serve(pipe: Pipe) -> None:
    """Be the worker's process: answer messages until the parent ends."""
    faulthandler.enable()
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
