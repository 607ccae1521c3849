"""Devices in processes: of this machine, or actors of a Ray cluster.

Each has a GPU or some cores of its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import OrschedError, unavailable
from orsched.common.subprocess_call import Child, import_paths
from orsched.planning.study.pools import connected
from orsched.runner.devices.device import WorkerLostError, open_device, warm_up
from orsched.runner.devices.remote import Begin, Ended, Lost, Ready, Refused, RemoteDevice, Start
from orsched.runner.devices.settings import cores, visible_gpu

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


_ROUND_TRIPS = 20


class RayDevice(RemoteDevice):
    """A worker in a Ray actor (``RemoteDevice`` says with which other arguments).

    On ``cuda`` the actor asks Ray for one GPU, on ``cpu`` for as many cores as it has threads. On a
    machine with a clock of its own, times are moved by what the fastest of some round trips says
    of that clock. Ray must be connected (``connect``). The paths of imports are passed on.
    """

    ray: Any = None
    actor: Any = None

    def _launch(self) -> None:
        self.ray = _ray()
        on_gpu = self.settings.device.startswith("cuda")
        self.answers: deque[Any] = deque()
        self.here, self.there = socket.socketpair()  # a byte for each answer
        self.here.setblocking(False)
        actor = self.ray.remote(max_restarts=0)(_actor_class()).options(
            num_cpus=self.settings.threads or 1, num_gpus=1 if on_gpu else 0
        )
        self.actor = actor.remote(import_paths())
        where = "cuda" if on_gpu else self.settings.device
        self._expect(self.actor.build.remote(self.settings, where))

    def _send(self, message: Start | Begin) -> None:
        reference = self.actor.answer.remote(message)
        if isinstance(message, Begin):
            self._expect(reference)

    def _expect(self, reference: Any) -> None:
        there = self.there

        def tell(_: object) -> None:
            with contextlib.suppress(OSError):
                there.send(b".")

        self.answers.append(reference)
        reference.future().add_done_callback(tell)

    def _receive(self) -> Any:
        with contextlib.suppress(BlockingIOError):
            self.here.recv(1024)
        if not self.answers or not self.ray.wait([self.answers[0]], timeout=0)[0]:
            return None
        try:
            return self.ray.get(self.answers.popleft())
        except self.ray.exceptions.RayError as error:
            self.said = " ".join(str(error).split())
            raise EOFError from None

    def _channel(self) -> Any:
        return self.here

    def _kill(self) -> str:
        said, self.said = getattr(self, "said", ""), ""
        if self.actor is not None:
            with contextlib.suppress(Exception):  # the cluster itself may be gone
                self.ray.kill(self.actor)
            self.actor = None
            self.here.close()
            self.there.close()
        return said

    def _far_ns(self, moment_ns: int) -> int:
        if self.facts.get("boot_id") == boot_id():
            return moment_ns
        asked: list[tuple[int, int]] = []
        with contextlib.suppress(self.ray.exceptions.RayError):  # the next step will tell
            for _ in range(_ROUND_TRIPS):
                before = perf_counter_ns()
                there = self.ray.get(self.actor.clock.remote(), timeout=self.hang_ns / 1e9)
                after = perf_counter_ns()
                asked.append((after - before, there - (before + after) // 2))
        return moment_ns + min(asked, default=(0, 0))[1]


def _actor_class() -> Any:
    """Return the actor's class; as it is made here, it travels by value."""

    class Actor:
        """The far side of a device."""

        def __init__(self, paths: list[str]) -> None:
            sys.path.extend(path for path in paths if path not in sys.path)
            self.worker: Any = None

        def build(self, settings: WorkerSettings, device: str) -> Any:
            from dataclasses import replace

            from orsched.runner.devices.processes import boot_id
            from orsched.runner.devices.remote import Ready

            self.worker = ServedWorker(replace(settings, device=device))
            greeting = self.worker.greeting
            if isinstance(greeting, Ready):
                greeting.facts["boot_id"] = boot_id()
            return greeting

        def answer(self, message: Start | Begin) -> Any:
            return self.worker.answer(message)

        def clock(self) -> int:
            return perf_counter_ns()

    return Actor


def connect(address: str | None = None, cpus: int | None = None) -> None:
    """Join the Ray cluster at an address, or start one on this machine; it ends with this process.

    Raises ``InputError`` where no cluster is, ``MissingDependencyError`` without ray.
    """
    if not _ray().is_initialized():
        connected(address, cores() if cpus is None else cpus)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise unavailable(
            error, "workers on a Ray cluster need ray: pip install 'orsched[ray]'"
        ) from None
    return ray


def boot_id() -> str:
    """Return what tells apart the clocks of machines: they count from their last start."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text() if file.is_file() else socket.gethostname()
