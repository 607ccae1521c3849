"""Measurements as CSV: one line a step."""

from __future__ import annotations

import csv
from decimal import Decimal, InvalidOperation
from io import StringIO
from typing import TYPE_CHECKING, Any

from orsched.calibration.measurements import MIXED, PREFILL, Measurements
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.files.atomic import write_text
from orsched.files.text import locating, read_text

if TYPE_CHECKING:
    from orsched.files.text import Path

REQUIRED = ("phase", "count", "duration_ns")
OPTIONAL = ("tokens", "longest", "context_sum", "context_max", "run", "cached")
COLUMNS = (*REQUIRED, *OPTIONAL)
UNITS = {"duration_ns": 0, "duration_us": 3, "duration_ms": 6, "duration_s": 9}
"""Columns that the duration may stand in, and the power of ten that makes it nanoseconds."""

TEMPLATE = """\
# Times of a server's steps, one line a step; lines that begin with # are left out. Then
#   orsched calibrate --from rows.csv -o cost.json
#   orsched compare requests.csv --clients 64 --cost cost.json
# phase     prefill: a stage over 'count' prompts; decode: one round of 'count' requests;
#           mixed: a prompt beside such a round (optional)
# count     prompts of the stage, or requests in the round
# duration  of the step: duration_ms here; duration_s, duration_us and duration_ns do as well
# tokens    of all prompts of the stage; longest: of its longest one (one prompt: either will do)
# context_sum, context_max  tokens in the caches of the round's requests: all, and the most of one
#           (optional: without them only models that do not look at contexts can be fitted)
# cached    optional: tokens in the cache before the prompt, where it is a chunk behind others
# run       optional: 0 for a step measured alone, 1, 2, ... for those of the first, second, ... run
# At least five stages and five rounds of different sizes. The numbers below are an example.
phase,count,duration_ms,tokens,longest,context_sum,context_max
prefill,1,33.4,64,64,,
prefill,1,58.3,256,256,,
prefill,2,91.6,512,300,,
prefill,4,158.1,1024,300,,
prefill,8,291.3,2048,400,,
prefill,8,557.5,4096,700,,
decode,1,29.3,,,500,500
decode,4,29.9,,,1600,700
decode,8,30.7,,,4000,800
decode,16,32.4,,,8000,900
decode,32,35.8,,,16000,900
decode,64,42.5,,,32000,1000
"""


def write_measurements(measurements: Measurements, path: Path) -> None:
    """Write measurements; ``read_measurements`` gives them back equal."""
    columns = measurements.to_dict()
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(*(columns[name] for name in COLUMNS), strict=True))
    with locating(path):
        write_text(path, text.getvalue())


def read_measurements(path: Path) -> Measurements:
    """Read measurements; the first line names the columns, in any order.

    ``phase``, ``count`` and ``duration_ns`` must be there, or ``duration_us``, ``_ms`` or ``_s`` in
    its place, with a fraction. A column left out and an empty cell are 0; of a single prompt
    ``tokens`` and ``longest`` are the same, so that one is enough. Lines that begin with # are left
    out (``TEMPLATE`` has such).
    """
    with locating(path):
        lines = _lines(read_text(path))
        if not lines:
            raise InputError("the file is empty", remedy="orsched calibrate --template prints one")
        (first, names), body = lines[0], lines[1:]
        _check_names(names, first)
        for row, line in body:
            if len(line) != len(names):
                raise InputError(
                    f"{len(line)} cells, but {len(names)} columns",
                    row=row,
                    remedy="give each row one cell for each column",
                )
        columns: dict[str, list[Any]] = {
            _column_of(name): [_cell(name, line[i], row) for row, line in body]
            for i, name in enumerate(names)
        }
        _fill_single_prompts(columns)
        try:
            return Measurements.from_dict(columns)
        except InputError as error:
            if error.row is None:
                raise
            raise InputError(
                error.problem, row=body[error.row][0], field=error.field, remedy=error.remedy
            ) from None


def _lines(text: str) -> list[tuple[int, list[str]]]:
    """Return the lines that are not empty and no comments, with their numbers."""
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        return [
            (reader.line_num, [cell.strip() for cell in line])
            for line in reader
            if line and not line[0].lstrip().startswith("#")
        ]
    except csv.Error as error:
        raise InputError(
            f"not valid CSV: {error}", row=reader.line_num, remedy="check quotes and line ends"
        ) from None


def _check_names(names: list[str], row: int) -> None:
    known = (*COLUMNS, *(name for name in UNITS if name not in COLUMNS))
    for name in names:
        if name not in known:
            remedy = f"{known_names(name, known)}; orsched calibrate --template shows them"
            raise InputError(f"unknown column {name!r}", row=row, field=name, remedy=remedy)
    columns = [_column_of(name) for name in names]
    for name, column in zip(names, columns, strict=True):
        if columns.count(column) > 1:
            raise InputError(
                "the column appears twice", row=row, field=name, remedy="keep one of them"
            )
    for name in REQUIRED:
        if name not in columns:
            remedy = "add it; orsched calibrate --template shows how"
            raise InputError("the column is missing", row=row, field=name, remedy=remedy)


def _column_of(name: str) -> str:
    return "duration_ns" if name in UNITS else name


def _cell(name: str, text: str, row: int) -> str | int:
    if name == "phase":
        return text
    if name in UNITS and name != "duration_ns":
        return _duration_ns(name, text, row)
    if not text and name in OPTIONAL:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise InputError(
            f"{text!r} is not a whole number", row=row, field=name, remedy="give a whole number"
        )
    return int(text)


def _duration_ns(name: str, text: str, row: int) -> int:
    """Return a duration with a fraction as whole nanoseconds, the nearest."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 < value < Decimal(10) ** 12:
        raise InputError(
            f"{text!r} is not a duration above 0",
            row=row,
            field=name,
            remedy="give a duration above 0",
        )
    return round(value.scaleb(UNITS[name]))


def _fill_single_prompts(columns: dict[str, list[Any]]) -> None:
    """Let ``tokens`` and ``longest`` of one prompt stand for each other."""
    size = len(columns["phase"])
    tokens, longest = (columns.setdefault(name, [0] * size) for name in ("tokens", "longest"))
    for row, phase in enumerate(columns["phase"]):
        if phase == MIXED or (phase == PREFILL and columns["count"][row] == 1):
            tokens[row] = tokens[row] or longest[row]
            longest[row] = longest[row] or tokens[row]
