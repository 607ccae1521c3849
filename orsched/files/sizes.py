"""Sizes of jobs from a file: a number a line, a column of a table, or JSON."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from orsched.common.columns import shown
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.files import cells
from orsched.files.tables import parsed, read_chosen
from orsched.files.text import locating, parse_json, read_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
