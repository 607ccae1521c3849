"""Simulations of fleets: each once, in parallel processes, kept in a folder."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from orsched.common.errors import PolicyError, ResourceError
from orsched.planning.capacity.estimate import Estimate, estimate_of
from orsched.planning.capacity.simulation import simulation_of
from orsched.planning.study.drive import DIED, CellLoop, open_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from orsched.planning.capacity.question import Fleet, Question
    from orsched.planning.study.drive import Pool, State
    from orsched.planning.study.store import Store


class OutOfTimeError(Exception):
    """The time limit has ended in the middle of simulations."""


class Evaluation:
    """Estimates of fleets, simulated when they are first asked for.

    A context manager that ends the processes. What ``store`` holds from before is not run again.

    Args:
        question: what is asked.
        store: the folder of finished simulations, whose lock is held.
        slots, cluster, ray_address: of the processes, as in ``orsched.planning.study.run``.
        deadline: moment of ``monotonic`` after which ``OutOfTimeError`` is raised, or None.
        callback: called with the fleets under way and how many of their runs are done.
    """

    def __init__(
        self,
        question: Question,
        store: Store,
        slots: int,
        cluster: str,
        ray_address: str | None,
        deadline: float | None,
        callback: Callable[[Sequence[Fleet], int, int], None] | None,
    ) -> None:
        self.question, self.store, self.slots = question, store, slots
        self.deadline, self.callback = deadline, callback
        self.known: dict[Fleet, Estimate] = {}
        self.ran = self.simulations = 0
        self._records: dict[str, dict[str, Any]] = {}
        self._pool: _KeptPool | None = None
        self._cluster = cluster, ray_address
        self._path = str(_saved(question, store.folder).resolve())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.end()

    @property
    def at_once(self) -> int:
        """Fleets whose replications keep all processes busy together."""
        return max(1, self.slots // len(self.question.seeds))

    def out_of_time(self) -> bool:
        """Whether the time limit has ended."""
        return self.deadline is not None and monotonic() >= self.deadline

    def estimate(self, fleet: Fleet) -> Estimate:
        """Return the estimate of a fleet."""
        return self.estimates([fleet])[0]

    def estimates(self, fleets: Iterable[Fleet]) -> list[Estimate]:
        """Return the estimates of some fleets, all simulated side by side.

        Raises:
            OutOfTimeError: the time limit has ended; what was finished is kept.
            PolicyError: a simulation failed.
        """
        asked = list(dict.fromkeys(fleets))
        new = [fleet for fleet in asked if fleet not in self.known]
        self._simulate(self.question, new, self.known)
        return [self.known[fleet] for fleet in asked]

    def reference(self, question: Question) -> Estimate:
        """Return the estimate of one worker for another question about the same instance."""
        found: dict[Fleet, Estimate] = {}
        self._simulate(question, [(1,)], found)
        return found[(1,)]

    def _simulate(
        self, question: Question, new: Sequence[Fleet], found: dict[Fleet, Estimate]
    ) -> None:
        """Add the estimates of new fleets; whatever ends this, of those that are finished."""
        jobs = [
            simulation_of(question, fleet, seed, self._path)
            for fleet in new
            for seed in question.seeds
        ]
        records = self.store.load(job.key for job in jobs)
        for key in [key for key, each in records.items() if each["status"] != "ok"]:
            self.store.forget(key)
            del records[key]
        missing = [job for job in jobs if job.key not in records]
        try:
            if missing:
                self._run(missing, records, new)
        finally:
            for fleet in new:
                own = [records.get(job.key) for job in jobs if job.fleet == fleet]
                results = [each["results"] for each in own if each and each["status"] == "ok"]
                if len(results) == len(own):
                    found[fleet] = estimate_of(question, fleet, results)
                    self.simulations += len(own)

    def _run(
        self, missing: Sequence[Any], records: dict[str, dict[str, Any]], fleets: Sequence[Fleet]
    ) -> None:
        """Run what is missing; failures end the search, and are not kept."""
        if self.out_of_time():
            raise OutOfTimeError
        if self._pool is None:
            cluster, address = self._cluster
            self._pool = _KeptPool(open_pool(cluster, self.slots, address), self.deadline)

        def note(state: State) -> None:
            if self.callback is not None:
                self.callback(fleets, state.ran, len(missing))

        before = len(records)
        loop = CellLoop(missing, records, self.store, None, note)
        try:
            loop.run(missing, self._pool)
        finally:
            self.ran += len(records) - before
        failed = [record for record in records.values() if record["status"] != "ok"]
        if failed:
            for record in failed:
                self.store.forget(record["key"])
            said = str(failed[0]["error"])
            raise ResourceError(said) if said.startswith(DIED) else PolicyError(said)


class _KeptPool:
    """Processes that outlive a batch of simulations, and are ended by a time limit."""

    def __init__(self, pool: Pool, deadline: float | None) -> None:
        self.slots, self._pool, self._deadline = pool.slots, pool, deadline
        self._busy: set[int] = set()

    def submit(self, slot: int, task: dict[str, Any]) -> None:
        """Give a run to a free slot."""
        self._busy.add(slot)
        self._pool.submit(slot, task)

    def wait(self, timeout_s: float) -> Sequence[tuple[int, dict[str, Any] | None, str]]:
        """Return what happened; raise ``OutOfTimeError`` at the deadline."""
        if self._deadline is not None:
            left = self._deadline - monotonic()
            if left <= 0:
                raise OutOfTimeError
            timeout_s = min(timeout_s, left)
        answers = self._pool.wait(timeout_s)
        self._busy -= {slot for slot, _, _ in answers}
        return answers

    def kill(self, slot: int) -> None:
        """End the process of a slot."""
        self._busy.discard(slot)
        self._pool.kill(slot)

    def close(self) -> None:
        """End the processes that are busy: what they run is not wanted any more."""
        for slot in list(self._busy):
            self.kill(slot)

    def end(self) -> None:
        """End all processes."""
        self._pool.close()


def _saved(question: Question, folder: Path) -> Path:
    """Save the instance for the processes to read, named by its hash."""
    from orsched.files import save_instance

    path = folder / "instances" / f"{question.instance.sha256}.json"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        save_instance(question.instance, path)
    return path
