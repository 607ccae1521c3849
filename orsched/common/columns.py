"""Validation of columns: all array input passes through it."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError

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
    below: str | None = None,
) -> IntColumn:
    """Return a read-only int64 copy of a one-dimensional column of whole numbers.

    Whole-numbered floats are accepted; the first other row raises ``InputError``. ``remedy`` is for
    any of them, ``below`` for values below the minimum alone.
    """
    raw = _as_array(values, field)
    if raw is not None and raw.ndim != 1:
        raise _dimensions(raw.ndim, field)
    count = len(values) if raw is None else len(raw)  # type: ignore[arg-type]
    if length is not None and count != length:
        raise InputError(
            f"{count} values where {length} are expected",
            field=field,
            remedy="all columns have one value per row",
        )
    if raw is None:
        column = _from_items(values, field, remedy)  # type: ignore[arg-type]
    else:
        column = _whole_numbers(raw, field, remedy) if count else np.empty(0, dtype=np.int64)
    _first_outside(column, field, minimum, maximum, remedy, below)
    column.setflags(write=False)
    return column


def exact_sum(column: IntColumn) -> int:
    """Return the exact sum of a column of up to 2**31 rows, which may exceed 64 bits, by halves."""
    return (int((column >> 32).sum()) << 32) + int((column & 0xFFFFFFFF).sum())


def _as_array(values: ArrayLike, field: str) -> NDArray[Any] | None:
    """Return a column as an array, or None for a list that is to be read item by item.

    numpy makes one type of all items: a long text among numbers would take its length for each of
    them, a float would round large whole numbers, and True would read as 1.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        row = int(np.argmax(np.ma.getmaskarray(values)))
        raise InputError("the value is masked", row=row, field=field, remedy="fill it in")
    try:
        if not isinstance(values, (list, tuple)):
            return np.asarray(values)
        kinds = set(map(type, values))
        if kinds <= {int, np.int64}:
            return np.array(values, dtype=np.int64)
        if kinds == {float}:
            return np.array(values, dtype=np.float64)
    except OverflowError:
        return None
    except (ValueError, TypeError) as error:
        raise InputError(
            f"not a column of numbers: {error}", field=field, remedy="give one number per row"
        ) from None
    if kinds <= {list, tuple}:
        raise _dimensions(2, field)
    return None


def _dimensions(found: int, field: str) -> InputError:
    return InputError(
        f"expected one dimension, got {found}", field=field, remedy="give a list of numbers"
    )


def _whole_numbers(raw: NDArray[Any], field: str, remedy: str | None) -> IntColumn:
    if raw.dtype.kind == "i" or (raw.dtype.kind == "u" and raw.dtype.itemsize < 8):
        return raw.astype(np.int64)
    if raw.dtype.kind == "f":
        return _from_floats(raw.astype(np.float64), field, remedy)
    if raw.dtype.kind in "mM":  # as Python objects, nanoseconds would turn into whole numbers
        raise InputError(
            f"a column of type {raw.dtype}", row=0, field=field, remedy="give whole numbers"
        )
    # Objects, text, booleans and unsigned 64 bits.
    return _from_items(raw.tolist(), field, remedy)


def _from_items(items: Sequence[Any], field: str, remedy: str | None) -> IntColumn:
    """Return whole numbers of any types, each read exactly; names the first that is none."""
    for row, item in enumerate(items):
        problem = _item_problem(item)
        if problem is not None:
            raise InputError(problem, row=row, field=field, remedy=remedy or "give whole numbers")
    return np.array([int(item) for item in items], dtype=np.int64)


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
    column: IntColumn,
    field: str,
    minimum: int,
    maximum: int,
    remedy: str | None,
    below: str | None,
) -> None:
    bad = (column < minimum) | (column > maximum)
    if bad.any():
        row = int(np.argmax(bad))
        value = int(column[row])
        limit = f"below {minimum}" if value < minimum else f"above {maximum}"
        fitting = (value < minimum and below) or remedy
        allowed = f"give values from {minimum} to {maximum}"
        raise InputError(f"{value} is {limit}", row=row, field=field, remedy=fitting or allowed)


def whole_number(
    value: object, field: str, *, minimum: int = 0, maximum: int = 2**62, remedy: str | None = None
) -> int:
    """Return a scalar as int; raises ``InputError`` as ``int_column`` does."""
    problem = _item_problem(value)
    if problem is not None:
        allowed = f"give a whole number from {minimum} to {maximum}"
        raise InputError(problem, field=field, remedy=remedy or allowed)
    number = int(value)  # type: ignore[call-overload]
    if not minimum <= number <= maximum:
        limit = f"below {minimum}" if number < minimum else f"above {maximum}"
        allowed = f"give values from {minimum} to {maximum}"
        raise InputError(f"{number} is {limit}", field=field, remedy=remedy or allowed)
    return int(number)


def read_only(column: IntColumn) -> memoryview:
    """Return a view that indexes to Python integers and cannot be written through."""
    return memoryview(column).toreadonly()  # type: ignore[arg-type]
