"""The one parser of a table's cells: texts to a column, exact; errors have the cell's index."""

from __future__ import annotations

import json
import re
from datetime import date, datetime, time
from decimal import ROUND_HALF_EVEN, Context, Decimal, DecimalException
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import known_names
from orsched.common.units import (
    MAX_TIME,
    MAX_TIME_NS,
    MAX_TOKENS,
    NEVER,
    NS_PER_MS,
    NS_PER_S,
    NS_PER_US,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

_WHOLE = re.compile(r"\s*([+-]?\d+)(?:\.0*)?\s*", re.ASCII)
_TIMESTAMP = re.compile(
    r"\s*(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d):([0-5]\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?\s*", re.ASCII
)
_COMMA = re.compile(r"[+-]?[0-9]{1,15}(?:,[0-9]{1,15})+", re.ASCII)
_GROUPS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+", re.ASCII)
_EXACT = Context(prec=60)
_PLAIN_DIGITS = 18
_UNITS = {
    1: "nanoseconds", NS_PER_US: "microseconds", NS_PER_MS: "milliseconds", NS_PER_S: "seconds",
}  # fmt: skip
MISSING = "the value is missing"


class CellError(ValueError):
    """A cell is wrong; ``index`` counts from 0 within the column."""

    def __init__(self, index: int, problem: str, remedy: str | None = None) -> None:
        super().__init__(problem)
        self.index = index
        self.problem = problem
        self.remedy = remedy


def whole_numbers(
    cells: Sequence[str],
    maximum: int = MAX_TOKENS,
    remedy: str = "give a whole number, 0 or more",
    minimum: int = 0,
) -> NDArray[np.int64]:
    """Read whole numbers from ``minimum`` to ``maximum``; ``374.0`` counts as whole."""
    try:
        joined = "".join(cells)
        if "_" in joined or not joined.isascii():
            raise ValueError("Python also reads groups of digits, and the digits of all scripts")
        column = np.array(list(map(int, cells)), dtype=np.int64)
    except (ValueError, OverflowError):
        column = np.array([_whole(i, cell, remedy) for i, cell in enumerate(cells)], np.int64)
    wrong = (column < minimum) | (column > maximum)
    if wrong.any():
        index = int(np.argmax(wrong))
        least = "negative" if column[index] < 0 else f"below {minimum}"
        side = least if column[index] < minimum else f"above {maximum}"
        fitting = remedy if side == least else f"give a whole number of at most {maximum}"
        raise CellError(index, f"{column[index]} is {side}", fitting)
    return column


def _whole(index: int, cell: str, remedy: str) -> int:
    match = _WHOLE.fullmatch(cell)
    if match is None:
        raise CellError(index, *no_number(cell, "is not a whole number", remedy, ""))
    if len(match[1]) > 19 or abs(int(match[1])) >= 2**63:
        raise CellError(
            index, f"{_shown(cell)} does not fit into 64 bits", "give a number of fewer digits"
        )
    return int(match[1])


def seconds(
    cells: Sequence[str],
    unit_ns: int = NS_PER_S,
    what: str = "is not a number",
    remedy: str | None = None,
) -> NDArray[np.int64]:
    """Read decimal times, in units of so many nanoseconds, as nanoseconds, rounded once."""
    joined = "".join(cells).replace(".", "")
    if unit_ns == NS_PER_S and joined.isascii() and joined.isdigit():
        try:
            plain = [_plain_ns(cell) for cell in cells]
            if max(plain) <= MAX_TIME_NS:
                return np.array(plain, np.int64)
        except ValueError:  # an empty cell, two points in one, or digits below a nanosecond
            pass
    return np.array(
        [_time(i, cell, unit_ns, what, remedy) for i, cell in enumerate(cells)], np.int64
    )


def _plain_ns(cell: str) -> int:
    whole, _, fraction = cell.partition(".")
    if not 0 < len(whole) <= _PLAIN_DIGITS or len(fraction) > 9:
        raise ValueError
    return int(whole + fraction.ljust(9, "0"))


def _time(index: int, cell: str, unit_ns: int, what: str, remedy: str | None) -> int:
    fitting = remedy or f"give {_UNITS.get(unit_ns, 'times')}, 0 or more, of at most {MAX_TIME}"
    value = number(index, cell, what, fitting)
    try:
        return time_ns(value, unit_ns)
    except ValueError as error:
        raise CellError(index, str(error), fitting) from None


def number(index: int, cell: str, what: str, remedy: str) -> Decimal:
    """Read a decimal number, or infinity or NaN, exactly."""
    try:
        if "_" in cell or not cell.isascii():  # which Decimal reads
            raise DecimalException
        return Decimal(cell)
    except DecimalException:
        raise CellError(index, *no_number(cell, what, remedy)) from None


def no_number(cell: str, what: str, remedy: str, mark: str = ".") -> tuple[str, str]:
    """Return what to say of a cell that is not a number, and the remedy: it may have a comma.

    A comma stands for a decimal point or between groups of three digits, and one comma before three
    digits for either. ``mark`` is empty where only whole numbers are read.
    """
    text = cell.strip()
    if not text:
        return MISSING, remedy
    if not _COMMA.fullmatch(text):
        return f"{_shown(cell)} {what}", remedy
    joined = f"{text.replace(',', '')} without commas"
    point = f"{text.replace(',', '.')} with a decimal point" if text.count(",") == 1 else ""
    if not _GROUPS.fullmatch(text):
        say = f"write {point}" if mark and point else "write a number without commas"
        return f"{_shown(cell)} {what}: it has a comma", say if mark else remedy
    if mark and point:
        joined = f"{point}, or {joined} if the comma separates thousands"
    return f"{_shown(cell)} {what}: it has a comma", f"write {joined}"


def time_ns(value: Decimal | int, unit_ns: int) -> int:
    """Return a time in units of ``unit_ns`` nanoseconds in whole nanoseconds, rounded once.

    Raises ``ValueError`` with the problem for times that are not finite, negative or too large.
    """
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError(f"{value} is not a finite time")
    if number < 0:
        raise ValueError(f"{value} is negative")
    if number and number.adjusted() > 18:
        raise ValueError(f"{number:.3e} is too large for a time")
    ns = int(_EXACT.multiply(number, Decimal(unit_ns)).to_integral_value(ROUND_HALF_EVEN))
    if ns > MAX_TIME_NS:
        raise ValueError(f"{value} is too large for a time")
    return ns


def timestamps(cells: Sequence[str]) -> NDArray[np.int64]:
    """Read ``2023-11-16 18:17:03.9799600`` as exact nanoseconds since 1970.

    Up to nine decimals; a ``T`` may stand for the blank; an offset (``+00:00``, ``Z``) may
    follow, and times without one count as UTC.
    """
    minutes: dict[tuple[str, str, str], int] = {}
    column = np.empty(len(cells), np.int64)
    for index, cell in enumerate(cells):
        match = _TIMESTAMP.fullmatch(cell)
        if match is None:
            raise _no_timestamp(index, cell)
        day, minute, second, fraction, offset = match.groups(default="")
        key = (day, minute, offset)
        start = minutes.get(key)
        if start is None:
            start = minutes[key] = _minute_start(index, cell, day, minute, offset)
        ns = int(fraction.ljust(9, "0"))
        column[index] = (start + int(second)) * NS_PER_S + ns
    return column


def _minute_start(index: int, cell: str, day: str, minute: str, offset: str) -> int:
    try:
        start = datetime.fromisoformat(f"{day}T{minute}:00{offset or 'Z'}")
    except ValueError:
        raise _no_timestamp(index, cell) from None
    seconds_since_1970 = int(start.timestamp())
    if abs(seconds_since_1970) > NEVER // NS_PER_S - 60:
        raise CellError(index, f"{_shown(cell)} is too far from 1970", "check the year")
    return seconds_since_1970


def _no_timestamp(index: int, cell: str) -> CellError:
    if not cell.strip():
        return CellError(index, MISSING, "every request needs its time")
    return CellError(
        index,
        f"{_shown(cell)} is not a timestamp",
        "times look like 2023-11-16 18:17:03.9799600; a spreadsheet may have rewritten them, so "
        "take the original file",
    )


def names(cells: Sequence[str]) -> list[str]:
    """Read names, which must not be empty."""
    stripped = [cell.strip() for cell in cells]
    if "" in stripped:
        raise CellError(stripped.index(""), MISSING, "every request needs its name")
    return stripped


def service_classes(cells: Sequence[Any], classes: Sequence[str]) -> list[Any]:
    """Read names of service classes as their places; what is no text, a place, stays."""
    codes: dict[Any, Any] = {str(code): code for code in range(len(classes))}
    codes |= {name: code for code, name in enumerate(classes)}
    if set(map(type, cells)) == {str} and codes.keys() >= set(cells):
        return [codes[cell] for cell in cells]
    for row, cell in enumerate(cells):
        if isinstance(cell, str) and cell not in codes:
            remedy = f"{known_names(cell, classes)}; --class NAME:LIMITS (classes=) adds one"
            raise CellError(row, f"{cell!r:.60} is not a service class", remedy)
    return [codes[cell] if isinstance(cell, str) else cell for cell in cells]


def texts(values: Iterable[Any], *, quoted: bool = True) -> list[str]:
    """Return values of JSON, a sheet or a frame as a table's cells: no ``.0``, dates in ISO form.

    With ``quoted`` numbers may stand in texts.
    """
    return [_text(index, value, quoted) for index, value in enumerate(values)]


def _text(index: int, value: Any, quoted: bool) -> str:
    if value is None:
        remedy = "fill it in, or leave out a column that is optional"
        raise CellError(index, MISSING, remedy)
    wanted = "a number or a text" if quoted else "a number"
    if isinstance(value, (bool, list, dict)) or (isinstance(value, str) and not quoted):
        shown = json.dumps(value, ensure_ascii=False, default=str)[:40]
        raise CellError(index, f"{shown} is not {wanted}", f"give {wanted}")
    try:
        return text_of(value)
    except ValueError:  # Python writes no digits beyond its limit
        raise CellError(index, "is too large for a number", "give at most 64 bits") from None


def text_of(value: Any) -> str:
    """Return a value as CSV would have it, nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, Decimal) and abs(value.adjusted()) < _EXACT.prec:
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value)


def _shown(cell: str) -> str:
    """Return the cell as a message shows it: quoted and not too long."""
    text = cell.strip()
    return repr(text if len(text) <= 40 else text[:37] + "...")
