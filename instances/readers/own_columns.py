"""Requests of one's own: CSV, JSON lines or a spreadsheet, under names that people use."""

from __future__ import annotations

import logging
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS
from orsched.data.requests import MAX_WEIGHT, SERVICE_CLASSES, WEIGHT_REMEDY, Requests
from orsched.data.service_classes import MAX_CLASSES
from orsched.files.cells import class_codes, whole_numbers
from orsched.files.csv_requests import COLUMNS
from orsched.files.frames import PREFIX_COLUMNS, requests_from_frame, require_frame
from orsched.files.quantile_columns import gather, level_of
from orsched.instances.readers import cells
from orsched.instances.readers.assemble import Columns, kept, left_out
from orsched.instances.readers.cells import CellError
from orsched.instances.readers.headings import ARRIVAL, Matched, match, require
from orsched.instances.readers.objects import read_objects
from orsched.instances.readers.report import ReadReport, Trace
from orsched.instances.readers.spreadsheet import cell_text, is_spreadsheet, read_sheet
from orsched.instances.readers.table import (
    CHUNK_ROWS,
    Table,
    joined,
    parse_header,
    parsed,
    read_chosen,
)
from orsched.instances.readers.text import head_of
from orsched.instances.readers.times import Times, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from orsched.instances.readers.table import Parser

FORMAT = "requests"
UNUSED = "columns not used"
_LOG = logging.getLogger("orsched")
_SHOWN = 6
_TEXTS = ("prompt", "conversation", "instruction")
"""Columns of prompts: what a predictor reads, lengths stand in others."""

_NUMBERS = ("prompt_tokens", "output_tokens", "predicted_tokens")


def read_own(
    path: str | PathLike[str],
    *,
    drop_empty: bool = False,
    classes: Sequence[str] = SERVICE_CLASSES,
) -> Trace:
    """Read requests whose columns are named as people name them (``headings.ALIASES``).

    A CSV file with commas, semicolons or tabs, JSON lines, or the first sheet of a spreadsheet.
    Arrivals are seconds, or in the unit that the column's name ends in; dates, Unix times and times
    of a column that names no unit count from the earliest one, which the report says. ``classes``
    are the names of the service classes. Columns that stand for nothing are named in the report.

    Raises:
        InputError: as all readers; a column that is missing comes with the one to rename.
    """
    reading = _Reading(str(path), classes)
    if is_spreadsheet(path):
        table = read_sheet(path, reading.choose)
    elif head_of(path).lstrip().startswith("{"):
        table = _read_objects(path, reading.choose)
    else:
        table = read_chosen(path, reading.choose)
    return reading.trace(table, drop_empty)


def read_frame(
    frame: Any, *, drop_empty: bool = False, classes: Sequence[str] = SERVICE_CLASSES
) -> Trace:
    """Read the requests of a data frame, a row each, under the names that ``read_own`` takes.

    Dates are read as such. Rows in messages count from 0, whatever the index is. Raises
    ``InputError`` as ``read_own``.
    """
    if "prefix_ids" in frame.columns:  # which orsched alone writes, under its own names
        report = ReadReport(FRAME, FORMAT, len(frame), len(frame))
        return Trace(requests_from_frame(frame, classes), report)
    reading = _Reading(FRAME, classes)
    lines = np.arange(len(frame), dtype=np.int64)
    columns = {}
    try:
        header = parse_header([str(name) for name in frame.columns], FRAME)
        parsers = reading.choose(header)
    except InputError as error:  # the heading is not a row of a frame
        raise InputError(
            error.problem, file=FRAME, field=error.field, remedy=error.remedy
        ) from None
    for name, parse in parsers.items():
        column = frame.iloc[:, header.index(name)]
        texts = column.astype(object).where(column.notna(), None).tolist()
        columns[name] = parsed(parse, [cell_text(each) for each in texts], lines, name, FRAME)
    return reading.trace(Table(columns, lines), drop_empty)


FRAME = "the data frame"


