"""Parameters of methods and generators, read from their code: name, default, meaning."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, known_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def read_pairs(pairs: Iterable[str], field: str) -> dict[str, Any]:
    """Return ``NAME=VALUE`` texts as a dictionary; values are JSON where they can be, else text."""
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


REQUIRED = MISSING
"""The default of a parameter that has none."""

_ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)")


class Parameter(NamedTuple):
    """A parameter; its default is ``REQUIRED`` where it must be given, its meaning may be empty."""

    name: str
    default: Any
    meaning: str

    @property
    def shown(self) -> str:
        """The default as text, as it is written after ``name=``."""
        if self.default is REQUIRED:
            return "(required)"
        if self.default is None:
            return "null"
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


def read_params(kind: Any, parameters: dict[str, Any], known: Any = ()) -> Any:
    """Return a parameter dataclass filled from a dict; ``kind`` checks the values itself."""
    names = [item.name for item in fields(kind)]
    for name in parameters:
        if name not in names:
            raise InputError(
                f"unknown parameter {name!r}",
                field="parameters",
                remedy=known_names(name, [*names, *known], none="it has none"),
            )
    return kind(**parameters)


def of_dataclass(kind: Any) -> tuple[Parameter, ...]:
    """Return the parameters of a dataclass, or of an object of one, whose values are defaults."""
    cls = kind if isinstance(kind, type) else type(kind)
    if not is_dataclass(cls):
        return ()
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        meanings |= meanings_in(base.__doc__, "Attributes")
    return tuple(
        Parameter(
            item.name,
            _default(item) if kind is cls else getattr(kind, item.name),
            meanings.get(item.name, ""),
        )
        for item in fields(cls)
        if item.init
    )


def of_function(function: Callable[..., Any], doc: str | None = None) -> tuple[Parameter, ...]:
    """Return the parameters of a function or a class, as its signature and its Args say."""
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
    meanings = meanings_in(doc or inspect.getdoc(function), "Args")
    return tuple(
        Parameter(
            name,
            REQUIRED if each.default is each.empty else each.default,
            meanings.get(name, ""),
        )
        for name, each in known.items()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    )


def meanings_in(doc: str | None, section: str) -> dict[str, str]:
    """Return the entries of a section of a docstring: name to text, on one line each."""
    lines = inspect.cleandoc(doc or "").splitlines()
    if f"{section}:" not in lines:
        return {}
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines[lines.index(f"{section}:") + 1 :]:
        if not line.startswith(" "):
            break
        entry = _ENTRY.fullmatch(line.strip()) if len(line) - len(line.lstrip()) == 4 else None
        if entry is not None:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        else:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return {name: text.replace("``", "") for name, text in found.items()}


def _default(item: Any) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()
