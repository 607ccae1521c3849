"""Requests as CSV: one line a request, its first line names the columns."""

from __future__ import annotations

import csv
import os
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME, NS_PER_S
from orsched.data.requests import SERVICE_CLASSES, Prefixes, Requests
from orsched.files.atomic import opened
from orsched.files.cells import class_codes, nanoseconds, whole_numbers
from orsched.files.document import at_field
from orsched.files.formulas import warn_of_formulas
from orsched.files.quantile_columns import (
    EXAMPLE,
    gather,
    level_of,
    names_by_level,
    quantile_columns,
)
from orsched.files.text import locating, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.files.text import Path

COLUMNS = (
    "id",
    "prompt_tokens",
    "output_tokens",
    "arrival_ns",
    "arrival_s",
    "predicted_tokens",
    "service_class",
    "class",
    "tenant",
    "deadline_ns",
    "deadline_s",
    "weight",
)
SAME = {
    "id": "ids",
    "arrival_s": "arrival_ns",
    "class": "service_class",
    "deadline_s": "deadline_ns",
    "weight": "weights",
}
"""Columns here that stand for a column of ``Requests`` under another name or unit."""

SECONDS = ("arrival_s", "deadline_s")
"""Columns in seconds."""

REQUIRED = ("prompt_tokens", "output_tokens")
_CHUNK = 1_024


def read_requests_csv(path: Path, classes: Sequence[str] = SERVICE_CLASSES) -> Requests:
    """Read requests from a CSV file in UTF-8 with commas.

    Columns, in any order: ``prompt_tokens``, ``output_tokens``, and optionally ``id`` (unique
    texts), ``arrival_ns`` or ``arrival_s`` (decimal seconds, converted exactly),
    ``predicted_tokens``, quantiles of predicted lengths (``predicted_p10``, ``predicted_p50``, any
    percentile), ``service_class`` or ``class`` (one of ``classes``), ``tenant`` (names, or whole
    numbers), ``deadline_ns`` or ``deadline_s`` (from the arrival; 0: none of its own), ``weight``
    (whole numbers from 0). Empty lines are skipped.

    Raises:
        InputError: the file cannot be read or is wrong; the row is the line number from 1.
    """
    with locating(path):
        text = read_text(path)
        reader = csv.reader(StringIO(text, newline=""), strict=True)
        try:
            names = require_columns(next(_filled(reader)))
            return _requests(_columns(names, reader, classes))
        except csv.Error as error:
            raise InputError(
                f"not valid CSV: {error}", row=reader.line_num, remedy="check the quotes"
            ) from None
        except _RowError as error:
            line = error.line or _line_of(text, error.index)
            raise error.problem.located(row=line) from None


def write_requests_csv(
    requests: Requests, path: Path, classes: Sequence[str] = SERVICE_CLASSES
) -> None:
    """Write requests as CSV, times in nanoseconds; ``read_requests_csv`` gives them back equal.

    ``classes`` are the names of the service classes; a class without a name is written as a number.

    Raises:
        InputError: the requests have prefixes, which CSV does not hold, or the file cannot be
            written.
    """
    with locating(path):
        if requests.prefixes is not None:
            raise InputError(
                "CSV holds no prefixes", field="prefixes", remedy="save an instance as JSON"
            )
        columns: dict[str, Sequence[Any]] = {} if requests.ids is None else {"id": requests.ids}
        for name in ("prompt_tokens", "output_tokens", "arrival_ns"):
            columns[name] = getattr(requests, name).tolist()
        if requests.predicted_tokens is not None:
            columns["predicted_tokens"] = requests.predicted_tokens.tolist()
        columns |= {name: column.tolist() for name, column in quantile_columns(requests).items()}
        named = dict(enumerate(classes))
        columns["service_class"] = [named.get(c, c) for c in requests.service_class.tolist()]
        if requests.tenant is not None:
            column = requests.tenant.tolist()
            texts = requests.tenants
            columns["tenant"] = column if texts is None else [texts[each] for each in column]
        if requests.deadline_ns is not None:
            columns["deadline_ns"] = requests.deadline_ns.tolist()
        if requests.weights is not None:
            columns["weight"] = requests.weights.tolist()
        warn_of_formulas((*(requests.ids or ()), *(requests.tenants or ())), os.fspath(path))
        # Before Python 3.13 the writer leaves a carriage return bare, which then ends the line.
        bare = any("\r" in name for name in (*(requests.ids or ()), *(requests.tenants or ())))
        with opened(path) as stream:
            writer = csv.writer(
                stream,
                lineterminator="\n",
                quoting=csv.QUOTE_NONNUMERIC if bare else csv.QUOTE_MINIMAL,
            )
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))


