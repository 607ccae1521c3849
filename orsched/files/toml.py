"""TOML files: every mistake is named, and a key without use is refused."""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.files.text import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Path = str | os.PathLike[str]


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raises ``InputError`` with the line of a mistake."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"is not TOML: {error}", file=os.fspath(path), remedy="write texts in quotes"
        ) from None
    except ValueError as error:  # Python converts no digits beyond its limit
        raise InputError(
            f"a number cannot be read: {error}",
            file=os.fspath(path),
            remedy="numbers have at most 64 bits",
        ) from None
    except RecursionError:
        raise InputError(
            "nested too deeply", file=os.fspath(path), remedy="write fewer levels"
        ) from None


def require_table(value: object, field: str, known: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a table; raises ``InputError`` for another type, or that names an unknown key."""
    if not isinstance(value, dict):
        raise InputError(f"{value!r} is not a table", field=field, remedy=f"write [{field}]")
    if known is not None:
        require_known(value, field, known)
    return value


def require_known(table: Mapping[str, Any], where: str, known: Iterable[str]) -> None:
    """Raise ``InputError`` for the first key of a table that is none of those known."""
    names = list(known)
    for key in table:
        if key not in names:
            raise InputError(
                f"there is no key {key!r} here",
                field=f"{where}.{key}" if where else str(key),
                remedy=known_names(key, names),
            )
