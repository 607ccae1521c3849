"""Reading of named parameters, of which none may be unknown or missing; and of levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.common.units import MAX_TIME_NS, seconds_to_ns

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_parameters(
    values: object, owner: str, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the mapping if it has exactly the required and some of the optional fields."""
    if not isinstance(values, dict):
        raise InputError(f"{owner} must be an object with named fields", field=owner)
    allowed = [*required, *optional]
    for name in values:
        if name not in allowed:
            raise InputError(
                f"{owner} has no field '{name}'",
                field=str(name),
                remedy=known_names(name, allowed, "known fields: "),
            )
    for name in required:
        if name not in values:
            raise InputError(f"{owner} needs the field '{name}'", field=name, remedy="add it")
    return dict(values)


def read_levels(values: object, *, seconds: bool = False) -> tuple[tuple[int, int], ...]:
    """Return pairs of capacity, which grows strictly, and time in ns, which never falls."""
    if not isinstance(values, (list, tuple)) or not values:
        raise InputError(
            "must be a list of at least one pair",
            field="levels",
            remedy="give pairs of capacity in tokens and time in nanoseconds",
        )
    levels: list[tuple[int, int]] = []
    for row, pair in enumerate(values):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise InputError(
                f"{pair!r} is not a pair of capacity in tokens and time in nanoseconds",
                row=row,
                field="levels",
                remedy="give two whole numbers",
            )
        try:
            cap = whole_number(pair[0], "levels", minimum=1)
            time = (
                seconds_to_ns(pair[1], "levels_s")
                if seconds
                else whole_number(pair[1], "levels", maximum=MAX_TIME_NS)
            )
        except InputError as error:
            raise error.located(row=row) from None
        if levels and cap <= levels[-1][0]:
            raise InputError(
                f"the capacity {cap} is not above {levels[-1][0]}, that of the level before",
                row=row,
                field="levels",
                remedy="sort the levels by capacity and drop repeated ones",
            )
        if levels and time < levels[-1][1]:
            raise InputError(
                f"the time {time} ns is below {levels[-1][1]} ns, that of the level before",
                row=row,
                field="levels",
                remedy="drop the smaller, slower level",
            )
        levels.append((cap, time))
    return tuple(levels)
