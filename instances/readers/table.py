"""CSV tables with a header: chosen columns, in chunks, with the line of every row."""

from __future__ import annotations

import csv
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.errors import InputError
from orsched.instances.readers.cells import CellError
from orsched.instances.readers.text import open_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    Parser = Callable[[Sequence[str]], Any]

CHUNK_ROWS = 65_536


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

    Blank lines are skipped; a byte-order mark, any line ends, blanks around column names and
    further columns are accepted.

    Raises:
        InputError: the file is no such table, or a cell is wrong; names line and column.
    """
    file = str(path)
    parts: dict[str, list[Any]] = {}
    lines: list[NDArray[np.int64]] = []
    with open_text(path) as stream:
        reader = csv.reader(stream, strict=True)
        try:
            header = parse_header(next(reader), file)
            parsers = _chosen(header, required, optional or {}, file)
            for name in parsers:
                parts[name] = []
            for at, rows in _chunks(reader, len(header), file):
                cells = list(zip(*rows, strict=True))
                for name, parse in parsers.items():
                    parts[name].append(_parsed(parse, cells[header.index(name)], at, name, file))
                lines.append(at)
        except csv.Error as error:
            raise InputError(
                f"is not a CSV table: {error}",
                file=file,
                row=reader.line_num,
                remedy="check quotes and line ends",
            ) from None
    columns = {name: _joined(column) for name, column in parts.items()}
    at = np.concatenate(lines) if lines else np.empty(0, np.int64)
    return Table(columns, at)


def parse_header(cells: Sequence[str], file: str) -> list[str]:
    """Return the column names of the first line, without blanks around them."""
    header = [cell.strip() for cell in cells]
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in header[0]:
            raise InputError(
                f"its columns are separated by {name}", file=file, row=1, remedy="use commas"
            )
    for name in header:
        if header.count(name) > 1:
            raise InputError("the column appears twice", file=file, row=1, field=name)
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
    reader: Any, width: int, file: str
) -> Iterator[tuple[NDArray[np.int64], list[list[str]]]]:
    """Yield (line numbers, rows) of many rows at a time, blank lines left out."""
    while True:
        before = reader.line_num
        rows: list[list[str]] = list(islice(reader, CHUNK_ROWS))
        if not rows:
            return
        lines = np.arange(before + 1, before + len(rows) + 1)
        if reader.line_num - before != len(rows):  # quoted line breaks: count them
            breaks = [sum(cell.count("\n") for cell in row) for row in rows]
            lines = lines + np.concatenate([[0], np.cumsum(breaks)[:-1]]).astype(np.int64)
        if set(map(len, rows)) != {width}:
            kept = [i for i, row in enumerate(rows) if row]
            rows, lines = [rows[i] for i in kept], lines[kept]
            for line, row in zip(lines, rows, strict=True):
                if len(row) != width:
                    raise _wrong_width(len(row), width, int(line), file)
        if rows:
            yield lines, rows


def _wrong_width(found: int, width: int, line: int, file: str) -> InputError:
    remedy = "the line may be cut off" if found < width else "write numbers without commas in them"
    return InputError(
        f"{found} fields where {width} are expected", file=file, row=line, remedy=remedy
    )


def _parsed(
    parse: Parser, cells: Sequence[str], lines: NDArray[np.int64], field: str, file: str
) -> Any:
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


def _joined(parts: list[Any]) -> Any:
    if parts and isinstance(parts[0], list):
        return [value for part in parts for value in part]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
