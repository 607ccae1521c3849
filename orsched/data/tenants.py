"""Tenants: whose requests they are, as numbers or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import IntColumn, int_column, shown
from orsched.common.errors import InputError
from orsched.common.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike


def tenant_column(
    values: ArrayLike | Sequence[str], names: Iterable[str] | None, n: int
) -> tuple[IntColumn, tuple[str, ...] | None]:
    """Return the numbers of n requests' tenants, and the names that the numbers stand for.

    ``values`` are whole numbers, or texts, which are numbered in the order of their first request.
    With ``names`` the numbers are places in them.

    Raises:
        InputError: a value is neither, or a number is no place in the names.
    """
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    if (
        names is None
        and isinstance(listed, (list, tuple))
        and any(isinstance(value, str) for value in listed)
    ):
        return _numbered(listed, n)
    texts = None if names is None else _names(names)
    remedy = None if texts is None else "numbers are places in tenants, from 0"
    column = int_column(
        listed,
        "tenant",
        maximum=MAX_TOKENS if texts is None else len(texts) - 1,
        length=n,
        remedy=remedy,
    )
    return column, texts


def _numbered(values: Sequence[object], n: int) -> tuple[IntColumn, tuple[str, ...]]:
    places: dict[str, int] = {}
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(
                f"{shown(value)} stands among names",
                row=row,
                field="tenant",
                remedy="give every tenant a name, or every one a number",
            )
        if value not in places:
            _require_name(value, row, "tenant")
            places[value] = len(places)
    column = int_column([places[str(value)] for value in values], "tenant", length=n)
    return column, tuple(places)


def _names(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, (list, tuple)):
        raise InputError("must be a list of texts", field="tenants", remedy="one text per tenant")
    seen: set[str] = set()
    for row, name in enumerate(names):
        _require_name(name, row, "tenants")
        if name in seen:
            raise InputError(
                f"{name!r} appears twice", row=row, field="tenants", remedy="names are unique"
            )
        seen.add(name)
    return tuple(names)


def _require_name(name: object, row: int, field: str) -> None:
    """Refuse what is no name; digits alone would be read as a number in a table."""
    if not isinstance(name, str) or not name or name != name.strip() or name.isdecimal():
        raise InputError(
            f"{shown(name)} is not a name of a tenant",
            row=row,
            field=field,
            remedy="give numbers alone, or texts that are not numbers",
        )
