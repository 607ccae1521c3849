"""The public data sets (``data/data_sets.csv``), and traces as instances.

All are plain numbers from public repositories. CC-BY-4.0 asks to keep the named source, MIT and
Apache-2.0 their notice. The checksums are those of the files as orsched's developers use them.
"""

from __future__ import annotations

import csv
import hashlib
import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError
from orsched.data.instance import Instance
from orsched.data.service_classes import priority_classes
from orsched.instances.readers import ReadReport, Trace, read, spread_arrivals

if TYPE_CHECKING:
    from os import PathLike

    from orsched.data.requests import Requests
    from orsched.data.workers import Worker


class DataSet(NamedTuple):
    """One file: ``format`` is the reader's name, or None when it holds no requests."""

    file: str
    title: str
    origin: str
    licence: str
    rows: int
    format: str | None
    sha256: str
    citation: str = ""

    @property
    def attribution(self) -> str:
        """The named source, as a text to pass on with the data."""
        cite = f"; cite {self.citation}" if self.citation else ""
        return f"https://github.com/{self.origin}{cite}"


def _entries() -> list[DataSet]:
    text = files("orsched.instances").joinpath("data", "data_sets.csv").read_text("utf-8")
    _, *rows = csv.reader(text.splitlines())
    return [
        DataSet(file, title, origin, licence, int(count), format or None, sha256, citation)
        for file, title, origin, licence, count, format, sha256, citation in rows
    ]


DATA_SETS = {entry.file.rpartition(".")[0]: entry for entry in _entries()}
"""The data sets by name (the file's name without its suffix)."""


__all__ = [
    "DATA_SETS",
    "VARIABLE",
    "Converted",
    "DataSet",
    "Verified",
    "convert",
    "data_directory",
    "found",
    "instance_of",
    "source_path",
    "verify",
]

VARIABLE = "ORSCHED_DATA"
"""Environment variable that names the directory of the data sets."""


class Verified(NamedTuple):
    """Outcome for one file: ``ok``, ``missing``, or ``changed`` with the checksum found."""

    file: str
    status: str
    sha256: str | None


class Converted(NamedTuple):
    """A converted trace: the instance, the report on reading it, and where it was saved."""

    instance: Instance
    report: ReadReport
    target: Path


def data_directory(directory: str | PathLike[str] | None = None) -> Path:
    """Return the given directory, or the one that ``ORSCHED_DATA`` names, which has to be one."""
    named = os.environ.get(VARIABLE, "") if directory is None else directory
    if not str(named):
        raise InputError(
            "no directory of data sets is given",
            field=VARIABLE,
            remedy=f"give the directory, or set {VARIABLE} to it",
        )
    path = Path(named)
    if not path.is_dir():
        raise InputError(
            "is not a directory", file=str(path), field=VARIABLE, remedy="name a folder that exists"
        )
    return path


def found(directory: str | PathLike[str] | None = None) -> dict[str, Path]:
    """Return name -> path of the known data sets that are in the directory."""
    base = data_directory(directory)
    paths = {name: base / entry.file for name, entry in DATA_SETS.items()}
    return {name: path for name, path in paths.items() if path.is_file()}


def verify(directory: str | PathLike[str] | None = None) -> list[Verified]:
    """Compare each known file of the directory with its checksum, in the order of the table."""
    base = data_directory(directory)
    outcomes = []
    for entry in DATA_SETS.values():
        path = base / entry.file
        if not path.is_file():
            outcomes.append(Verified(entry.file, "missing", None))
            continue
        checksum = file_sha256(path)
        status = "ok" if checksum == entry.sha256 else "changed"
        outcomes.append(Verified(entry.file, status, checksum))
    return outcomes


def file_sha256(path: str | PathLike[str]) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def convert(
    source: str | PathLike[str],
    target: str | PathLike[str],
    workers: Worker | tuple[Worker, ...],
    *,
    format: str | None = None,
    drop_empty: bool = False,
    spread: bool = False,
    spread_seed: int | None = None,
    reader_options: dict[str, Any] | None = None,
    **fields: Any,
) -> Converted:
    """Read a foreign trace and save it as an instance file.

    Args:
        source: a path, or the name of a data set (``DATA_SETS``) in the ``ORSCHED_DATA`` directory.
        target: the instance file to write; its suffix chooses the native form, or ``.csv`` for
            the requests alone.
        workers: one or more workers.
        format: the trace's format; None: recognised.
        drop_empty: leave failed requests out, counted in the report.
        spread: spread equal arrival times (``spread_arrivals``), with ``spread_seed``.
        reader_options: further arguments of the reader.
        fields: fields of ``Instance`` (``first_token``, ``output_limit_tokens``, ``name``, ...).
    """
    from orsched.files import save_instance, write_requests_csv

    path = source_path(source)
    trace = read(path, format, drop_empty=drop_empty, **(reader_options or {}))
    if spread:
        trace = Trace(spread_arrivals(trace.requests, spread_seed), trace.report)
    if trace.report.priorities:
        fields.setdefault("classes", priority_classes(trace.report.priorities))
    instance = instance_of(trace.requests, trace.report, path, workers, **fields)
    if Path(target).suffix == ".csv":
        write_requests_csv(instance.requests, target)
    else:
        save_instance(instance, target)
    return Converted(instance, trace.report, Path(target))


def instance_of(
    requests: Requests,
    report: ReadReport,
    path: str | PathLike[str],
    workers: Worker | tuple[Worker, ...],
    **fields: Any,
) -> Instance:
    """Return an instance of read requests, labelled with what is known of the file.

    Source and licence are those of the data set when the file is one of the table, unchanged.
    Prefixes come in the blocks of a prefix cache whose size divides theirs.
    """
    owners = workers if isinstance(workers, tuple) else (workers,)
    requests = _in_blocks_of(owners, requests)
    known = _known(Path(path))
    dropped = sum(report.dropped.values())
    labels = {
        "name": Path(path).stem,
        "description": (
            f"{report.kept} requests of a trace ({report.format})"
            + (f", {dropped} of {report.rows} left out as empty or failed." if dropped else ".")
        ),
        "source": known.attribution if known else f"file {Path(path).name}",
        "licence": known.licence if known else "",
    }
    return Instance(requests, owners, **{**labels, **fields})


def _in_blocks_of(workers: tuple[Worker, ...], requests: Requests) -> Requests:
    """Return requests with blocks of the first prefix cache's size, if it divides theirs."""
    for worker in workers:
        if requests.prefixes is not None and worker.memory is not None and worker.caches_prefixes:
            size = worker.memory.block_tokens
            return requests if requests.prefixes.block_tokens % size else requests.refined(size)
    return requests


def _known(path: Path) -> DataSet | None:
    entry = DATA_SETS.get(path.stem)
    if entry is None or entry.file != path.name or file_sha256(path) != entry.sha256:
        return None
    return entry


def source_path(source: str | PathLike[str]) -> Path:
    """Return a path, or that of a data set with requests in the ``ORSCHED_DATA`` directory."""
    path = Path(source)
    if path.exists() or str(source) not in DATA_SETS:
        return path
    entry = DATA_SETS[str(source)]
    path = data_directory() / entry.file
    if entry.format is None:
        raise InputError(
            f"the data set {source} holds no requests",
            file=str(path),
            remedy="data sets with requests: "
            + ", ".join(name for name, other in DATA_SETS.items() if other.format),
        )
    return path
