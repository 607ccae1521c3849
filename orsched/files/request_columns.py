"""Tables of requests under orsched's own names: CSV, JSON lines and data frames, in and out."""

from __future__ import annotations

import csv
import os
import re
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import int_column, required_pandas, shown
from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS, MAX_TOKENS, seconds_column
from orsched.data.length_quantiles import LEVELS, MAX_LEVELS, QUANTILES, require_order
from orsched.data.requests import (
    MAX_WEIGHT,
    NONE,
    SERVICE_CLASSES,
    WEIGHT_REMEDY,
    Prefixes,
    Requests,
)
from orsched.data.service_classes import LABELLED
from orsched.files import cells
from orsched.files.document import at_field, opened
from orsched.files.tables import FRAME, parsed, read_chosen, read_objects
from orsched.files.text import locating, warn_of_formulas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from orsched.common.columns import IntColumn
    from orsched.files.tables import Parser
    from orsched.files.text import Path

COLUMNS = (
    "id", "prompt_tokens", "output_tokens", "arrival_ns", "arrival_s", "predicted_tokens",
    "service_class", "class", *LABELLED, "deadline_ns", "deadline_s", "weight",
    "parent", "delay_ns", "delay_s",
)  # fmt: skip
PREFIX_COLUMNS = ("prefix_ids", "prefix_block_tokens")
"""Columns that a frame alone has: a list of whole numbers in each row, and one number."""

REQUIRED = ("prompt_tokens", "output_tokens")
SAME = {
    "id": "ids",
    "arrival_s": "arrival_ns",
    "class": "service_class",
    "deadline_s": "deadline_ns",
    "delay_s": "delay_ns",
    "weight": "weights",
}
"""Columns that stand for a column of ``Requests`` under another name or unit."""

EXAMPLE = "predicted_p50 (or another percentile)"
_LEVEL = re.compile(r"predicted_p([0-9]{1,2}(?:\.[0-9]{1,400})?)", re.ASCII)


def parser_of(name: str, classes: Sequence[str]) -> Parser:
    """Return the parser of a column; times in seconds become nanoseconds."""
    if name in ("service_class", "class"):
        return partial(_codes, classes=classes)
    return _PARSERS.get(name, cells.whole_numbers)


def _codes(column: Sequence[str], classes: Sequence[str]) -> Any:
    return np.array(cells.service_classes(column, classes), dtype=np.int64)


def _or_none(column: Sequence[str], parse: Parser) -> Any:
    """Read cells of which those that are empty, or -1, hold ``NONE``."""
    none = np.array([cell.strip() in ("", str(NONE)) for cell in column], bool)
    found = parse(["0" if missing else cell for cell, missing in zip(column, none, strict=True)])
    return np.where(none, NONE, found)


_TIME = partial(
    cells.whole_numbers, maximum=MAX_TIME_NS, remedy="give whole nanoseconds, 0 or more"
)
_PARSERS: dict[str, Parser] = {
    "id": list,
    "parent": list,
    "delay_ns": partial(_or_none, parse=_TIME),
    "delay_s": partial(_or_none, parse=cells.seconds),
    **dict.fromkeys(LABELLED, list),
    "arrival_s": cells.seconds,
    "deadline_s": cells.seconds,
    **dict.fromkeys(("arrival_ns", "deadline_ns"), _TIME),
    "weight": partial(cells.whole_numbers, maximum=MAX_WEIGHT, remedy=WEIGHT_REMEDY),
}


def read_requests_csv(path: Path, classes: Sequence[str] = SERVICE_CLASSES) -> Requests:
    """Read requests from a CSV file in UTF-8 with commas.

    Columns, in any order: ``prompt_tokens``, ``output_tokens``, and optionally ``id`` (unique
    texts), ``arrival_ns`` or ``arrival_s`` (decimal seconds, converted exactly),
    ``predicted_tokens``, quantiles of predicted lengths (``predicted_p10``, ``predicted_p50``, any
    percentile), ``service_class`` or ``class`` (one of ``classes``), ``tenant`` and
    ``group`` (names, or whole numbers), ``deadline_ns`` or ``deadline_s`` (from the arrival; 0:
    none of its own), ``weight`` (whole numbers from 0), ``parent`` (the id, or without ids the row,
    of the request whose prompt and answer begin this one's prompt) and ``delay_s`` or ``delay_ns``
    (from its end to the arrival); both are empty for the first turns of conversations. Empty lines
    are skipped. ``InputError`` names the line, from 1.
    """
    with locating(path):
        table = read_chosen(
            path,
            lambda header: {name: parser_of(name, classes) for name in require_columns(header)},
            separators=",",
        )
        return requests_of(with_labels(table.columns), table.lines)