def require_columns(names: Sequence[Any]) -> list[str]:
    """Return the names of columns if they are known, unique and enough; else ``InputError``."""
    checked: list[str] = []
    for name in names:
        if name not in COLUMNS and level_of(name) is None:
            remedy = (
                f"known columns: {', '.join((*COLUMNS, EXAMPLE))}; orsched.load knows more names"
            )
            if len(names) == 1 and any(mark in str(name) for mark in ";\t"):
                remedy = "separate the columns with commas"
            raise InputError(f"unknown column {name!r:.60}", field=f"{name!s:.60}", remedy=remedy)
        if name in checked:
            raise InputError("the column appears twice", field=name, remedy="keep one of them")
        checked.append(name)
    names_by_level(checked)
    for name in REQUIRED:
        if name not in checked:
            raise InputError(f"the column '{name}' is missing", field=name, remedy="add it")
    if "arrival_ns" in checked and "arrival_s" in checked:
        raise InputError("arrivals are given twice", field="arrival_s", remedy="keep one of them")
    for name, same in SAME.items():
        if name in checked and same in checked:
            raise InputError(f"{same} is given, too", field=name, remedy="keep one of them")
    return checked


def requests_of(columns: dict[str, Any], prefixes: Prefixes | None = None) -> Requests:
    """Return requests from columns under their names here; errors name those."""
    values = {SAME.get(name, name): column for name, column in gather(columns).items()}
    try:
        return Requests(**values, prefixes=prefixes)
    except InputError as error:
        shown = {SAME[name]: name for name in columns if name in SAME}
        field = shown.get(str(error.field), error.field)
        if field in SECONDS and error.row is not None:  # the error has nanoseconds
            value = int(columns[field][error.row]) / NS_PER_S
            problem = f"{value:.9g} s is {'negative' if value < 0 else f'above {MAX_TIME}'}"
            error = InputError(problem, row=error.row, field=error.field, remedy=error.remedy)
        raise at_field(error, field, "see the file formats") from None


class _RowError(Exception):
    """A problem in a record, by its index among all records, or by its line if known."""

    def __init__(self, problem: InputError, index: int, line: int = 0) -> None:
        super().__init__(index)
        self.problem, self.index, self.line = problem, index, line


def _filled(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    return filter(None, reader)


def _columns(
    names: list[str], reader: Iterator[list[str]], classes: Sequence[str]
) -> dict[str, Any]:
    """Read all records, a chunk at a time, into one array or list of ids for each column."""
    parts: dict[str, list[Any]] = {name: [] for name in names}
    rows, first = _filled(reader), 0
    while chunk := list(islice(rows, _CHUNK)):
        _require_width(chunk, names, first)
        for name, cells in zip(names, zip(*chunk, strict=True), strict=True):
            try:
                parts[name].append(_convert(name, cells, classes))
            except InputError as error:
                raise _RowError(_without_row(error), first + (error.row or 0)) from None
        first += len(chunk)
    return {name: _joined(name, part) for name, part in parts.items()}


def _require_width(chunk: list[list[str]], names: list[str], first: int) -> None:
    if set(map(len, chunk)) == {len(names)}:
        return
    for i, row in enumerate(chunk):
        if len(row) != len(names):
            problem = InputError(
                f"{len(row)} cells where {len(names)} are expected",
                remedy="give every column one cell; quote texts that hold commas",
            )
            raise _RowError(problem, first + i)


def _convert(name: str, cells: tuple[str, ...], classes: Sequence[str]) -> Any:
    if name in ("id", "tenant"):
        return cells
    if name in ("service_class", "class"):
        return np.array(class_codes(cells, name, classes), dtype=np.int64)
    numbers = nanoseconds(cells, name) if name in SECONDS else whole_numbers(cells, name)
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        row = next(i for i, number in enumerate(numbers) if not -(2**63) <= number < 2**63)
        raise InputError(
            f"{cells[row]} is too large", row=row, field=name, remedy="numbers have 64 bits"
        ) from None


def _joined(name: str, parts: list[Any]) -> Any:
    if name in ("id", "tenant"):
        cells = tuple(cell for part in parts for cell in part)
        return cells if name == "id" else _tenants(cells)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _tenants(cells: tuple[str, ...]) -> Any:
    """Return tenants as numbers where all are, else as names."""
    if cells and all(cell.isascii() and cell.isdigit() for cell in cells):
        return np.array(whole_numbers(cells, "tenant"), dtype=np.int64)
    return cells


def _requests(columns: dict[str, Any]) -> Requests:
    try:
        return requests_of(columns)
    except InputError as error:
        raise _RowError(_without_row(error), error.row or 0) from None


def _without_row(error: InputError) -> InputError:
    return InputError(error.problem, field=error.field, remedy=error.remedy)


def _line_of(text: str, index: int) -> int:
    """Return the number of the first line of a record: quoted cells may hold line ends."""
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    line, left = 0, index + 1
    for row in reader:
        if row and left == 0:
            break
        left -= bool(row)
        line = reader.line_num
    return line + 1
