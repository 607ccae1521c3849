"""Code of the user's own, named as ``module:Class`` or ``path/to/own.py:Class``.

Importing a module runs it, whatever it holds. A name that is given on the command line or by a
program is consent to that; a name that stands in a file is not.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.near_names import known_names

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_SUFFIX = ".py"


def is_own(name: str) -> bool:
    """Whether a policy's name is ``module:Class`` or a path, no registered one with parameters."""
    return path_in(name) is not None or ":" in name.partition("+")[0]


def path_in(name: str) -> str | None:
    """Return the path in ``path/to/own.py:Class``, whatever stands behind the class, or None."""
    end = name.find(f"{_SUFFIX}:")
    if end < 0:
        return None
    path = name[: end + len(_SUFFIX)]
    # In vllm+name=x.py:y the text is a parameter's value.
    return None if "=" in path and not os.path.isfile(path) else path


def at_path(name: str, base: str | os.PathLike[str]) -> str:
    """Return a name whose path, if it has one, is taken from a folder, as an absolute path."""
    path = path_in(name)
    if path is None:
        return name
    return os.path.abspath(os.path.join(base, path)) + name[len(path) :]


def class_of(target: str, base: type, what: str = "policy") -> Any:
    """Return the class that ``target`` names; its module is imported, nothing is called.

    Raises:
        InputError: it cannot be imported, or is no class derived from ``base``.
    """
    path = path_in(target)
    if path is None:
        module, _, attribute = target.partition(":")
        found = _imported(module, target, base, what)
    else:
        attribute = target[len(path) + 1 :]
        from orsched.common.own_file import module_at

        found = module_at(path, what)
    try:
        cls = getattr(found, attribute)
    except AttributeError as error:
        raise InputError(
            f"cannot load {target!r}: {error if path is None else _no_class(path, attribute)}",
            field=what,
            remedy=_near(found, attribute, base),
        ) from None
    require_class(cls, base, target, what)
    return cls


def _imported(module: str, target: str, base: type, what: str) -> ModuleType:
    try:
        return import_module(module)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        remedy = f"give module:Class of a class derived from {base.__name__}"
        if os.path.isfile(f"{module}{_SUFFIX}") and "/" in module:
            remedy = f"give {module}{_SUFFIX}:{target.partition(':')[2]}"
        raise InputError(f"cannot load {target!r}: {error}", field=what, remedy=remedy) from None


def _no_class(path: str, name: str) -> str:
    return f"{path} has no class {name!r}" if name else "no class is named"


def _near(module: ModuleType, name: str, base: type) -> str:
    """Return which classes of a module could have been meant."""
    known = [
        each
        for each, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module.__name__
    ]
    if not known:
        return f"it has no class derived from {base.__name__}"
    return known_names(name, known, "it has: ")


def require_class(found: object, base: type, target: str, what: str = "policy") -> None:
    """Raise ``InputError`` unless what a name stands for is a class derived from ``base``."""
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(
            f"{target!r} is not a subclass of {base.__name__}",
            field=what,
            remedy=f"give module:Class of a class derived from {base.__name__}",
        )


def source_of(target: str) -> Path | None:
    """Return the file that holds the module of ``target``, or None; nothing is imported."""
    path = path_in(target)
    if path is not None:
        return Path(path) if os.path.isfile(path) else None
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
