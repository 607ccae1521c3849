"""The processes that run cells, on this machine or on a Ray cluster."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names, unavailable
from orsched.common.subprocess_call import Child, import_paths

if TYPE_CHECKING:
    from orsched.common.subprocess_call import Pipe


CLUSTERS = ("local", "ray")
MAX_JOBS = 4096

Answer = tuple[int, dict[str, Any] | None, str]
"""Slot, record, "" of a finished cell; or slot, None, how its process ended."""


class Job(Protocol):
    """What a process can run: a cell of a study, or a simulation of a capacity."""

    @property
    def key(self) -> str:
        """Hash of the content."""

    @property
    def problem(self) -> str:
        """Hash of what is made once for several of them."""

    @property
    def content(self) -> dict[str, Any]:
        """What the results depend on."""

    def task(self) -> dict[str, Any]:
        """Return what a process needs."""


class Pool(Protocol):
    """Processes in slots, somewhere."""

    slots: int

    def submit(self, slot: int, task: dict[str, Any]) -> None:
        """Give a cell to a free slot."""

    def wait(self, timeout_s: float) -> list[Answer]:
        """Return what has happened within some seconds."""

    def kill(self, slot: int) -> None:
        """End the process of a slot."""

    def close(self) -> None:
        """End all processes."""


class Processes(NamedTuple):
    """Where runs go: how many at once, and to which cluster."""

    slots: int
    cluster: str
    address: str | None

    def open(self, most: int = MAX_JOBS) -> Pool:
        """Return so many processes at most."""
        slots = min(self.slots, most)
        return LocalPool(slots) if self.cluster == "local" else RayPool(slots, self.address)


def read_processes(jobs: int | None, cluster: str, ray_address: str | None) -> Processes:
    """Return the processes that are wanted, by default one a CPU; raises ``InputError``."""
    count = os.cpu_count() or 1 if jobs is None else jobs
    slots = whole_number(count, "jobs", minimum=1, maximum=MAX_JOBS)
    if cluster not in CLUSTERS:
        raise InputError(
            f"unknown cluster {cluster!r}", field="cluster", remedy=known_names(cluster, CLUSTERS)
        )
    if ray_address is not None and cluster != "ray":
        raise InputError("no Ray cluster is in use", field="ray_address", remedy="--cluster ray")
    return Processes(slots, cluster, ray_address)


class LocalPool:
    """Processes in slots 0, 1, ...; each runs one cell at a time."""

    where = "local"

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, Child] = {}

    def submit(self, slot: int, task: dict[str, Any]) -> None:
        """Give a cell to a slot, whose process is started when there is none."""
        if slot not in self._children:
            child = self._children[slot] = Child("orsched.planning.study.pools:run_cells")
            self._selector.register(child.pipe, selectors.EVENT_READ, slot)
        with contextlib.suppress(OSError):  # a process that is gone is noticed by its pipe
            self._children[slot].pipe.send(task)

    def wait(self, timeout_s: float) -> list[Answer]:
        """Return what has happened within some seconds."""
        answers: list[Answer] = []
        for key, _ in self._selector.select(timeout_s):
            try:
                record = self._children[key.data].receive()
            except EOFError:
                answers.append((key.data, None, self._bury(key.data)))
            else:
                if record is not None:
                    answers.append((key.data, json.loads(record), ""))
        return answers

    def kill(self, slot: int) -> None:
        """End the process of a slot now."""
        self._bury(slot)

    def _bury(self, slot: int) -> str:
        child = self._children.pop(slot)
        self._selector.unregister(child.pipe)
        return child.close()

    def close(self) -> None:
        """End all processes, in the middle of a cell if need be."""
        for slot in list(self._children):
            self.kill(slot)
        self._selector.close()


def run_cells(pipe: Pipe) -> None:
    """Run in a worker process: run cells, one after the other, until the parent ends."""
    from orsched.planning.study.cell import execute

    while True:
        pipe.send(json.dumps(execute(pipe.receive())))


class RayPool:
    """Actors of one CPU each; each runs one cell at a time.

    The paths of imports are passed on. On several machines orsched, the policies' modules and the
    instance files must lie under the same paths everywhere.
    """

    where = "ray"

    def __init__(self, slots: int, address: str | None = None) -> None:
        self.slots = slots
        self._ray = connected(address, slots)
        self._actors: dict[int, Any] = {}
        self._running: dict[Any, int] = {}
        self._make = _actor_class(self._ray)

    def submit(self, slot: int, task: dict[str, Any]) -> None:
        """Give a cell to a slot, whose actor is started when there is none."""
        if slot not in self._actors:
            self._actors[slot] = self._make.remote(import_paths())
        self._running[self._actors[slot].run.remote(task)] = slot

    def wait(self, timeout_s: float) -> list[Answer]:
        """Return what has happened within some seconds."""
        answers: list[Answer] = []
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        for reference in done:
            slot = self._running.pop(reference)
            try:
                answers.append((slot, self._ray.get(reference), ""))
            except self._ray.exceptions.RayActorError:
                del self._actors[slot]
                answers.append((slot, None, "the actor died"))
        return answers

    def kill(self, slot: int) -> None:
        """End the actor of a slot now."""
        self._running = {ref: other for ref, other in self._running.items() if other != slot}
        self._ray.kill(self._actors.pop(slot))

    def close(self) -> None:
        """End all actors and leave the cluster; one that was started here ends."""
        for slot in list(self._actors):
            with contextlib.suppress(Exception):  # the cluster itself may be gone
                self.kill(slot)
        self._ray.shutdown()


def connected(address: str | None, slots: int) -> Any:
    """Import Ray and join a cluster, or start one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
    except ImportError as error:
        raise unavailable(error, "a Ray cluster needs ray: pip install 'orsched[ray]'") from None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {"num_cpus": slots, "include_dashboard": False}
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        first = " ".join(str(error).split())
        raise InputError(
            f"no Ray cluster can be reached: {first:.200}",
            field="ray_address",
            remedy="ray start --head on the first machine prints its address",
        ) from None
    return ray


def _actor_class(ray: Any) -> Any:
    """Return the actor's class; as it is made here, it travels by value."""

    class Runner:
        def __init__(self, paths: list[str]) -> None:
            sys.path.extend(path for path in paths if path not in sys.path)

        def run(self, task: dict[str, Any]) -> dict[str, Any]:
            from orsched.planning.study.cell import execute

            return execute(task)

    return ray.remote(num_cpus=1, max_restarts=0)(Runner)
