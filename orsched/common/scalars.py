"""Validation of single values, and limits on what small files may ask for.

Parameters of methods, cost models and runs pass through it. A limit is raised by an environment
variable or a flag.
"""

from __future__ import annotations

import math
import os
import reprlib
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from orsched.common.errors import InputError, known_names

if TYPE_CHECKING:
    from collections.abc import Collection


class Limit(NamedTuple):
    """What is counted, how many are allowed by default, and the variable that says otherwise."""

    what: str
    default: int
    variable: str

    @property
    def flag(self) -> str:
        """The option of the command line that sets the variable."""
        return "--" + self.variable.removeprefix("ORSCHED_").lower().replace("_", "-")

    def value(self) -> int:
        """Return how many are allowed; raises ``InputError`` for a variable that is no number."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        if not (text.isascii() and text.isdigit() and 0 < len(text) <= _MOST_DIGITS):
            raise InputError(
                f"{text!r:.40} is not a whole number",
                field=self.variable,
                remedy=f"the environment variable is {self.default} by default",
            )
        return int(text)

    def require(self, count: int, field: str | None = None, what: str | None = None) -> None:
        """Raise ``InputError`` for more than is allowed; ``what`` is counted where that differs."""
        most = self.value()
        if count > most:
            raise InputError(
                f"{count:,} {what or self.what} are more than the {most:,} that are allowed",
                field=field,
                remedy="if it should be so and memory suffices, set "
                f"{self.variable}={count}, or say orsched {self.flag} {count} COMMAND",
            )


_MOST_DIGITS = 18

ROWS = Limit("rows", 10_000_000, "ORSCHED_MAX_ROWS")
"""Rows of a Parquet file, values of lists in it, and cells and texts of a spreadsheet."""

CELLS = Limit("cells", 100_000, "ORSCHED_MAX_CELLS")
"""Cells of a study, and the values of each of its axes."""

BLOCKS = Limit("blocks of prefix caches", 2_000_000, "ORSCHED_MAX_BLOCKS")
"""Blocks of all workers with a prefix cache; ten that requests fill count as one."""

STEPS = Limit("prefill steps", 5_000_000, "ORSCHED_MAX_STEPS")
"""Steps that prompts take when each holds as many tokens as a worker allows, and decode steps of
policies that decide after a number of rounds. A schedule takes about 600 bytes for each."""

DEFAULT_BUDGET = 2_000_000_000
"""Cells of tables filled for a certificate: a few seconds, several times what any of ours takes."""


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
