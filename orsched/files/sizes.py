"""Sizes of jobs from a file: a number a line, a column of CSV, or JSON."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

from orsched.common.columns import shown
from orsched.common.errors import InputError
from orsched.common.near_names import known_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLUMNS = ("size", "length", "processing_time", "output_tokens")
"""Headings that are taken where no column is named."""

LARGEST = 2**53


def read_sizes(path: Path, column: str | None = None) -> list[int]:
    """Return the sizes in a file.

    Args:
        path: JSON (``.json``: a list, or an object with a list ``sizes``); CSV (``.csv``, or a
            first line with a comma or without a number): a column of it; other text: a whole number
            a line, with ``#`` before comments.
        column: heading of the column of CSV; default: its only one, or one of ``COLUMNS``.

    Raises:
        InputError: the file cannot be read, or something in it is no size; names file, row (the
            line of a text) and field.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(
            f"cannot read: {error.strerror}",
            file=str(path),
            remedy="check the path and the permissions",
        ) from None
    except UnicodeDecodeError:
        raise InputError(
            "is not text in UTF-8",
            file=str(path),
            remedy="save it as UTF-8",
        ) from None
    try:
        if path.suffix.lower() == ".json":
            return _of_json(text)
        lines = text.splitlines()
        if path.suffix.lower() == ".csv" or _has_heading(lines):
            return _of_csv(lines, column)
        if column is not None:
            raise InputError("this file has no columns", field="--column", remedy="leave it out")
        return _of_text(lines)
    except InputError as error:
        raise error.located(file=str(path)) from None


def _of_json(text: str) -> list[int]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", remedy="correct the text at this place") from None
    if isinstance(found, dict):
        if "sizes" not in found:
            raise InputError("is missing", field="sizes", remedy='give {"sizes": [...]}')
        found = found["sizes"]
    if not isinstance(found, list):
        raise InputError("must be a list of whole numbers", field="sizes")
    return [_size(value, row, "sizes") for row, value in enumerate(found)]


def _has_heading(lines: Sequence[str]) -> bool:
    """Whether the first line that says something is one of CSV, or begins with a word."""
    first = next((line for line in lines if _content(line)), "")
    return "," in first or (bool(_content(first)) and not _content(first)[0].lstrip("+-").isdigit())


def _content(line: str) -> str:
    return line.partition("#")[0].strip()


def _of_text(lines: Sequence[str]) -> list[int]:
    found = []
    for row, line in enumerate(lines, 1):
        found += [_number(word, row, "size") for word in _content(line).split()]
    return found


def _of_csv(lines: Sequence[str], column: str | None) -> list[int]:
    reader = csv.reader(lines)
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(
            f"is not CSV: {error}", row=reader.line_num, remedy="check quotes and line ends"
        ) from None
    if not rows:
        raise InputError("is empty", remedy="give a heading and a size a row")
    headings = [cell.strip() for cell in rows[0][1]]
    place = _place(headings, column)
    found = []
    for line, row in rows[1:]:
        if place >= len(row):
            raise InputError(
                "is missing", row=line, field=headings[place], remedy="give a size in each row"
            )
        found.append(_number(row[place].strip(), line, headings[place]))
    return found


def _place(headings: list[str], column: str | None) -> int:
    if column is not None:
        if column not in headings:
            raise InputError(
                f"there is no column {shown(column)}",
                field="--column",
                remedy=known_names(column, headings, "there are: "),
            )
        if headings.count(column) > 1:
            raise InputError(
                f"{headings.count(column)} columns are named {shown(column)}",
                row=1,
                field="--column",
                remedy="rename all but one of them",
            )
        return headings.index(column)
    named = [place for place, heading in enumerate(headings) if heading.lower() in COLUMNS]
    if len(headings) == 1 and not headings[0].lstrip("+-").isdigit():
        return 0
    if len(named) != 1:
        raise InputError(
            "which column holds the sizes is open", row=1, field="--column",
            remedy=f"name it with --column, or call it {COLUMNS[0]}",
        )  # fmt: skip
    return named[0]


def _number(word: str, row: int, field: str) -> int:
    try:
        value: Any = int(word) if len(word) < 20 else None
    except ValueError:
        value = None
    return _size(word if value is None else value, row, field)


def _size(value: object, row: int, field: str) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise InputError(
            f"{shown(value)} is no size",
            row=row,
            field=field,
            remedy=f"give whole numbers from 0 to {LARGEST}; scale fractions to a finer unit",
        )
    return value
