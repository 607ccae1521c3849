"""Code of the user's own, named as ``module:Class``.

Importing a module runs it, whatever it holds. A name that is given on the command line or by a
program is consent to that; a name that stands in a file is not.
"""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


def is_own(name: str) -> bool:
    """Whether a policy's name is ``module:Class``, and not a registered one with parameters."""
    return ":" in name.partition("+")[0]


def class_of(target: str, base: type, what: str = "policy") -> Any:
    """Return the class that ``module:Class`` names; the module is imported, nothing is called.

    Raises:
        InputError: it cannot be imported, or is no class derived from ``base``.
    """
    module, _, attribute = target.partition(":")
    remedy = f"give module:Class of a class derived from {base.__name__}"
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"cannot load {target!r}: {error}", field=what, remedy=remedy) from None
    require_class(found, base, target, what)
    return found


def require_class(found: object, base: type, target: str, what: str = "policy") -> None:
    """Raise ``InputError`` unless what a name stands for is a class derived from ``base``."""
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(
            f"{target!r} is not a subclass of {base.__name__}",
            field=what,
            remedy=f"give module:Class of a class derived from {base.__name__}",
        )


def source_of(target: str) -> Path | None:
    """Return the file that holds the module of ``module:Class``, or None; nothing is imported."""
    name, *parts = target.partition(":")[0].split(".")
    try:
        spec = find_spec(name)
        for part in parts:
            name = f"{name}.{part}"
            places = None if spec is None else spec.submodule_search_locations
            spec = None if places is None else PathFinder.find_spec(name, list(places))
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return Path(spec.origin)


def require_consent(targets: Iterable[str], field: str, allowed: bool) -> None:
    """Raise ``InputError`` that says whose code a file names, unless that is allowed."""
    named = [f"{target} ({source_of(target) or 'not found'})" for target in targets]
    if named and not allowed:
        raise InputError(
            f"the file names code to run: {', '.join(named)}",
            field=field,
            remedy="look at it, then add --allow-code; in Python allow_code=True",
        )
