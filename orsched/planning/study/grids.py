"""Lists and tables of a study's file as what is to be run: items, and grids of values."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.limits import CELLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def grid(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the combinations of a table's values; a list is a grid, all else one value.

    A value that is itself a list stands in a list of its own: ``[[1, 128]]``. Combinations are
    counted before the first one is made.
    """
    for name, value in table.items():
        if value == []:
            raise InputError(
                "an empty list has no value to run",
                field=name,
                remedy="give at least one value, or leave the key out",
            )
        _require_plain(value, name)
    axes = [value if isinstance(value, list) else [value] for value in table.values()]
    CELLS.require(prod(map(len, axes)), max(table, key=lambda name: _size(table[name]), default=""))
    for values in product(*axes):
        yield dict(zip(table, values, strict=True))


def _size(value: object) -> int:
    return len(value) if isinstance(value, list) else 1


def _require_plain(value: object, field: str) -> None:
    """Raise ``InputError`` for what JSON cannot hold: dates of TOML, NaN and infinity."""
    if isinstance(value, (list, tuple)):
        for item in value:
            _require_plain(item, field)
    elif isinstance(value, dict):
        for item in value.values():
            _require_plain(item, field)
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InputError(
                f"{value} is not a finite number", field=field, remedy="give a finite number"
            )
    elif not (value is None or isinstance(value, (str, int))):
        raise InputError(
            f"{value!r} is not a number, a text or a truth value",
            field=field,
            remedy="give one of these",
        )


def entry(item: object, field: str, example: str) -> dict[str, Any]:
    """Return an entry of an axis that is no name; raises ``InputError`` unless it is a table."""
    if not isinstance(item, dict):
        raise InputError(
            f"{item!r} is neither a name nor a table",
            field=field,
            remedy=f"give a name in quotes, or {example}",
        )
    return item


def options(value: object) -> list[Any]:
    """Return the values of an option that a list makes a grid of."""
    return value if isinstance(value, list) else [value]


def listed(value: object, field: str) -> Iterable[Any]:
    """Return the items of an axis; one alone may stand without its list."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if not items:
        raise InputError("holds nothing to run", field=field, remedy="leave it out, or fill it")
    return items
