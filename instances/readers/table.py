"""CSV tables with a header: chosen columns, in chunks, with the line of every row."""

from __future__ import annotations

import csv
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.instances.readers.cells import CellError
from orsched.instances.readers.text import head_of, open_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from os import PathLike
    from typing import Protocol

    from numpy.typing import NDArray

    Parser = Callable[[Sequence[str]], Any]
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


class Table(NamedTuple):
    """Columns of a CSV file by name, and the line number of each row."""

    columns: dict[str, Any]
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)


def read_table(
    path: str | PathLike[str],
    required: Mapping[str, Parser],
    optional: Mapping[str, Parser] | None = None,
) -> Table:
    """Read the named columns of a CSV file, each with its parser.

    The columns are separated by commas, semicolons or tabs, as the first line shows. Blank lines
    are skipped; a byte-order mark, any line ends, blanks around column names, separators at the end
    of a line and further columns are accepted.

    Raises:
        InputError: the file is no such table, or a cell is wrong; names line and column.
    """
    file = str(path)
    return read_chosen(path, lambda header: _chosen(header, required, optional or {}, file))


def read_chosen(path: str | PathLike[str], choose: Choice) -> Table:
    """Read the columns of a CSV file that ``choose`` picks from its header; see ``read_table``."""
    file = str(path)
    with open_text(path) as stream:
        reader = csv.reader(stream, strict=True, delimiter=separator_of(head_of(path)))
        try:
            return table_of(reader, choose, file)
        except csv.Error as error:
            raise InputError(
                f"is not a CSV table: {error}",
                file=file,
                row=reader.line_num,
                remedy="check quotes and line ends",
            ) from None


def separator_of(head: str) -> str:
    """Return the separator of a table's columns: the one that its first line has most of."""
    line = _first_line(head)
    outside = "".join(line.split('"')[::2])
    if match := _SEPARATOR_LINE.fullmatch(line):
        return match[1]
    return max(SEPARATORS, key=outside.count)


def _first_line(head: str) -> str:
    return next((line for line in head.splitlines() if line.strip()), "")


_SEPARATOR_LINE = re.compile(r"sep=([,;\t])", re.ASCII)
"""The line that spreadsheets put before the header; the separator in it splits it."""


def header_of(head: str, file: str) -> list[str]:
    """Return the names of a table's columns from the first part of its text.

    Raises ``InputError`` for a name that appears twice, ``csv.Error`` for what is not a table.
    """
    reader = csv.reader(head.splitlines(), strict=True, delimiter=separator_of(head))
    return _header(reader, file)


def _header(rows: Rows, file: str) -> list[str]:
    for cells in rows:
        if any(cell.strip() for cell in cells):
            if cells[0] == "sep=" and not any(cells[1:]):
                continue
            return parse_header(cells, file, rows.line_num)
    raise InputError("is empty", file=file, remedy="give a file with at least one request")


def table_of(rows: Rows, choose: Choice, file: str) -> Table:
    """Return the columns that ``choose`` picks from the header, which is the first row."""
    parts: dict[str, list[Any]] = {}
    lines: list[NDArray[np.int64]] = []
    header = _header(rows, file)
    parsers = choose(header)
    for name in parsers:
        parts[name] = []
    for at, chunk in _chunks(rows, len(header), file):
        cells = list(zip(*chunk, strict=True))
        for name, parse in parsers.items():
            parts[name].append(parsed(parse, cells[header.index(name)], at, name, file))
        lines.append(at)
    columns = {name: joined(column) for name, column in parts.items()}
    at = np.concatenate(lines) if lines else np.empty(0, np.int64)
    return Table(columns, at)


def parse_header(cells: Sequence[str], file: str, line: int = 1) -> list[str]:
    """Return the column names of the first line, without blanks around them.

    Columns without a name at the end are none: separators at the ends of lines make them.
    """
    header = [cell.strip() for cell in cells]
    while header and not header[-1]:
        header.pop()
    for name in header:
        if name and header.count(name) > 1:
            raise InputError(
                "the column appears twice", file=file, row=line, field=name, remedy="keep one"
            )
    return header


def _chosen(
    header: Sequence[str],
    required: Mapping[str, Parser],
    optional: Mapping[str, Parser],
    file: str,
) -> dict[str, Parser]:
    for name in required:
        if name not in header:
            raise InputError(
                f"there is no column '{name}'",
                file=file,
                row=1,
                field=name,
                remedy=f"the first line must name the columns {', '.join(required)}",
            )
    return dict(required) | {n: parse for n, parse in optional.items() if n in header}


def _chunks(
    rows: Rows, width: int, file: str
) -> Iterator[tuple[NDArray[np.int64], list[list[str]]]]:
    """Yield (line numbers, rows) of many rows at a time, blank lines left out."""
    while True:
        before = rows.line_num
        chunk: list[list[str]] = list(islice(rows, CHUNK_ROWS))
        if not chunk:
            return
        lines = np.arange(before + 1, before + len(chunk) + 1)
        if rows.line_num - before != len(chunk):  # quoted line breaks: count them
            breaks = [sum(cell.count("\n") for cell in row) for row in chunk]
            lines = lines + np.concatenate([[0], np.cumsum(breaks)[:-1]]).astype(np.int64)
        kept = [i for i, row in enumerate(chunk) if any(row)]
        if len(kept) < len(chunk):
            chunk, lines = [chunk[i] for i in kept], lines[kept]
        if set(map(len, chunk)) - {width}:
            for i, (line, row) in enumerate(zip(lines, chunk, strict=True)):
                if len(row) < width or any(row[width:]):
                    raise _wrong_width(len(row), width, int(line), file)
                chunk[i] = row[:width]
        if chunk:
            yield lines, chunk


def _wrong_width(found: int, width: int, line: int, file: str) -> InputError:
    remedy = (
        "complete the line, which may be cut off"
        if found < width
        else "quote texts that hold the separator, and write numbers with a decimal point and no "
        "separators of thousands"
    )
    return InputError(
        f"{found} fields where {width} are expected", file=file, row=line, remedy=remedy
    )


def parsed(
    parse: Parser, cells: Sequence[str], lines: NDArray[np.int64], field: str, file: str
) -> Any:
    """Return parsed cells of a column; an error names the line and the column."""
    try:
        return parse(cells)
    except CellError as error:
        raise InputError(
            error.problem,
            file=file,
            row=int(lines[error.index]),
            field=field,
            remedy=error.remedy,
        ) from None


def joined(parts: list[Any]) -> Any:
    """Return the parts of a column as one."""
    if parts and isinstance(parts[0], list):
        return [value for part in parts for value in part]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
