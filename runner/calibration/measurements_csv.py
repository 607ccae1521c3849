"""Measurements as CSV: one line a step."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

from orsched.costs.measurements import Measurements
from orsched.errors import InputError
from orsched.files.atomic import write_text
from orsched.files.text import locating, read_text
from orsched.near_names import known_names

if TYPE_CHECKING:
    from orsched.files.text import Path

REQUIRED = ("phase", "count", "duration_ns")
COLUMNS = (*REQUIRED, "tokens", "longest", "context_sum", "context_max")


def write_measurements(measurements: Measurements, path: Path) -> None:
    """Write measurements; ``read_measurements`` gives them back equal.

    Raises:
        InputError: the file cannot be written.
    """
    columns = measurements.to_dict()
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(*(columns[name] for name in COLUMNS), strict=True))
    with locating(path):
        write_text(path, text.getvalue())


def read_measurements(path: Path) -> Measurements:
    """Read measurements; the first line names the columns, in any order.

    ``phase``, ``count`` and ``duration_ns`` must be there; a column left out is 0.

    Raises:
        InputError: the file cannot be read or is wrong; the row is the line number from 1.
    """
    with locating(path):
        reader = csv.reader(StringIO(read_text(path), newline=""), strict=True)
        try:
            lines = [(reader.line_num, line) for line in reader if line]
        except csv.Error as error:
            raise InputError(f"not valid CSV: {error}", row=reader.line_num) from None
        if not lines:
            raise InputError("the file is empty", remedy=f"columns {', '.join(COLUMNS)}")
        (_, names), body = lines[0], lines[1:]
        _check_names(names)
        for row, line in body:
            if len(line) != len(names):
                raise InputError(f"{len(line)} cells, but {len(names)} columns", row=row)
        columns = {
            name: [_cell(name, line[i], row) for row, line in body] for i, name in enumerate(names)
        }
        try:
            return Measurements.from_dict(columns)
        except InputError as error:
            if error.row is None:
                raise
            raise InputError(
                error.problem, row=body[error.row][0], field=error.field, remedy=error.remedy
            ) from None


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in COLUMNS:
            raise InputError(
                f"unknown column {name!r}", row=1, field=name, remedy=known_names(name, COLUMNS)
            )
        if names.count(name) > 1:
            raise InputError("the column is there twice", row=1, field=name)
    for name in REQUIRED:
        if name not in names:
            raise InputError("the column is missing", row=1, field=name, remedy="add it")


def _cell(name: str, text: str, row: int) -> str | int:
    if name == "phase":
        return text
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise InputError(f"{text!r} is not a whole number", row=row, field=name)
    return int(text)
