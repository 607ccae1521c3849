"""Validation of single values: parameters of methods, cost models and runs pass through it."""

from __future__ import annotations

import math
import os
import reprlib
from typing import TYPE_CHECKING, TypeGuard

from orsched.common.errors import InputError
from orsched.common.near_names import known_names

if TYPE_CHECKING:
    from collections.abc import Collection


_LONGEST = 100
"""Characters of a value in a message."""


def printed(value: object) -> str:
    """Return a value as messages show it: long ones shortened, numbers of any size."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no number beyond its limit of digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST else reprlib.repr(value)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is an int or a float; booleans are no numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def require_one_of(value: object, field: str, choices: Collection[str | None]) -> None:
    """Raise ``InputError`` that lists the choices unless a value is one of them."""
    if not (value is None or isinstance(value, str)) or value not in tuple(choices):
        listed = [choice for choice in choices if choice is not None]
        raise InputError(
            f"{printed(value)} is unknown",
            field=field,
            remedy=known_names(value, listed, "one of: "),
        )


def require_bool(value: object, field: str) -> None:
    """Raise ``InputError`` unless a value is true or false."""
    if type(value) is not bool:
        raise InputError("must be true or false", field=field)


def require_number(
    value: object,
    field: str,
    low: float,
    high: float = math.inf,
    *,
    above: bool = False,
    remedy: str | None = None,
) -> float:
    """Return a value that is a number in [low, high], or (low, high]; else raise ``InputError``."""
    if not is_number(value) or not low <= value <= high or (above and value == low):
        first, up = ("above", " up") if above else ("from", "")
        to = "" if high == math.inf else f"{up} to {high:g}"
        raise InputError(
            f"{printed(value)} is not a number {first} {low:g}{to}", field=field, remedy=remedy
        )
    return value


def require_seconds(value: object, field: str, most: float = math.inf) -> float:
    """Return a value that is a number of seconds above 0; else raise ``InputError``."""
    if not is_number(value) or not 0 < value <= most:
        limit = "" if most == math.inf else f", {most:,.0f} at most"
        remedy = f"seconds above 0{limit}"
        raise InputError(f"{printed(value)} is not a time limit", field=field, remedy=remedy)
    return value


def require_suffix(
    path: str | os.PathLike[str], suffixes: Collection[str], field: str | None = None
) -> str:
    """Return the suffix of a file to write; raises ``InputError`` that lists what it may be."""
    name = os.fspath(path)
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in suffixes:
        raise InputError(
            f"{suffix or 'no suffix'!r} is not a suffix of this output",
            file=name,
            field=field,
            remedy=f"name a file that ends in {', '.join(suffixes)}",
        )
    return suffix


def set_whole(
    target: object, *names: str, minimum: int = 0, maximum: int = 2**62, optional: bool = False
) -> None:
    """Make fields of a frozen dataclass whole numbers, and None too if ``optional``."""
    from orsched.common.columns import whole_number  # needs numpy, which help texts do without

    for name in names:
        value = getattr(target, name)
        if value is not None or not optional:
            value = whole_number(value, name, minimum=minimum, maximum=maximum)
            object.__setattr__(target, name, value)