def read_requests_jsonl(path: Path, classes: Sequence[str] = SERVICE_CLASSES) -> Requests:
    """Read requests from a file with one JSON object a line; every line has the same names.

    Names, ``classes`` and errors as in ``read_requests_csv``; seconds are numbers.
    """
    with locating(path):
        found = list(read_objects(path, exact=False))
        lines, rows = [line for line, _ in found], [row for _, row in found]
        names = require_columns(list(rows[0]))
        for row, line in zip(rows, lines, strict=True):
            for name in names:
                if name not in row:
                    raise InputError(cells.MISSING, row=line, field=name, remedy="add it")
            for name in row:
                if name not in names:
                    raise InputError(
                        "is not in the first line",
                        row=line,
                        field=name,
                        remedy="all lines have the same",
                    )
        columns = {name: [row[name] for row in rows] for name in names}
        return _requests_of_values(columns, lines, classes)


def requests_from_frame(frame: pd.DataFrame, classes: Sequence[str] = SERVICE_CLASSES) -> Requests:
    """Return the requests of a data frame, one row each; the index plays no part.

    Columns and ``classes`` as in ``read_requests_csv``, and ``prefix_ids`` (a list of whole numbers
    in each row) with ``prefix_block_tokens`` (the same number in each row). ``InputError`` names
    the column and the row, from 0.
    """
    require_frame(frame)
    with locating(FRAME):
        require_columns([name for name in frame.columns if name not in PREFIX_COLUMNS])
        for name in PREFIX_COLUMNS:
            if list(frame.columns).count(name) > 1:
                raise InputError("the column appears twice", field=name, remedy="keep one of them")
        columns = {str(name): _values(frame[name], str(name)) for name in frame.columns}
        return _requests_of_values(columns, range(len(frame)), classes, _prefixes(columns))


def require_frame(frame: object) -> None:
    """Raise ``InputError`` for what is not a data frame."""
    if not isinstance(frame, required_pandas().DataFrame):
        raise InputError(f"a {type(frame).__name__} is not a data frame", remedy="give a DataFrame")


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


def requests_of(
    columns: Mapping[str, Any],
    lines: Sequence[int] | Any,
    names: Mapping[str, str] | None = None,
    prefixes: Prefixes | None = None,
    same: Mapping[str, str] = SAME,
) -> Requests:
    """Return requests from columns under their names here; an error names column and line.

    ``names`` are those of the file, where it has others; ``same`` those of ``Requests``.
    """
    shown = {same.get(name, name): (names or {}).get(name, name) for name in columns}
    try:
        values = {same.get(name, name): column for name, column in gather(dict(columns)).items()}
        if "ids" in values:
            values["ids"] = tuple(values["ids"])
        if "parent" in values:
            values["parent"] = _parents(values["parent"], values.get("ids"))
        if "delay_s" in values:
            values["delay_ns"] = _delays(values.pop("delay_s"))
        return Requests(**values, prefixes=prefixes)
    except InputError as error:
        row = None if error.row is None else int(lines[error.row])
        field = shown.get(str(error.field), error.field)
        located = InputError(error.problem, row=row, field=field, remedy=error.remedy)
        raise at_field(located, field, "see the file formats") from None


_NO_PARENT = (None, "", NONE, str(NONE))


def _parents(column: Any, ids: Sequence[str] | None) -> IntColumn:
    """Return the rows of parents that are named by their ids, or without ids by their rows."""
    listed = column.tolist() if isinstance(column, np.ndarray) else column
    rows = {name: row for row, name in enumerate(ids or map(str, range(len(listed))))}
    found = np.full(len(listed), NONE, np.int64)
    for row, name in enumerate(listed):
        if name in _NO_PARENT:
            continue
        named = str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)
        if named not in rows:
            raise InputError(
                f"{shown(name)} does not exist: no request is named so",
                row=row,
                field="parent",
                remedy="give the id of a request (without ids its row), or leave it empty",
            )
        found[row] = rows[named]
    return found


