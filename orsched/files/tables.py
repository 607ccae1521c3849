"""The one reader of tables: CSV, JSON lines, sheets, frames and arrays are columns of cells.

What a table holds is a description: the names of its columns, and for each a parser of its cells
(``orsched.files.cells``). What is wrong is named by file, row, column and what to do about it.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import shown
from orsched.common.errors import InputError, known_names
from orsched.common.units import MAX_TOKENS
from orsched.files import cells
from orsched.files.cells import CellError
from orsched.files.sheets import is_spreadsheet, sheet_rows
from orsched.files.text import head_of, json_object, locating, open_text, parse_json, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike
    from pathlib import Path
    from typing import Protocol

    from numpy.typing import NDArray

    Parser = Callable[[Sequence[Any]], Any]
    Choice = Callable[[list[str]], Mapping[str, Parser]]

    class Rows(Protocol):
        """Rows of cells that count the lines they come from, as those of ``csv.reader`` do."""

        @property
        def line_num(self) -> int:
            """The lines that were read so far."""

        def __iter__(self) -> Iterator[list[str]]: ...
        def __next__(self) -> list[str]: ...


CHUNK_ROWS = 65_536
SEPARATORS = (",", ";", "\t")

NO_ROW = "give a file with at least one request"


class Table(NamedTuple):
    """Columns of a table by name, and the line number of each row."""

    columns: dict[str, Any]
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class Values:
    """A parser that takes values as JSON has them, with None for those that are not there."""

    parse: Callable[[Sequence[Any]], Any]

    def __call__(self, values: Sequence[Any]) -> Any:
        """Return the column of the values; raises ``CellError``."""
        return self.parse(values)


def read_table(
    path: str | PathLike[str],
    required: Mapping[str, Parser],
    optional: Mapping[str, Parser] | None = None,
    *,
    quoted: bool = True,
) -> Table:
    """Read the named columns of a table, each with its parser.

    CSV, JSON lines or the first sheet of a spreadsheet. Columns of CSV are separated by commas,
    semicolons or tabs, as the first line shows. Blank lines are skipped; a byte-order mark, any
    line ends, blanks around column names, separators at the end of a line and further columns are
    accepted. With ``quoted`` numbers of JSON may stand in texts. ``InputError`` names line and
    column.
    """
    return read_chosen(path, lambda header: chosen(header, required, optional or {}), quoted=quoted)


def read_chosen(
    path: str | PathLike[str],
    choose: Choice,
    *,
    separators: Sequence[str] = SEPARATORS,
    quoted: bool = True,
) -> Table:
    """Read the columns of a table that ``choose`` picks from its header; see ``read_table``."""
    try:
        if is_spreadsheet(path):
            with sheet_rows(path) as rows:
                return _of_rows(rows, choose)
        with open_text(path) as (head, stream):
            if head.lstrip().startswith("{"):
                return _of_objects(_objects(stream, exact=True), choose, quoted)
            reader = csv.reader(stream, strict=True, delimiter=separator_of(head, separators))
            try:
                return _of_rows(reader, choose)
            except csv.Error as error:
                raise not_csv(error, reader.line_num) from None
    except InputError as error:
        raise error.located(file=str(path)) from None


FRAME = "the data frame"


def table_of_frame(frame: Any, choose: Choice, file: object = FRAME) -> Table:
    """Return the columns of a data frame that ``choose`` picks; rows count from 0."""
    try:
        header = parse_header([str(name) for name in frame.columns])
        gathered = Gathered(choose(header))
    except InputError as error:  # the heading is not a row of a frame
        raise InputError(
            error.problem, file=str(file), field=error.field, remedy=error.remedy
        ) from None
    columns = {}
    for name in gathered.parsers:
        column = frame.iloc[:, header.index(name)]
        columns[name] = column.astype(object).where(column.notna(), None).tolist()
    try:
        gathered.add_values(np.arange(len(frame)), columns)
    except InputError as error:
        raise error.located(file=str(file)) from None
    return gathered.table()


def read_objects(
    path: str | PathLike[str], *, exact: bool = True
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of each line of a JSONL file; blank lines are skipped.

    Numbers are int or, where they are ``exact``, ``Decimal``.
    """
    try:
        with open_text(path) as (_, stream):
            yield from _objects(stream, exact)
    except InputError as error:
        raise error.located(file=str(path)) from None


