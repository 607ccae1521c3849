"""Data frames of requests: in and out of pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError, unavailable
from orsched.data.requests import SERVICE_CLASSES, Prefixes, Requests
from orsched.files.cells import class_codes, number_ns
from orsched.files.csv_requests import COLUMNS, SECONDS, requests_of, require_columns
from orsched.files.quantile_columns import quantile_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from orsched.common.columns import IntColumn

PREFIX_COLUMNS = ("prefix_ids", "prefix_block_tokens")


def requests_from_frame(frame: pd.DataFrame, classes: Sequence[str] = SERVICE_CLASSES) -> Requests:
    """Return the requests of a data frame, one row each; the index plays no part.

    Columns and ``classes`` as in ``read_requests_csv``, and ``prefix_ids`` (a list of whole numbers
    in each row) with ``prefix_block_tokens`` (the same number in each row).

    Raises:
        InputError: a column is unknown or missing, or a value is wrong; rows count from 0.
    """
    require_frame(frame)
    require_columns([name for name in frame.columns if name not in PREFIX_COLUMNS])
    for name in PREFIX_COLUMNS:
        if list(frame.columns).count(name) > 1:
            raise InputError("the column appears twice", field=name, remedy="keep one of them")
    columns = {str(name): _values(frame[name], str(name)) for name in frame.columns}
    prefixes = _prefixes(columns)
    for name in ("service_class", "class"):
        if isinstance(columns.get(name), list):
            columns[name] = class_codes(columns[name], name, classes)
    for name in ("arrival_s", "deadline_s"):
        if name in columns:
            seconds = frame[name].tolist()
            columns[name] = [number_ns(s, row, name) for row, s in enumerate(seconds)]
    return requests_of(columns, prefixes)


def require_frame(frame: object) -> None:
    """Raise ``InputError`` for what is not a data frame."""
    if not isinstance(frame, _pandas().DataFrame):
        raise InputError(f"a {type(frame).__name__} is not a data frame", remedy="give a DataFrame")


def requests_to_frame(requests: Requests) -> pd.DataFrame:
    """Return requests as a data frame, one row each; times in nanoseconds.

    Columns that the requests do not have are left out; ``service_class`` holds the codes.
    """
    pandas = _pandas()
    columns: dict[str, Any] = {} if requests.ids is None else {"id": list(requests.ids)}
    for name in (name for name in COLUMNS[1:] if name not in SECONDS):
        column: IntColumn | None = getattr(requests, name, None)
        if column is not None:
            columns[name] = column.copy()
    if requests.weights is not None:
        columns["weight"] = requests.weights.copy()
    columns |= quantile_columns(requests)
    if requests.tenants is not None:
        columns["tenant"] = [requests.tenants[each] for each in columns["tenant"].tolist()]
    if requests.prefixes is not None:
        cuts = requests.prefixes.offsets[1:-1]
        parts = np.split(requests.prefixes.ids, cuts) if len(requests) else []
        columns["prefix_ids"] = pandas.Series([part.tolist() for part in parts], dtype=object)
        columns["prefix_block_tokens"] = np.full(len(requests), requests.prefixes.block_tokens)
    frame: pd.DataFrame = pandas.DataFrame(columns)
    return frame


def _values(series: Any, name: str) -> Any:
    """Return a column without missing values, as an array of whole numbers or a list."""
    missing = series.isna().to_numpy()
    if missing.any():
        raise InputError(
            "the value is missing",
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


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise unavailable(error, "data frames need pandas: pip install pandas") from None
    return pandas