def requests_of_frame(frame: Any, classes: Sequence[str] = SERVICE_CLASSES) -> Requests:
    """Return the requests of a data frame; a warning names the columns that are not used.

    Orsched's own columns are read as ``requests_from_frame`` has them, others as ``read_frame``.
    """
    require_frame(frame)
    own = (*COLUMNS, *PREFIX_COLUMNS)
    if all(name in own or level_of(name) is not None for name in frame.columns):
        return requests_from_frame(frame, classes)
    requests, report = read_frame(frame, classes=classes)
    if report.priorities:
        raise InputError(
            "priorities are read as classes of an instance",
            field="priority",
            remedy="use orsched.load(frame, clients=...), which adds the classes",
        )
    for note in report.notes:
        if note.startswith(UNUSED):
            _LOG.warning("%s: %s", FRAME, note)
    return requests


class _Reading:
    """One file: which column holds what, and the requests of its cells."""

    def __init__(self, file: str, classes: Sequence[str]) -> None:
        self.file = file
        self.classes = classes
        self.times: Times | None = None
        self.matched = Matched({}, [])

    def choose(self, header: list[str]) -> dict[str, Parser]:
        """Return the parsers of the columns that are read; raises ``InputError``."""
        try:
            self.matched = match(header)
            require(self.matched)
        except InputError as error:
            raise error.located(file=self.file) from None
        return {heading.name: self._parser(t) for t, heading in self.matched.found.items()}

    def _parser(self, target: str) -> Parser:
        if target == ARRIVAL:
            self.times = Times(self.matched.found[target].unit_ns)
            return self.times
        if target == "service_class":
            return self._codes
        if target == "priority":
            return _priorities
        if level_of(target) is not None:
            return cells.whole_numbers
        return _PARSERS[target]

    def _codes(self, column: Sequence[str]) -> Any:
        try:
            return np.array(class_codes(column, "class", self.classes), dtype=np.int64)
        except InputError as error:
            remedy = f"{error.remedy}; --class NAME:LIMITS (classes=) adds one"
            raise CellError(error.row or 0, error.problem, remedy) from None
        except (ValueError, OverflowError):
            raise CellError(0, "is not a service class", " or ".join(self.classes)) from None

    def trace(self, table: Table, drop_empty: bool) -> Trace:
        """Return the requests of a table, and the report."""
        if not len(table):
            raise InputError(
                "holds no request", file=self.file, remedy="give a file with at least one request"
            )
        names = {target: heading.name for target, heading in self.matched.found.items()}
        values = {target: table.columns[name] for target, name in names.items()}
        notes = []
        if self.times is None:
            notes.append("no arrival times: all requests arrive at 0")
        else:
            arrivals = values.pop(ARRIVAL)
            try:
                values["arrival_ns"], said = settle(
                    arrivals, self.times, names[ARRIVAL], table.lines
                )
            except InputError as error:
                raise error.located(file=self.file) from None
            notes += said
        texts = [name for name in self.matched.unused if name.strip().lower() in _TEXTS]
        unused = [name for name in self.matched.unused if name not in texts]
        if texts:
            notes.append(f"{_listed(texts)}: read by --predict alone")
        if unused:
            notes.append(f"{UNUSED}: {_listed(unused)}")
        priorities: tuple[int, ...] = ()
        if "priority" in values:
            priorities, values["service_class"] = self._levels(values.pop("priority"), names)
            notes.append(
                f'"{names["priority"]}" is read as classes, the smallest first '
                "(--param policy=priority serves them in this order)"
            )
        prompts, outputs = values["prompt_tokens"], values["output_tokens"]
        found = Columns(
            self.file, FORMAT, table.lines, prompts, outputs,
            names["prompt_tokens"], names["output_tokens"], notes=notes,
        )  # fmt: skip
        reasons = left_out(found, prompts, outputs, drop_empty)
        if reasons:
            values["prompt_tokens"] = np.maximum(prompts, 1)
            values["output_tokens"] = np.maximum(outputs, 1)
        trace = kept(found, self._requests(values, names, table), reasons)
        return trace._replace(report=replace(trace.report, priorities=priorities))

    def _levels(
        self, column: NDArray[np.int64], names: Mapping[str, str]
    ) -> tuple[tuple[int, ...], NDArray[np.int64]]:
        """Return the different priorities, smallest first, and the place of each row's."""
        levels, places = np.unique(column, return_inverse=True)
        if len(levels) > MAX_CLASSES:
            raise InputError(
                f"{len(levels):,} different priorities, at most {MAX_CLASSES:,} are told apart",
                file=self.file,
                field=names["priority"],
                remedy="give fewer levels, or remove the column",
            )
        return tuple(levels.tolist()), places.astype(np.int64)

    def _requests(self, values: dict[str, Any], names: Mapping[str, str], table: Table) -> Requests:
        same = {"id": "ids", "deadline_s": "deadline_ns", "weight": "weights"}
        shown = {same.get(target, target): name for target, name in names.items()}
        if "tenant" in values:
            values["tenant"] = _tenants(values["tenant"])
        try:
            columns = gather(values)
            return Requests(**{same.get(name, name): column for name, column in columns.items()})
        except InputError as error:
            row = None if error.row is None else int(table.lines[error.row])
            field = shown.get(str(error.field), error.field)
            raise InputError(
                error.problem, file=self.file, row=row, field=field, remedy=error.remedy
            ) from None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return ", ".join(f"{name:.40}" for name in names[:_SHOWN]) + more


