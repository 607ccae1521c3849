"""Workers in processes of their own on this machine."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import OrschedError, unavailable
from orsched.common.subprocess_call import Child
from orsched.runner.devices.device import WorkerLostError, open_device, warm_up
from orsched.runner.devices.remote import Begin, Ended, Lost, Ready, Refused, RemoteDevice, Start
from orsched.runner.devices.settings import visible_gpu

if TYPE_CHECKING:
    from orsched.common.subprocess_call import Pipe
    from orsched.runner.devices.remote import Fault, Start
    from orsched.runner.devices.settings import WorkerSettings


_SHORT = 8  # tokens of the prompts that a worker begins with
_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED")


class ServedWorker:
    """A worker on its device that has taken its first steps, and its answer to each message.

    It takes steps only if its first answer, ``greeting``, is ``Ready``.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.greeting: Ready | Lost | Refused
        try:
            self.device = open_device(settings)
            warm_up(self.device, settings.slots, settings.length, [_SHORT])
            self.device.start(time.perf_counter_ns())  # by the wall, which workers share
            about = {"vocabulary": self.device.vocabulary, "pid": os.getpid()}
            name, clock = self.device.name, self.device.clock
            self.greeting = Ready(name, clock, {**self.device.facts, **about})
        except OrschedError as error:
            self.greeting = Refused(error)
        except ImportError as error:
            self.greeting = Refused(
                unavailable(error, f"{error}: a worker needs the extra orsched[runner]")
            )
        except Exception as error:
            self.greeting = last_words(error)

    def answer(self, message: Start | Begin) -> Ended | Lost | None:
        """Do what a message says; after ``Lost`` the worker is of no use any more."""
        try:
            if isinstance(message, Begin):
                return self._step(message)
            self.device.start(message.zero_ns)
        except Exception as error:
            return last_words(error)
        return None

    def _step(self, message: Begin) -> Ended:
        device, rounds = self.device, message.rounds
        for slot in message.released:
            device.release(slot, 0)
        if message.fault:
            self._fail(message.fault)
        device.begin(message.chunks, message.active, rounds, 0)
        if message.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        times = device.end()
        ending = [chunk.slot for chunk in message.chunks if chunk.yields]
        found = [np.zeros(0, np.int64)]
        found += [device.yielded(ending).ravel()] if ending else []
        found += [device.yielded(message.active, rounds).ravel()] if message.active else []
        return Ended(*times, np.concatenate(found).astype(np.int32).tobytes())

    def _fail(self, fault: Fault) -> None:
        """Make a step fail in the way that a test asks for."""
        if fault == "fail":
            raise RuntimeError("a test asked for this error")
        if fault == "out_of_memory":
            np.empty(1 << 62, np.uint8)
        while fault == "hang":
            time.sleep(3600)


def last_words(error: Exception) -> Lost:
    """Return what an error says, and whether it means that memory was short."""
    if isinstance(error, WorkerLostError):
        return Lost(error.reason, error.message)
    text = f"{type(error).__name__}: {error}"
    signs = isinstance(error, RuntimeError) and any(sign in text for sign in _NO_MEMORY)
    return Lost("out_of_memory" if signs or isinstance(error, MemoryError) else "failed", text)


_TAIL = 2000  # characters of what a dying process has written
_DYING_S = 0.2  # a process that was killed is gone at once, but for a driver that cleans up
_LEAVING_S = 10.0


class ProcessDevice(RemoteDevice):
    """A worker in a process of its own, which on ``cuda:1`` sees that GPU alone."""

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
        self.child.pipe.send(replace(self.settings, device=device))

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
    worker = ServedWorker(pipe.receive())
    pipe.send(worker.greeting)
    alive = isinstance(worker.greeting, Ready)
    while alive:
        answer = worker.answer(pipe.receive())
        if answer is not None:
            pipe.send(answer)
        alive = not isinstance(answer, Lost)
