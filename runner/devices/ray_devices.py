"""Workers as actors on a Ray cluster, each with a GPU or some cores of its own."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections import deque
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from orsched.common.errors import unavailable
from orsched.common.subprocess_call import import_paths
from orsched.planning.study.pools import connected
from orsched.runner.devices.remote import Begin, RemoteDevice
from orsched.runner.devices.settings import cores

if TYPE_CHECKING:
    from orsched.runner.devices.remote import Start
    from orsched.runner.devices.settings import WorkerSettings

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

            from orsched.runner.devices.processes import ServedWorker
            from orsched.runner.devices.ray_devices import boot_id
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