def _tenants(names: list[str]) -> Any:
    """Return tenants as numbers where all are, else as names."""
    try:
        if all(name.isascii() and name.isdigit() for name in names):
            return cells.whole_numbers(names)
    except CellError:  # beyond the numbers that are stored
        pass
    return names


def _nanoseconds(column: Sequence[str]) -> Any:
    return cells.whole_numbers(column, MAX_TIME_NS, "give whole nanoseconds, 0 or more")


def _priorities(column: Sequence[str]) -> Any:
    """Read whole numbers of either sign: the smallest is the most urgent, as in vLLM."""
    try:
        return np.array(whole_numbers(column, "priority"), dtype=np.int64)
    except InputError as error:
        raise CellError(error.row or 0, error.problem, _PRIORITY_REMEDY) from None
    except OverflowError:
        raise CellError(0, "holds numbers beyond 64 bits", _PRIORITY_REMEDY) from None


_PRIORITY_REMEDY = (
    "give whole numbers, the smallest for the most urgent; or rename the column to class, with "
    "--class NAME for each name"
)


def _weights(column: Sequence[str]) -> Any:
    return cells.whole_numbers(column, MAX_WEIGHT, WEIGHT_REMEDY)


_PARSERS: dict[str, Callable[[Sequence[str]], Any]] = {
    **dict.fromkeys(_NUMBERS, cells.whole_numbers),
    "id": list,
    "tenant": list,
    "deadline_ns": _nanoseconds,
    "deadline_s": cells.seconds,
    "weight": _weights,
}


def _read_objects(
    path: str | PathLike[str], choose: Callable[[list[str]], Mapping[str, Parser]]
) -> Table:
    """Read the chosen names of a file with one JSON object a line."""
    file = str(path)
    parsers: Mapping[str, Parser] = {}
    parts: dict[str, list[Any]] = {}
    chunk: dict[str, list[str]] = {}
    lines: list[int] = []
    done = 0

    def flush() -> None:
        at = np.array(lines[done:], np.int64)
        for name, parse in parsers.items():
            if chunk[name]:
                parts[name].append(parsed(parse, chunk[name], at, name, file))
            chunk[name] = []

    for line, values in read_objects(path):
        if not parsers:
            parsers = choose(list(values))
            parts, chunk = {name: [] for name in parsers}, {name: [] for name in parsers}
        for name in parsers:
            chunk[name].append(_text(values, name, file, line))
        lines.append(line)
        if len(lines) - done == CHUNK_ROWS:
            flush()
            done = len(lines)
    flush()
    columns = {name: joined(column) for name, column in parts.items()}
    return Table(columns, np.array(lines, np.int64))


def _text(values: Mapping[str, Any], name: str, file: str, line: int) -> str:
    """Return a value as the cell of a table would have it."""
    value = values.get(name)
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        problem, remedy = "the value is missing", "give each line all fields of the first"
        if value is not None:
            problem, remedy = f"{value!r:.40} is not a number or a text", "give a number or a text"
        raise InputError(problem, file=file, row=line, field=name, remedy=remedy)
    try:
        return str(value)
    except ValueError:  # Python writes no digits beyond its limit
        raise InputError(
            "is too large for a number",
            file=file,
            row=line,
            field=name,
            remedy="give at most 64 bits",
        ) from None
