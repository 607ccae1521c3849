"""Loading and saving of the native files; the suffix chooses between JSON and Parquet."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.files.document import cost_document, cost_from_document, write_bytes, write_text
from orsched.files.instance_document import instance_document, instance_from_document
from orsched.files.schedule_document import schedule_document, schedule_from_document
from orsched.files.text import dump_json, locating, parse_json, read_bytes, read_text

if TYPE_CHECKING:
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule, Scheduled
    from orsched.files.text import Path

_LOG = logging.getLogger(__name__)

PARQUET_ABOVE = 100_000
"""Requests above which Parquet is recommended."""


def default_suffix(requests: int) -> str:
    """Return the suffix recommended for a file with this many requests.

    ``.json`` for any number without pyarrow (``orsched[parquet]``), with a warning for large ones.
    """
    if requests <= PARQUET_ABOVE:
        return ".json"
    if find_spec("pyarrow") is None:
        _LOG.warning(
            "%d requests are written as JSON: Parquet, which is smaller and faster, needs "
            "pip install 'orsched[parquet]'",
            requests,
        )
        return ".json"
    return ".parquet"


def load_instance(path: Path) -> Instance:
    """Read an instance file, JSON or Parquet; ``InputError`` names file, row, field and remedy."""
    with locating(path):
        if _is_parquet(path):
            from orsched.files.parquet import instance_from_parquet

            return instance_from_parquet(read_bytes(path))
        return instance_from_document(parse_json(read_text(path)))


def save_instance(instance: Instance, path: Path) -> None:
    """Write an instance file; equal instances give equal bytes.

    ``.json`` is columnar text, one column a line; ``.parquet`` has one row a request and is
    recommended above 100,000 requests. CSV holds requests only: ``write_requests_csv``. Raises
    ``InputError`` if the suffix is neither, or the file cannot be written.

    >>> case = orsched.load("gate")
    >>> orsched.save_instance(case, "gate.json")
    >>> orsched.load("gate.json") == case
    True
    """
    from orsched.data.instance import require_instance

    require_instance(instance)
    with locating(path):
        if _suffix(path) == ".parquet":
            from orsched.files.parquet import instance_to_parquet

            write_bytes(path, instance_to_parquet(instance))
        else:
            write_text(path, dump_json(instance_document(instance)))


def load_schedule(path: Path) -> Schedule:
    """Read a schedule file or a run trace, JSON or Parquet.

    A trace is a schedule with measured times: its ``run`` names device and clock, and
    ``check(instance, schedule, times="measured")`` is the check for it. ``InputError`` names file,
    row, field and remedy.

    >>> plan = orsched.solve(orsched.load("gate"), "fcfs").schedule
    >>> orsched.save_schedule(plan, "plan.json")
    >>> orsched.load_schedule("plan.json") == plan
    True
    """
    with locating(path):
        if _is_parquet(path):
            from orsched.files.parquet import schedule_from_parquet

            return schedule_from_parquet(read_bytes(path))
        return schedule_from_document(parse_json(read_text(path)))


def save_schedule(schedule: Scheduled, path: Path) -> None:
    """Write a schedule file, or a trace if the schedule's ``run`` names device and clock.

    Formats as in ``save_instance``; of a result its schedule is written. Raises ``InputError`` if
    the suffix is unknown, a value is not JSON, or the file cannot be written.

    >>> orsched.save_schedule(orsched.solve(orsched.load("gate"), "fcfs"), "plan.json")
    """
    from orsched.data.schedule import as_schedule

    schedule = as_schedule(schedule)
    with locating(path):
        if _suffix(path) == ".parquet":
            from orsched.files.parquet import schedule_to_parquet

            write_bytes(path, schedule_to_parquet(schedule))
        else:
            write_text(path, dump_json(schedule_document(schedule)))


def load_cost(path: Path) -> CostModel:
    """Read a cost-model file; raises ``InputError`` as ``load_instance`` does."""
    return load_fitted_cost(path)[0]


def load_fitted_cost(path: Path) -> tuple[CostModel, dict[str, Any] | None]:
    """Read a cost-model file with the report of its fit (None if it has none)."""
    with locating(path):
        return cost_from_document(parse_json(read_text(path)))


def save_cost(cost: CostModel, path: Path, fit: dict[str, Any] | None = None) -> None:
    """Write a cost-model file (``.json``), with the report of its fit if one is given."""
    with locating(path):
        if _suffix(path) != ".json":
            raise InputError("cost models are JSON files", remedy="use the suffix .json")
        write_text(path, dump_json(cost_document(cost, fit)))


def _extension(path: Path) -> str:
    extension: str = os.path.splitext(os.fspath(path))[1].lower()
    return extension


def _suffix(path: Path) -> str:
    suffix = _extension(path)
    if suffix not in (".json", ".parquet"):
        raise InputError(
            f"the suffix {suffix!r} names no native format",
            remedy="use .json or .parquet; write_requests_csv writes requests as CSV",
        )
    return suffix


def _is_parquet(path: Path) -> bool:
    if _extension(path) == ".csv":
        raise InputError(
            "a CSV file holds requests only",
            remedy="read it with read_requests_csv and add workers in an Instance",
        )
    return _extension(path) == ".parquet"
