"""Cells of tables: whole numbers, seconds and service classes, as text or as numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.common.units import NS_PER_S
from orsched.data.requests import SERVICE_CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_SECONDS = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_LONGEST = 60
_SUBNANO = 9


def whole_numbers(cells: Sequence[str], field: str) -> list[int]:
    """Return whole numbers from text; raises ``InputError`` with the first wrong row.

    Digits with a sign and an empty fraction (``12``, ``12.0``) are taken, nothing else.
    """
    joined = "".join(cells)
    plain = joined.isascii() and joined.isdigit() and all(cells)
    if plain and max(map(len, cells)) <= _LONGEST:
        return list(map(int, cells))
    return [_whole(cell, row, field) for row, cell in enumerate(cells)]


def _whole(cell: str, row: int, field: str) -> int:
    text = cell.strip()
    if not text:
        raise InputError(
            "the value is missing",
            row=row,
            field=field,
            remedy="fill it in, or leave out a column that is optional",
        )
    if not _WHOLE.fullmatch(text) or len(text) > _LONGEST:
        raise InputError(
            f"{text!r:.60} is not a whole number",
            row=row,
            field=field,
            remedy="give a whole number, in digits",
        )
    return int(text.partition(".")[0])


def nanoseconds(cells: Sequence[str], field: str) -> list[int]:
    """Return nanoseconds from decimal seconds in text, exactly; half a nanosecond goes to even.

    Raises ``InputError`` with the first wrong row.
    """
    joined = "".join(cells).replace(".", "")
    plain = joined.isascii() and joined.isdigit() and all(cells) and "." not in cells
    if plain and max(map(len, cells)) <= _LONGEST:
        try:
            return [_decimal_ns(cell) for cell in cells]
        except ValueError:  # two points in a cell, or digits below a nanosecond
            pass
    return [_seconds(cell, row, field) for row, cell in enumerate(cells)]


def _decimal_ns(cell: str) -> int:
    whole, _, fraction = cell.partition(".")
    if len(fraction) > _SUBNANO:
        raise ValueError
    return int(whole + fraction.ljust(_SUBNANO, "0"))


def _seconds(cell: str, row: int, field: str) -> int:
    text = cell.strip()
    if not text:
        raise InputError("the value is missing", row=row, field=field, remedy="fill it")
    if not _SECONDS.fullmatch(text) or len(text) > _LONGEST:
        raise InputError(
            f"{text!r:.60} is not a number of seconds",
            row=row,
            field=field,
            remedy="write seconds since the start as a decimal number",
        )
    return round(Fraction(text) * NS_PER_S)


def number_ns(value: Any, row: int, field: str) -> int:
    """Return nanoseconds from seconds given as int or float, exactly."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value - value != 0:
        raise InputError(
            f"{value!r:.60} is not a number of seconds",
            row=row,
            field=field,
            remedy="give finite seconds since the start",
        )
    numerator, denominator = value.as_integer_ratio()
    if denominator == 1:
        return numerator * NS_PER_S
    ns, rest = divmod(numerator * NS_PER_S, denominator)
    return ns + (2 * rest > denominator or (2 * rest == denominator and ns % 2))


def class_codes(
    cells: Sequence[Any], field: str = "service_class", classes: Sequence[str] = SERVICE_CLASSES
) -> list[Any]:
    """Return cells with the names of service classes replaced by their codes."""
    codes: dict[Any, Any] = {str(code): code for code in range(len(classes))}
    codes |= {name: code for code, name in enumerate(classes)}
    if set(map(type, cells)) == {str} and codes.keys() >= set(cells):
        return [codes[cell] for cell in cells]
    for row, cell in enumerate(cells):
        if isinstance(cell, str) and cell not in codes:
            raise InputError(
                f"{cell!r:.60} is not a service class",
                row=row,
                field=field,
                remedy=known_names(cell, classes),
            )
    return [codes[cell] if isinstance(cell, str) else cell for cell in cells]
