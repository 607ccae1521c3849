"""Data frames of results: pandas is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from orsched.common.errors import InputError, unavailable

if TYPE_CHECKING:
    import pandas as pd


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
