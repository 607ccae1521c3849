"""Validation of columns: the door through which all array input enters."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

IntColumn = np.ndarray[Any, np.dtype[np.int64]]


def int_column(
    values: ArrayLike,
    field: str,
    *,
    minimum: int = 0,
    maximum: int = 2**62,
    length: int | None = None,
    remedy: str | None = None,
) -> IntColumn:
    """Return a read-only int64 copy of a one-dimensional column of whole numbers.

    Whole-numbered floats are accepted; NaN, infinity, fractions, booleans, text and values
    outside [minimum, maximum] raise ``InputError`` with the first wrong row.
    """
    raw = _as_array(values, field)
    if raw.ndim != 1:
        raise InputError(
            f"expected one dimension, got {raw.ndim}", field=field, remedy="give a list of numbers"
        )
    if length is not None and len(raw) != length:
        raise InputError(
            f"{len(raw)} values where {length} are expected",
            field=field,
            remedy="all columns have one value per row",
        )
    if len(raw) == 0:
        column = np.empty(0, dtype=np.int64)
    else:
        column = _whole_numbers(raw, values, field, remedy)
    _first_outside(column, field, minimum, maximum, remedy)
    column.setflags(write=False)
    return column


def exact_sum(column: IntColumn) -> int:
    """Return the sum of a column without overflow: client-times of long schedules exceed 64 bits.

    Exact for up to 2**31 rows: upper and lower halves of the numbers are added apart.
    """
    return (int((column >> 32).sum()) << 32) + int((column & 0xFFFFFFFF).sum())


def _as_array(values: ArrayLike, field: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"not a column of numbers: {error}", field=field, remedy="give one number per row"
        ) from None


def _whole_numbers(
    raw: NDArray[Any], values: ArrayLike, field: str, remedy: str | None
) -> IntColumn:
    if raw.dtype.kind == "i" or (raw.dtype.kind == "u" and raw.dtype.itemsize < 8):
        if isinstance(values, (list, tuple)):  # numpy reads True as 1 among integers
            _reject_booleans(values, field)
        return raw.astype(np.int64)
    if raw.dtype.kind == "f":
        if isinstance(values, (list, tuple)):
            _reject_booleans(values, field)
        return _from_floats(raw.astype(np.float64), field, remedy)
    if raw.dtype.kind in "mM":  # as Python objects, nanoseconds would turn into whole numbers
        raise InputError(
            f"a column of type {raw.dtype}", row=0, field=field, remedy="give whole numbers"
        )
    # Objects, text, booleans and unsigned 64 bits: find the row and say what is wrong with it.
    items = list(values) if isinstance(values, (list, tuple)) else raw.tolist()
    for row, item in enumerate(items):
        problem = _item_problem(item)
        if problem is not None:
            raise InputError(problem, row=row, field=field, remedy=remedy or "give whole numbers")
    return np.array([int(item) for item in items], dtype=np.int64)


def _reject_booleans(values: Sequence[Any], field: str) -> None:
    for row, item in enumerate(values):
        if item is True or item is False:
            raise InputError(
                f"{item} is not a whole number", row=row, field=field, remedy="give whole numbers"
            )


def _from_floats(raw: NDArray[Any], field: str, remedy: str | None) -> IntColumn:
    bad = ~np.isfinite(raw) | (raw != np.floor(raw)) | (np.abs(raw) > 2.0**53)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{raw[row]} is not a whole number",
            row=row,
            field=field,
            remedy=remedy or "give whole numbers",
        )
    return raw.astype(np.int64)


def _item_problem(item: object) -> str | None:
    if item is None:
        return "the value is missing"
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        if -(2**63) <= int(item) < 2**63:
            return None
        return f"a whole number of {int(item).bit_length()} bits does not fit into 64 bits"
    if isinstance(item, (float, np.floating)):
        if float(item).is_integer() and abs(float(item)) <= 2**53:
            return None
        return f"{item} is not a whole number"
    return f"{shown(item)} is not a whole number"


def shown(value: object) -> str:
    """Return a short text for any value; Python prints no number beyond its limit of digits."""
    try:
        return reprlib.repr(value)
    except ValueError:
        return f"a value of type {type(value).__name__}"


def _first_outside(
    column: IntColumn, field: str, minimum: int, maximum: int, remedy: str | None
) -> None:
    bad = (column < minimum) | (column > maximum)
    if bad.any():
        row = int(np.argmax(bad))
        value = int(column[row])
        limit = f"below {minimum}" if value < minimum else f"above {maximum}"
        allowed = f"values from {minimum} to {maximum}"
        raise InputError(f"{value} is {limit}", row=row, field=field, remedy=remedy or allowed)


def whole_number(
    value: object, field: str, *, minimum: int = 0, maximum: int = 2**62, remedy: str | None = None
) -> int:
    """Return a scalar as int; raises ``InputError`` as ``int_column`` does."""
    problem = _item_problem(value)
    if problem is not None:
        raise InputError(problem, field=field, remedy=remedy or "give a whole number")
    number = int(value)  # type: ignore[call-overload]
    if not minimum <= number <= maximum:
        limit = f"below {minimum}" if number < minimum else f"above {maximum}"
        allowed = f"values from {minimum} to {maximum}"
        raise InputError(f"{number} is {limit}", field=field, remedy=remedy or allowed)
    return int(number)
