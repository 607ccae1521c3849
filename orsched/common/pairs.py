"""``NAME=VALUE`` pairs, as the command line and method specifications hold them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


def read_pairs(pairs: Iterable[str], field: str) -> dict[str, Any]:
    """Return ``NAME=VALUE`` texts as a dictionary; values are JSON where they can be, else text.

    Raises ``InputError`` that names the field for a pair without name or value, or given twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(
                f"{pair!r} is not NAME=VALUE", field=field, remedy="write a name, = and a value"
            )
        if name in found:
            raise InputError(f"{name} is given twice", field=field, remedy="give it once")
        try:
            found[name] = json.loads(text)
        except (ValueError, RecursionError):
            found[name] = text
    return found


def read_list_of_pairs(text: str, field: str) -> dict[str, Any]:
    """Return pairs with commas between them, such as ``mtbf=3600,mttr=120``, as ``read_pairs``."""
    return read_pairs([part.strip() for part in text.split(",") if part.strip()], field)