def _objects(stream: Iterable[str], exact: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in enumerate(stream, start=1):
        if text.strip():
            yield line, json_object(text, exact=exact, line=line)


class Gathered:
    """Columns that are parsed a chunk of rows at a time."""

    def __init__(self, parsers: Mapping[str, Parser]) -> None:
        self.parsers = parsers
        self._parts: dict[str, list[Any]] = {name: [] for name in parsers}
        self._lines: list[NDArray[np.int64]] = []

    def add(self, lines: NDArray[np.int64], columns: Mapping[str, Sequence[Any]]) -> None:
        """Add rows of cells; raises ``InputError`` that names row and column."""
        for name, parse in self.parsers.items():
            self._parts[name].append(parsed(parse, columns[name], lines, name))
        self._lines.append(lines)

    def add_values(
        self, lines: NDArray[np.int64], columns: Mapping[str, Sequence[Any]], quoted: bool = True
    ) -> None:
        """Add rows of values, as JSON and frames have them."""
        texts = partial(cells.texts, quoted=quoted)
        as_cells = {
            name: columns[name]
            if isinstance(parse, Values)
            else parsed(texts, columns[name], lines, name)
            for name, parse in self.parsers.items()
        }
        self.add(lines, as_cells)

    def table(self) -> Table:
        """Return all rows."""
        columns = {name: _joined(parts) for name, parts in self._parts.items()}
        lines = np.concatenate(self._lines) if self._lines else np.empty(0, np.int64)
        return Table(columns, lines)


def parsed(parse: Parser, column: Sequence[Any], lines: Sequence[int] | Any, field: str) -> Any:
    """Return parsed cells of a column; an error names the line and the column."""
    try:
        return parse(column)
    except CellError as error:
        raise InputError(
            error.problem, row=int(lines[error.index]), field=field, remedy=error.remedy
        ) from None


def _joined(parts: list[Any]) -> Any:
    if parts and isinstance(parts[0], list):
        return [value for part in parts for value in part]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _of_objects(
    objects: Iterator[tuple[int, dict[str, Any]]], choose: Choice, quoted: bool
) -> Table:
    line, values = next(objects)
    gathered = Gathered(choose(list(values)))
    rows = _chained((line, values), objects)
    while True:
        lines: list[int] = []
        chunk: dict[str, list[Any]] = {name: [] for name in gathered.parsers}
        for line, values in islice(rows, CHUNK_ROWS):
            lines.append(line)
            for name, column in chunk.items():
                column.append(values.get(name))
        if not lines:
            return gathered.table()
        gathered.add_values(np.array(lines, np.int64), chunk, quoted)


def _chained(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others


def _of_rows(rows: Rows, choose: Choice) -> Table:
    header = _header(rows)
    gathered = Gathered(choose(header))
    for lines, chunk in _chunks(rows, len(header)):
        columns: list[Sequence[Any]] = list(zip(*chunk, strict=True))
        gathered.add(
            lines,
            {
                name: columns[header.index(name)] if name in header else (None,) * len(lines)
                for name in gathered.parsers
            },
        )
    return gathered.table()


def not_csv(error: Exception, line: int) -> InputError:
    """Return what to say of a text that is no CSV."""
    return InputError(f"not valid CSV: {error}", row=line, remedy="check the quotes and line ends")


_SEPARATOR_LINE = re.compile(r"sep=([,;\t])", re.ASCII)
"""The line that spreadsheets put before the header; the separator in it splits it."""


def separator_of(head: str, separators: Sequence[str] = SEPARATORS) -> str:
    """Return the separator of a table's columns: the one that its first line has most of."""
    line = next((line for line in head.splitlines() if line.strip()), "")
    outside = "".join(line.split('"')[::2])
    match = _SEPARATOR_LINE.fullmatch(line)
    if match and match[1] in separators:
        return match[1]
    return max(separators, key=outside.count)


def header_of(head: str) -> list[str]:
    """Return the names of a table's columns from the first part of its text.

    Raises ``InputError`` for a name that appears twice, ``csv.Error`` for what is not a table.
    """
    return _header(csv.reader(head.splitlines(), strict=True, delimiter=separator_of(head)))


def _header(rows: Rows) -> list[str]:
    for row in rows:
        if any(cell.strip() for cell in row):
            if row[0] == "sep=" and not any(row[1:]):
                continue
            return parse_header(row, rows.line_num)
    raise InputError("is empty", remedy=NO_ROW)


def parse_header(names: Sequence[str], line: int = 1) -> list[str]:
    """Return the column names of the first line, stripped, without nameless ones at the end."""
    header = [name.strip() for name in names]
    while header and not header[-1]:
        header.pop()
    for name in header:
        if name and header.count(name) > 1:
            raise InputError(
                "the column appears twice", row=line, field=name, remedy="keep one of them"
            )
    return header


def chosen(
    header: Sequence[str], required: Mapping[str, Parser], optional: Mapping[str, Parser]
) -> dict[str, Parser]:
    """Return the parsers of the columns that are there; ``InputError`` if one is missing.

    Parsers of ``Values`` see all rows: a later one may have what the first has not.
    """
    for name in required:
        if name not in header:
            raise InputError(
                f"unknown column '{name}'",
                row=1,
                field=name,
                remedy=f"the first line must name the columns {', '.join(required)}",
            )
    there = {n: p for n, p in optional.items() if n in header or isinstance(p, Values)}
    return dict(required) | there


def _chunks(rows: Rows, width: int) -> Iterator[tuple[NDArray[np.int64], list[list[str]]]]:
    """Yield (line numbers, rows) of many rows at a time, blank rows left out."""
    while True:
        chunk: list[list[str]] = []
        lines: list[int] = []
        read, before = 0, rows.line_num
        for row in islice(rows, CHUNK_ROWS):
            read += 1
            if any(row):
                chunk.append(row)
                lines.append(before + 1)
            before = rows.line_num  # quoted cells may hold line ends
        if not read:
            return
        if set(map(len, chunk)) - {width}:
            for i, (line, row) in enumerate(zip(lines, chunk, strict=True)):
                if len(row) < width or any(row[width:]):
                    raise _wrong_width(len(row), width, line)
                chunk[i] = row[:width]
        if chunk:
            yield np.array(lines, np.int64), chunk


def _wrong_width(found: int, width: int, line: int) -> InputError:
    remedy = (
        "complete the line, which may be cut off"
        if found < width
        else "quote texts that hold the separator, and write numbers with a decimal point and no "
        "separators of thousands"
    )
    return InputError(f"{found} cells where {width} are expected", row=line, remedy=remedy)


class Fields:
    """Typed access to the fields of JSON objects of one file."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.file = str(path)

    def whole(self, values: dict[str, Any], name: str, line: int, maximum: int = MAX_TOKENS) -> int:
        """Return a whole number from 0 to ``maximum``."""
        found: int = self._read(partial(cells.whole_numbers, maximum=maximum), values, name, line)
        return found

    def time_ns(self, values: dict[str, Any], name: str, line: int, ns: int) -> int:
        """Return a time, given in units of ``ns`` nanoseconds, in nanoseconds."""
        found: int = self._read(partial(cells.seconds, unit_ns=ns), values, name, line)
        return found

    def whole_list(self, values: dict[str, Any], name: str, line: int) -> list[int]:
        """Return a list of whole numbers from 0 to 2**62."""
        found: list[int] = self._read(_filled_lists, values, name, line)
        return found

    def _read(self, parse: Parser, values: dict[str, Any], name: str, line: int) -> Any:
        column: Sequence[Any] = [values.get(name)]
        try:
            if parse is not _filled_lists:
                column = parsed(partial(cells.texts, quoted=False), column, [line], name)
            return parsed(parse, column, [line], name)[0].tolist()
        except InputError as error:
            raise error.located(file=self.file) from None


def whole_lists(values: Sequence[Any]) -> list[Any]:
    """Read lists of whole numbers from 0 to 2**62 as arrays; None where there is none."""
    found: list[Any] = []
    for index, items in enumerate(values):
        if items is not None and not isinstance(items, list):
            raise CellError(index, "is not a list", "give a list of whole numbers")
        for item in items or ():
            if type(item) is not int or not 0 <= item <= 2**62:
                problem = f"{item!r} is not a whole number from 0 to 2**62"
                raise CellError(index, problem, "check the list")
        found.append(None if items is None else np.array(items, np.int64))
    return found


def _filled_lists(values: Sequence[Any]) -> list[Any]:
    return whole_lists([0 if items is None else items for items in values])


def is_text_table(path: str | PathLike[str]) -> bool:
    """Whether a file is a table of text in rows: neither a sheet nor JSON."""
    return not is_spreadsheet(path) and not head_of(path).lstrip().startswith("{")


COLUMNS = ("size", "length", "processing_time", "output_tokens")
"""Headings that are taken where no column is named."""

LARGEST = 2**53
_SIZES = partial(
    cells.whole_numbers,
    maximum=LARGEST,
    remedy=f"give whole numbers from 0 to {LARGEST}; scale fractions to a finer unit",
)


def read_sizes(path: Path, column: str | None = None) -> list[int]:
    """Return the sizes in a file; ``InputError`` names file, row (the line of a text) and field.

    Args:
        path: JSON (``.json``: a list, or an object with a list ``sizes``); CSV (``.csv``, or a
            first line with a comma or without a number): a column of it; other text: a whole number
            a line, with ``#`` before comments.
        column: heading of the column of CSV; default: its only one, or one of ``COLUMNS``.
    """
    with locating(path):
        text = read_text(path)
        if path.suffix.lower() == ".json":
            return _of_json(text)
        lines = text.splitlines()
        if path.suffix.lower() == ".csv" or _has_heading(lines):
            table = read_chosen(path, lambda header: {_place(header, column): _SIZES})
            (sizes,) = table.columns.values()
            return [int(size) for size in sizes]
        if column is not None:
            raise InputError("this file has no columns", field="--column", remedy="leave it out")
        words = [
            (word, row) for row, line in enumerate(lines, 1) for word in _content(line).split()
        ]
        found = parsed(_SIZES, [word for word, _ in words], [row for _, row in words], "size")
        return [int(size) for size in found]


def _of_json(text: str) -> list[int]:
    found = parse_json(text, exact=True)
    if isinstance(found, dict):
        if "sizes" not in found:
            raise InputError("is missing", field="sizes", remedy='give {"sizes": [...]}')
        found = found["sizes"]
    if not isinstance(found, list):
        raise InputError("must be a list of whole numbers", field="sizes")
    rows = range(len(found))
    words = parsed(partial(cells.texts, quoted=False), found, rows, "sizes")
    return [int(size) for size in parsed(_SIZES, words, rows, "sizes")]


def _has_heading(lines: Sequence[str]) -> bool:
    """Whether the first line that says something is one of CSV, or begins with a word."""
    first = next((line for line in lines if _content(line)), "")
    return "," in first or (bool(_content(first)) and not _content(first)[0].lstrip("+-").isdigit())


def _content(line: str) -> str:
    return line.partition("#")[0].strip()


def _place(headings: list[str], column: str | None) -> str:
    """Return the heading of the column of sizes."""
    if column is not None:
        if column not in headings:
            raise InputError(
                f"unknown column {shown(column)}",
                field="--column",
                remedy=known_names(column, headings, "known: "),
            )
        return column
    named = [heading for heading in headings if heading.lower() in COLUMNS]
    if len(headings) == 1 and not headings[0].lstrip("+-").isdigit():
        return headings[0]
    if len(named) != 1:
        raise InputError(
            "which column holds the sizes is open", row=1, field="--column",
            remedy=f"name it with --column, or call it {COLUMNS[0]}",
        )  # fmt: skip
    return named[0]
