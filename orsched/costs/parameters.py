"""Reading of named parameters: nothing unknown, nothing missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_parameters(
    values: object, owner: str, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the mapping if it has exactly the required and some of the optional fields.

    Raises ``InputError`` that names the unknown or missing field.
    """
    if not isinstance(values, dict):
        raise InputError(f"{owner} must be an object with named fields", field=owner)
    allowed = [*required, *optional]
    for name in values:
        if name not in allowed:
            raise InputError(
                f"{owner} has no field '{name}'",
                field=str(name),
                remedy=f"known fields: {', '.join(allowed)}",
            )
    for name in required:
        if name not in values:
            raise InputError(f"{owner} needs the field '{name}'", field=name, remedy="add it")
    return dict(values)