def _delays(column: Any) -> IntColumn:
    """Return nanoseconds of seconds that are numbers, ``NONE`` where they are missing or -1."""
    none = np.array([value is None or value == NONE for value in column], bool)
    given = [0 if missing else value for value, missing in zip(column, none, strict=True)]
    return np.where(none, NONE, seconds_column(given, "delay_s", len(given)))


def _requests_of_values(
    columns: dict[str, Any],
    lines: Sequence[int],
    classes: Sequence[str],
    prefixes: Prefixes | None = None,
) -> Requests:
    """Return requests from columns of numbers and texts, seconds as such."""
    codes = partial(cells.service_classes, classes=classes)
    for name in ("service_class", "class"):
        if isinstance(columns.get(name), list):
            columns[name] = parsed(codes, columns[name], lines, name)
    same = {name: other for name, other in SAME.items() if not name.endswith("_s")}
    return requests_of(columns, lines, prefixes=prefixes, same=same)


def with_labels(columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns of cells with tenants or groups as numbers where all are, else as names."""
    for label in set(LABELLED) & set(columns):
        names = columns[label]
        try:
            if all(name.isascii() and name.isdigit() for name in names):
                columns = {**columns, label: cells.whole_numbers(names)}
        except cells.CellError:  # beyond the numbers that are stored
            pass
    return columns


def _values(series: Any, name: str) -> Any:
    """Return a column without missing values, as an array of whole numbers or a list."""
    missing = series.isna().to_numpy()
    if missing.any() and name in ("parent", "delay_ns", "delay_s"):
        values = series.tolist()
        return [None if none else value for value, none in zip(values, missing, strict=True)]
    if missing.any():
        raise InputError(
            cells.MISSING,
            row=int(np.argmax(missing)),
            field=name,
            remedy="fill it in, or leave out a column that is optional",
        )
    return series.to_numpy() if series.dtype.kind == "i" else series.tolist()


def _prefixes(columns: dict[str, Any]) -> Prefixes | None:
    given = [name for name in PREFIX_COLUMNS if name in columns]
    if len(given) == 1:
        (missing,) = set(PREFIX_COLUMNS) - set(given)
        raise InputError(
            f"the column '{missing}' is missing", field=missing, remedy=f"{given[0]} needs it"
        )
    if not given:
        return None
    lists, sizes = columns.pop("prefix_ids"), columns.pop("prefix_block_tokens")
    if len(lists) == 0:
        return None
    for row, (item, size) in enumerate(zip(lists, sizes, strict=True)):
        if not isinstance(item, (list, tuple, np.ndarray)):
            raise InputError(
                f"a {type(item).__name__} is not a list",
                row=row,
                field="prefix_ids",
                remedy="give lists",
            )
        if size != sizes[0]:
            raise InputError(
                f"{size} differs from the {sizes[0]} of row 0",
                row=row,
                field="prefix_block_tokens",
                remedy="blocks have one size",
            )
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return Prefixes(offsets, [number for item in lists for number in item], sizes[0])  # type: ignore[arg-type]


def level_of(name: object) -> float | None:
    """Return the level that a column's name says: 0.025 for ``predicted_p2.5``; None for others."""
    found = _LEVEL.fullmatch(name) if isinstance(name, str) else None
    level = 0.0 if found is None else float(Decimal(found[1]) / 100)
    return level if 0 < level < 1 else None


def name_of(level: float) -> str:
    """Return the column's name of a level; ``level_of`` gives the level back."""
    percent = format(Decimal(repr(level)) * 100, "f")
    return f"predicted_p{percent.rstrip('0').rstrip('.') if '.' in percent else percent}"


def names_by_level(names: Iterable[object]) -> dict[float, str]:
    """Return the columns of quantiles by level; ``InputError``: two of one level, or too many."""
    found: dict[float, str] = {}
    for name in names:
        level = level_of(name)
        if level is None:
            continue
        if level in found:
            problem = f"{found[level]} is of the same level"
            raise InputError(problem, field=str(name), remedy="keep one of them")
        found[level] = str(name)
        if len(found) > MAX_LEVELS:
            raise InputError(f"more than {MAX_LEVELS} quantiles", field=str(name), remedy="fewer")
    return dict(sorted(found.items()))


def gather(columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns with those of quantiles as the two that ``Requests`` takes."""
    names = names_by_level(columns)
    if not names:
        return columns
    remedy = f"whole tokens from 1 to {MAX_TOKENS}"
    found = np.column_stack(
        [
            int_column(columns[name], name, minimum=1, maximum=MAX_TOKENS, remedy=remedy)
            for name in names.values()
        ]
    )
    require_order(found, list(names), list(names.values()))
    rest = {name: column for name, column in columns.items() if level_of(name) is None}
    return {**rest, QUANTILES: found, LEVELS: tuple(names)}


def _quantile_columns(requests: Requests) -> dict[str, Any]:
    """Return the quantiles of requests as columns by name; {} without any."""
    quantiles = requests.predicted_quantiles
    if quantiles is None:
        return {}
    levels = requests.quantile_levels or ()
    return {name_of(level): quantiles[:, place].copy() for place, level in enumerate(levels)}


def _columns(requests: Requests) -> dict[str, Any]:
    """Return the columns that requests have, but for quantiles, prefixes and names of classes."""
    columns: dict[str, Any] = {} if requests.ids is None else {"id": list(requests.ids)}
    for name in COLUMNS[1:]:
        column = None if name.endswith("_s") else getattr(requests, SAME.get(name, name), None)
        if column is not None and name != "class":
            columns[name] = column.copy()
    if requests.parent is not None and requests.ids is not None:
        ids = (*requests.ids, "")  # the last one stands for NONE
        columns["parent"] = [ids[row] for row in requests.parent.tolist()]
    for label in LABELLED:
        names = getattr(requests, f"{label}s")
        if names is not None:
            columns[label] = [names[each] for each in columns[label].tolist()]
    return columns


def requests_to_frame(requests: Requests) -> pd.DataFrame:
    """Return requests as a frame, a row each: times in ns, classes as codes, no absent columns."""
    pandas = required_pandas()
    columns = _columns(requests) | _quantile_columns(requests)
    if requests.prefixes is not None:
        cuts = requests.prefixes.offsets[1:-1]
        parts = np.split(requests.prefixes.ids, cuts) if len(requests) else []
        columns["prefix_ids"] = pandas.Series([part.tolist() for part in parts], dtype=object)
        columns["prefix_block_tokens"] = np.full(len(requests), requests.prefixes.block_tokens)
    frame: pd.DataFrame = pandas.DataFrame(columns)
    return frame


def write_requests_csv(
    requests: Requests, path: Path, classes: Sequence[str] = SERVICE_CLASSES
) -> None:
    """Write requests as CSV, times in nanoseconds; ``read_requests_csv`` gives them back equal.

    ``classes`` are the names of the service classes; a class without a name is written as a number.
    Raises ``InputError`` if the requests have prefixes, which CSV does not hold, or the file cannot
    be written.
    """
    with locating(path):
        if requests.prefixes is not None:
            raise InputError(
                "CSV holds no prefixes", field="prefixes", remedy="save an instance as JSON"
            )
        columns = _columns(requests)
        named = dict(enumerate(classes))
        columns["service_class"] = [named.get(c, c) for c in requests.service_class.tolist()]
        order = list(columns)
        at = order.index("service_class")
        quantiles = _quantile_columns(requests)
        order[at:at] = quantiles
        columns |= quantiles
        texts = (*(requests.ids or ()), *(requests.tenants or ()), *(requests.groups or ()))
        warn_of_formulas(texts, os.fspath(path))
        # Before Python 3.13 the writer leaves a carriage return bare, which then ends the line.
        bare = any("\r" in name for name in texts)
        with opened(path) as stream:
            writer = csv.writer(
                stream,
                lineterminator="\n",
                quoting=csv.QUOTE_NONNUMERIC if bare else csv.QUOTE_MINIMAL,
            )
            writer.writerow(order)
            writer.writerows(
                zip(*(np.asarray(columns[name], object).tolist() for name in order), strict=True)
            )
