"""Names of a package that are imported at first use (PEP 562)."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # the working folder is on the path still: nothing more is imported here
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def lazy_names(package: str, home: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package; ``home``: module -> the public names from it."""
    module_of = {name: module for module, names in home.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}{_near(name, module_of)}"
            )
        module = import_module(module_of[name])
        if module.__name__ == f"{package}.{name}":  # one that can be called, see below
            return module
        value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get


def _near(name: str, known: Mapping[str, str]) -> str:
    """Return the hint at the public name that is nearest, for a message."""
    if name.startswith("_"):
        return ""
    near = import_module("orsched.common.errors").nearest(name, known)
    return f", did you mean {near[0]!r}?" if near else ""


def callable_module(name: str) -> None:
    """Let a module be called as its function of the same name, which it hides once imported."""
    module = sys.modules[name]
    kind, function = type(module), name.rpartition(".")[2]

    class Callable(kind):  # type: ignore[valid-type,misc]
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return self.__dict__[function](*arguments, **options)

    module.__class__ = Callable
