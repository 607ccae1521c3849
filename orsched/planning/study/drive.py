"""Running a study: what is not finished yet goes to worker processes, cell by cell."""

from __future__ import annotations

import os
from collections import Counter, deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.common.scalars import require_seconds
from orsched.planning.study.local import LocalPool
from orsched.planning.study.plan import RECORD, Cell, Study, read_study
from orsched.planning.study.store import Store
from orsched.planning.study.table import rows_of, write_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

CLUSTERS = ("local", "ray")
ATTEMPTS = 2
"""A cell whose process dies is tried once more: it may have been killed for another's sake."""

DIED = "its process died"
"""Begins the error of a cell whose process was killed."""

MAX_JOBS = 4096


class State(NamedTuple):
    """What a callback sees after each finished cell: counts of cells."""

    cells: int
    finished: int
    failed: int
    ran: int


@dataclass(frozen=True)
class StudyResult:
    """What ``run`` returns.

    Attributes:
        study: the study.
        folder: where its cells and tables lie.
        rows: one dictionary a finished cell, in the order of the grid; all have the same keys.
        cells: how many cells the grid has.
        ran: how many of them were run by this call.
    """

    study: Study
    folder: Path
    rows: list[dict[str, Any]]
    cells: int
    ran: int

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of cells that failed."""
        return [row for row in self.rows if row["status"] == "failed"]

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.rows)


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

    def wait(self, timeout_s: float) -> Sequence[tuple[int, dict[str, Any] | None, str]]:
        """Return (slot, record or None, how the process ended) of what happened."""

    def kill(self, slot: int) -> None:
        """End the process of a slot."""

    def close(self) -> None:
        """End all processes."""


def run(
    study: Study | Mapping[str, Any] | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    cluster: str = "local",
    ray_address: str | None = None,
    retry_failed: bool = False,
    cell_time_limit: float | None = None,
    callback: Callable[[State], None] | None = None,
    allow_code: bool = False,
) -> StudyResult:
    """Run the cells of a study that are not finished, and write its tables.

    The folder gets a file for each finished cell, ``table.csv`` and ``table.parquet``. A run that
    ended in any way is resumed by the next call; no finished cell runs again. Failed cells are
    recorded with their error and do not stop the others. Ctrl-C ends the processes, writes the
    tables of what is finished and raises ``KeyboardInterrupt``.

    Args:
        study: what ``read_study`` takes.
        folder: for cells and tables; one study run at a time works on it.
        jobs: processes (default: the CPUs); on a Ray cluster actors, of one CPU each.
        cluster: ``local`` or ``ray``.
        ray_address: of a running Ray cluster; default: a new one on this machine.
        retry_failed: whether cells that failed before run again.
        cell_time_limit: seconds after which a cell is ended and recorded as failed.
        callback: called with ``State`` at the start and after each finished cell.
        allow_code: whether policies that a file names as ``module:Class`` may be imported and run.

    Raises:
        InputError: the study or an argument is wrong, the folder is in use, or a file names code
            that is not allowed.
        MissingDependencyError: Ray is asked for and not installed.
    """
    plan = read_study(study)
    plan.require_consent(allow_code)
    slots = read_slots(jobs, cluster, ray_address)
    if cell_time_limit is not None:
        require_seconds(cell_time_limit, "cell_time_limit")
    cells = plan.cells()
    with Store(folder) as store:
        cells = _with_files(cells, store.folder)
        records = store.load(cell.key for cell in cells)
        if retry_failed:
            for key in [k for k, record in records.items() if record["status"] == "failed"]:
                store.forget(key)
                del records[key]
        missing = [cell for cell in cells if cell.key not in records]
        loop = CellLoop(cells, records, store, cell_time_limit, callback)
        try:
            if missing:
                loop.run(missing, open_pool(cluster, min(slots, len(missing)), ray_address))
        finally:
            rows = rows_of(cells, records)
            write_tables(rows, store.folder)
    return StudyResult(plan, store.folder, rows, len(cells), len(missing))


def read_slots(jobs: int | None, cluster: str, ray_address: str | None) -> int:
    """Return how many processes are wanted, by default one a CPU; raises ``InputError``."""
    count = os.cpu_count() or 1 if jobs is None else jobs
    slots = whole_number(count, "jobs", minimum=1, maximum=MAX_JOBS)
    if cluster not in CLUSTERS:
        raise InputError(
            f"there is no {cluster!r}", field="cluster", remedy=known_names(cluster, CLUSTERS)
        )
    if ray_address is not None and cluster != "ray":
        raise InputError(
            "there is no Ray cluster in use", field="ray_address", remedy="--cluster ray"
        )
    return slots


def open_pool(cluster: str, slots: int, address: str | None) -> Pool:
    """Return processes here, or actors of a Ray cluster."""
    if cluster == "local":
        return LocalPool(slots)
    from orsched.planning.study.ray_pool import RayPool

    return RayPool(slots, address)


def _with_files(cells: list[Cell], folder: Path) -> list[Cell]:
    """Save instances that were given as objects, for the worker processes to read."""
    from orsched.files import save_instance

    paths: dict[str, str] = {}
    found = []
    for cell in cells:
        choice = cell.instance
        if choice.made is None:
            found.append(cell)
            continue
        name = choice.made.sha256
        if name not in paths:
            path = folder / "instances" / f"{name}.json"
            path.parent.mkdir(exist_ok=True)
            if not path.exists():
                save_instance(choice.made, path)
            paths[name] = str(path.resolve())
        placed = type(choice)(choice.label, choice.content, paths[name])
        found.append(cell._replace(instance=placed))
    return found


class _Queue:
    """Cells that wait, by problem: a process keeps to a problem, which it then makes once."""

    def __init__(self, cells: Sequence[Job]) -> None:
        self.waiting: dict[str, deque[Job]] = {}
        for cell in cells:
            self.waiting.setdefault(cell.problem, deque()).append(cell)
        self.untouched = deque(self.waiting)

    def next_for(self, problem: str | None) -> Job | None:
        """Return a cell of the problem, else of one without a process, else of the fullest."""
        if problem not in self.waiting:
            while self.untouched and self.untouched[0] not in self.waiting:
                self.untouched.popleft()
            if self.untouched:
                problem = self.untouched.popleft()
            elif self.waiting:
                problem = max(self.waiting, key=lambda name: len(self.waiting[name]))
            else:
                return None
        assert problem is not None
        cell = self.waiting[problem].popleft()
        if not self.waiting[problem]:
            del self.waiting[problem]
        return cell

    def put_back(self, cell: Job) -> None:
        """Run a cell again."""
        self.waiting.setdefault(cell.problem, deque()).appendleft(cell)


class CellLoop:
    """Keeps every slot busy and records what comes back."""

    def __init__(
        self,
        cells: Sequence[Job],
        records: dict[str, dict[str, Any]],
        store: Store,
        limit_s: float | None,
        callback: Callable[[State], None] | None,
    ) -> None:
        self.total = len(cells)
        self.records = records
        self.store = store
        self.limit_s = limit_s
        self.callback = callback
        self.failed = sum(record["status"] == "failed" for record in records.values())
        self.before = len(records)
        self.attempts: Counter[str] = Counter()
        self.running: dict[int, tuple[Job, float]] = {}

    def run(self, missing: Sequence[Job], pool: Pool) -> None:
        """Run cells until none is left; whatever ends this ends the processes."""
        queue = _Queue(missing)
        at: dict[int, str] = {}
        try:
            self._tell()
            while True:
                for slot in range(pool.slots):
                    if slot not in self.running:
                        cell = queue.next_for(at.get(slot))
                        if cell is None:
                            break
                        at[slot] = cell.problem
                        self.running[slot] = (cell, monotonic())
                        pool.submit(slot, cell.task())
                if not self.running:
                    return
                for slot, record, ended in pool.wait(0.2):
                    self._take(queue, slot, record, ended)
                self._end_late(pool)
        finally:
            pool.close()

    def _take(self, queue: _Queue, slot: int, record: dict[str, Any] | None, ended: str) -> None:
        cell, _ = self.running.pop(slot)
        if record is None:
            self.attempts[cell.key] += 1
            if self.attempts[cell.key] < ATTEMPTS:
                queue.put_back(cell)
                return
            record = _failure(cell, f"{DIED} {ATTEMPTS} times ({ended})")
        self._add(record)

    def _end_late(self, pool: Pool) -> None:
        """End cells that have outlasted their time limit."""
        if self.limit_s is None:
            return
        now = monotonic()
        for slot, (cell, begin) in list(self.running.items()):
            if now - begin > self.limit_s:
                pool.kill(slot)
                del self.running[slot]
                self._add(_failure(cell, f"not done within the time limit of {self.limit_s:g} s"))

    def _add(self, record: dict[str, Any]) -> None:
        self.store.add(record)
        self.records[record["key"]] = record
        self.failed += record["status"] == "failed"
        self._tell()

    def _tell(self) -> None:
        if self.callback is not None:
            done = len(self.records)
            self.callback(State(self.total, done, self.failed, done - self.before))


def _failure(cell: Job, error: str) -> dict[str, Any]:
    return {
        "format": "orsched/cell",
        "version": RECORD,
        "key": cell.key,
        "cell": cell.content,
        "status": "failed",
        "error": error,
        "traceback": None,
        "run": {},
    }
