"""Requests as JSON lines: one object a line, under the names that CSV has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.data.requests import SERVICE_CLASSES, Requests
from orsched.files.cells import class_codes, number_ns
from orsched.files.csv_requests import SECONDS, requests_of, require_columns
from orsched.files.text import locating, parse_json, read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.files.text import Path


def read_requests_jsonl(path: Path, classes: Sequence[str] = SERVICE_CLASSES) -> Requests:
    """Read requests from a file with one JSON object a line; every line has the same names.

    Names and ``classes`` as in ``read_requests_csv``; seconds are numbers. Empty lines are skipped.

    Raises:
        InputError: the file cannot be read or is wrong; the row is the line number from 1.
    """
    with locating(path):
        rows, lines = [], []
        for number, text in enumerate(read_text(path).split("\n"), 1):
            if text.strip():
                rows.append(_object(text, number))
                lines.append(number)
        names = require_columns(list(rows[0]))
        for row, line in zip(rows, lines, strict=True):
            _require_names(row, names, line)
        try:
            columns = {name: _column(name, [row[name] for row in rows], classes) for name in names}
            return requests_of(columns)
        except InputError as error:
            at = None if error.row is None else lines[error.row]
            raise InputError(
                error.problem, row=at, field=error.field, remedy=error.remedy
            ) from None


def _object(text: str, line: int) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except InputError as error:
        raise InputError(
            error.problem, row=line, field=error.field, remedy=error.remedy or "one object a line"
        ) from None
    if not isinstance(value, dict):
        raise InputError("is not a JSON object", row=line, remedy='write {"prompt_tokens": 5, ...}')
    return value


def _require_names(row: dict[str, Any], names: list[str], line: int) -> None:
    for name in names:
        if name not in row:
            raise InputError("the value is missing", row=line, field=name, remedy="add it")
    for name in row:
        if name not in names:
            raise InputError(
                "is not in the first line", row=line, field=name, remedy="all lines have the same"
            )


def _column(name: str, values: list[Any], classes: Sequence[str]) -> Any:
    if name in ("service_class", "class"):
        return class_codes(values, name, classes)
    if name in SECONDS:
        return [number_ns(value, row, name) for row, value in enumerate(values)]
    return tuple(values) if name == "id" else values
