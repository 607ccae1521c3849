"""Running a study: its folder, and the cells that go to processes until none is left.

The folder has one file a finished cell, there in full or not at all: a kill at any moment loses no
finished cell and repeats none. Only the process that holds the folder's lock writes cells, and the
system takes the lock from a process that has ended. A record is written to a temporary file,
flushed to the disk, and renamed, which is atomic. A temporary file that was left behind is removed
unread. A record holds a digest of itself, against mistakes, not against deliberate changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from orsched.common.errors import InputError
from orsched.common.scalars import require_seconds
from orsched.files.document import hold, opened
from orsched.planning.study.plan import Cell, Study, key_of, read_study, record_of
from orsched.planning.study.pools import read_processes
from orsched.planning.study.table import TABLES, rows_of, write_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

    from orsched.data.instance import Instance
    from orsched.planning.study.pools import Job, Pool


class Store:
    """The finished cells of a study; a context manager that holds the folder's lock.

    Raises ``InputError`` on entering when another process holds it, or the folder cannot be used.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.cells = self.folder / "cells"
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._require_own_tables()
            self.cells.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("ab")
            hold(self._lock, self.folder, "works on this study")
            for path in self.cells.glob("*.tmp"):
                path.unlink()
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError):
                raise InputError(
                    f"cannot be used: {error.strerror or error}",
                    file=str(self.folder),
                    remedy="choose a folder that may be written to",
                ) from None
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _require_own_tables(self) -> None:
        """Refuse to replace tables in a folder where no study has been."""
        for name in TABLES:
            if (self.folder / name).exists() and not self.cells.exists():
                raise InputError(
                    "this file would be overwritten, and is not of a study",
                    file=str(self.folder / name),
                    remedy="choose another folder",
                )

    def path(self, key: str) -> Path:
        """Return the file of a cell."""
        return self.cells / f"{key}.json"

    def load(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the records of finished cells; ``InputError`` for a file not as it was written."""
        there = {path.name for path in self.cells.glob("*.json")}
        return {key: self._read(key) for key in keys if f"{key}.json" in there}

    def _read(self, key: str) -> dict[str, Any]:
        path = self.path(key)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            same = record.pop("digest") == _digest(record)
            whole = same and key_of(record["cell"]) == key == record["key"] and _is_whole(record)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise InputError(
                "does not hold this cell any more",
                file=str(path),
                remedy="remove the file, and the cell runs again",
            )
        assert isinstance(record, dict)
        return record

    def add(self, record: dict[str, Any]) -> None:
        """Write a finished cell's record, durably; ``RuntimeError`` where it was run twice."""
        path = self.path(record["key"])
        if path.exists():
            raise RuntimeError(f"cell {record['key']} was run twice")
        plain = json.loads(json.dumps(record, allow_nan=False))
        text = json.dumps({**plain, "digest": _digest(plain)}, ensure_ascii=False)
        with opened(path) as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        descriptor = os.open(self.cells, os.O_RDONLY)
        try:  # so that the rename outlives the loss of power
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def instance_file(self, instance: Instance) -> str:
        """Return the file of an instance, named by its hash, for processes to read."""
        from orsched.files import save_instance

        path = self.folder / "instances" / f"{instance.sha256}.json"
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            save_instance(instance, path)
        return str(path.resolve())

    def forget(self, key: str) -> None:
        """Remove the record of a cell, so that it runs again."""
        self.path(key).unlink()


def _digest(record: dict[str, Any]) -> str:
    """Return the hash of a record; raises ``ValueError`` for what no file of ours can hold."""
    text = json.dumps(record, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether a record has what tables are made of."""
    tables = [record["run"], record.get("results", {})]
    return record["status"] in ("ok", "failed") and all(type(t) is dict for t in tables)


ATTEMPTS = 2
"""A cell whose process dies is tried once more: it may have been killed for another's sake."""

DIED = "its process died"
"""Begins the error of a cell whose process was killed."""


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
        InputError: a wrong study or argument, a folder in use, or a file's code not allowed.
        MissingDependencyError: Ray is asked for and not installed.
    """
    plan = read_study(study)
    plan.require_consent(allow_code)
    processes = read_processes(jobs, cluster, ray_address)
    if cell_time_limit is not None:
        require_seconds(cell_time_limit, "cell_time_limit")
    cells = plan.cells()
    with Store(folder) as store:
        cells = _with_files(cells, store)
        records = store.load(cell.key for cell in cells)
        if retry_failed:
            for key in [k for k, record in records.items() if record["status"] == "failed"]:
                store.forget(key)
                del records[key]
        missing = [cell for cell in cells if cell.key not in records]
        loop = CellLoop(cells, records, store, cell_time_limit, callback)
        try:
            if missing:
                loop.run(missing, processes.open(len(missing)))
        finally:
            rows = rows_of(cells, records)
            write_tables(rows, store.folder)
    return StudyResult(plan, store.folder, rows, len(cells), len(missing))


def _with_files(cells: list[Cell], store: Store) -> list[Cell]:
    """Save instances that were given as objects, for the worker processes to read."""
    found = []
    for cell in cells:
        choice = cell.instance
        if choice.made is not None:
            path = store.instance_file(choice.made)
            choice = type(choice)(choice.label, choice.content, path)
        found.append(cell._replace(instance=choice))
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
        self.total, self.records, self.store = len(cells), records, store
        self.limit_s, self.callback = limit_s, callback
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
            record = _failed(cell, f"{DIED} {ATTEMPTS} times ({ended})")
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
                self._add(_failed(cell, f"not done within the time limit of {self.limit_s:g} s"))

    def _add(self, record: dict[str, Any]) -> None:
        self.store.add(record)
        self.records[record["key"]] = record
        self.failed += record["status"] == "failed"
        self._tell()

    def _tell(self) -> None:
        if self.callback is not None:
            done = len(self.records)
            self.callback(State(self.total, done, self.failed, done - self.before))


def _failed(cell: Job, error: str) -> dict[str, Any]:
    job = {"key": cell.key, "content": cell.content}
    return record_of(job, status="failed", error=error, traceback=None, run={})
