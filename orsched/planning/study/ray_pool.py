"""Worker processes on a Ray cluster: one actor a slot."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, unavailable
from orsched.common.subprocess_call import import_paths

if TYPE_CHECKING:
    from orsched.planning.study.local import Answer


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
