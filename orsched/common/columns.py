"""Validation of columns, through which all array input passes, and data frames of results."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from orsched.common.errors import InputError, unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import ArrayLike, NDArray


class HasPandas(Protocol):
    """What can be made a data frame."""

    def to_pandas(self) -> Any:
        """Return it as one."""


def frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a data frame of columns by name, in their order.

    >>> frame({"job": range(2), "size": [5, 3]}).to_dict("records")
    [{'job': 0, 'size': 5}, {'job': 1, 'size': 3}]

    Raises ``MissingDependencyError`` without pandas.
    """
    plain = {k: v if hasattr(v, "dtype") else list(v) for k, v in columns.items()}
    found: pd.DataFrame = required_pandas().DataFrame(plain)
    return found


def is_frame(source: object) -> bool:
    """Whether a source is a data frame of pandas."""
    return type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns")


def as_frame(source: object) -> pd.DataFrame:
    """Return the data frame of what holds rows: a frame, columns by name, records, which are
    mappings, or an object with ``to_pandas``: data sets of Hugging Face, tables of Arrow, Polars.

    >>> as_frame([{"prompt_tokens": 5, "output_tokens": 2}]).shape
    (1, 2)

    Raises ``InputError`` for anything else, ``MissingDependencyError`` without pandas.
    """
    if is_frame(source):
        return source  # type: ignore[return-value]
    if hasattr(source, "to_pandas"):
        found = source.to_pandas()
        if is_frame(found):
            return found  # type: ignore[no-any-return]
    elif isinstance(source, Mapping):
        return _of_columns(source)
    elif isinstance(source, Iterable) and not isinstance(source, (str, bytes)):
        rows = list(source)
        wrong = next((k for k, row in enumerate(rows) if not isinstance(row, Mapping)), None)
        if wrong is None:
            return frame({name: [row.get(name) for row in rows] for name in _names(rows)})
        raise InputError(
            f"{type(rows[wrong]).__name__} is not a record", row=wrong, field="source",
            remedy='give a list of {"prompt_tokens": 12, "output_tokens": 34}',
        )  # fmt: skip
    raise InputError(
        f"{type(source).__name__} holds no requests",
        field="source",
        remedy='orsched.load("pang-100x20"), orsched.load("mine.csv", clients=64), a data frame, '
        "a dict of columns or a list of records",
    )


def _names(rows: list[Mapping[Any, Any]]) -> list[str]:
    """Return the names in records, in the order in which they come."""
    return list(dict.fromkeys(str(name) for row in rows for name in row))


def _of_columns(columns: Mapping[Any, Any]) -> pd.DataFrame:
    sizes = {}
    for name, values in columns.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
            raise InputError(
                f"{type(values).__name__} is not a column", field=str(name), remedy="give a list"
            )
        sizes[name] = len(values)
    if len(set(sizes.values())) > 1:
        first = next(iter(sizes))
        other = next(name for name in sizes if sizes[name] != sizes[first])
        raise InputError(
            f"{sizes[other]} values where {first!s} has {sizes[first]}",
            field=str(other),
            remedy="all columns have one value for each request",
        )
    return frame({str(name): values for name, values in columns.items()})


def required_pandas() -> Any:
    """Return pandas; ``MissingDependencyError`` without it."""
    try:
        import pandas as pd
    except ImportError as error:
        raise unavailable(error, "data frames need pandas: pip install pandas") from None
    return pd


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
