"""The folder of a study: one file a finished cell, there in full or not at all.

A kill at any moment loses no finished cell and repeats none. Only the process that holds the lock
of the folder writes cells, and the system takes the lock from a process that has ended. A cell's
record is written to a temporary file, flushed to the disk, and renamed, which is atomic: under its
final name it is complete. A cell with a file of that name is never run or written again. A cell
without one is run by the next start; a temporary file that was left behind is removed unread.

A record holds a digest of itself, so that a change made later is noticed. It guards against
mistakes, not against deliberate changes, which can include a new digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from orsched.common.errors import InputError, MissingDependencyError
from orsched.files.atomic import opened
from orsched.planning.study.plan import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLES = ("table.csv", "table.parquet")


class Store:
    """The finished cells of a study; a context manager that holds the folder's lock.

    Raises ``InputError`` on entering when another process holds it, the folder cannot be made, or
    it holds tables that are no study's.
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
            _take(self._lock, self.folder)
            for path in self.cells.glob("*.tmp"):
                path.unlink()
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError):
                raise _unusable(self.folder, error) from None
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
        """Return the records of those cells that are finished.

        Raises ``InputError`` for a file that is not what it was written as.
        """
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
                "is no longer the record of this cell",
                file=str(path),
                remedy="remove the file, and the cell runs again",
            )
        assert isinstance(record, dict)
        return record

    def add(self, record: dict[str, Any]) -> None:
        """Write the record of a finished cell, durably.

        Raises ``RuntimeError`` when the cell has one already: it was run twice.
        """
        path = self.path(record["key"])
        if path.exists():
            raise RuntimeError(f"cell {record['key']} was run twice")
        plain = json.loads(json.dumps(record, allow_nan=False))
        text = json.dumps({**plain, "digest": _digest(plain)}, ensure_ascii=False)
        with opened(path) as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        _sync_folder(self.cells)

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


def _unusable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot be used: {error.strerror or error}",
        file=str(folder),
        remedy="choose a folder that may be written to",
    )


def _take(lock: IO[bytes], folder: Path) -> None:
    """Lock a file for this process, until it closes it or ends."""
    try:
        import fcntl
    except ImportError:
        raise MissingDependencyError("studies need the file locks of a POSIX system") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            "another process works on this study",
            file=str(folder),
            remedy="wait for it, or choose another folder",
        ) from None


def _sync_folder(folder: Path) -> None:
    """Flush a folder, so that a rename in it outlives the loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
