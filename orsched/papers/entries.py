"""What the registry says of the figures and tables of papers: read from ``<paper>.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, known_names
from orsched.papers.reruns import Claim, Printed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.papers.reruns import Rerun

PAPERS = ("pang", "scls", "ssjf", "mico", "echo")
KINDS = ("figure", "table")
_MOST = 1000  # times its default: how large a whole setting may be


@dataclass(frozen=True)
class Entry:
    """A figure or table of a paper, as the registry has it; see ``orsched.papers``."""

    paper: str
    kind: str
    number: int
    caption: str
    where: str = ""
    skip: str = ""
    rerun: str = ""
    runs: str = ""
    quick: Mapping[str, Any] = field(default_factory=dict)
    full: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    chart: Mapping[str, Any] = field(default_factory=dict)
    printed: tuple[Printed, ...] = ()
    claim: tuple[Claim, ...] = ()

    @property
    def name(self) -> str:
        """The name of the figure: ``pang figure 6``."""
        return f"{self.paper} {self.kind} {self.number}"

    @property
    def state(self) -> str:
        """``drawn``, or why it is not."""
        return self.skip or "drawn"

    def settings(self, full: bool, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a rerun; raises ``InputError`` for one that does not exist."""
        found = {**self.quick, **(self.full if full else {})}
        for name, value in changes.items():
            if name not in found:
                raise InputError(
                    f"{self.name} has no setting {name!r}",
                    field="--set",
                    remedy=known_names(name, found, none="it has no settings"),
                )
            found[name] = _like(found[name], value, name)
        return found

    def reruns(self) -> Rerun:
        """Return what makes its rows."""
        found: Rerun = import_module(f"orsched.papers.{self.paper}").RERUNS[self.runs]
        return found


def _like(known: Any, value: Any, name: str) -> Any:
    """Return a setting's new value, of the type of the old; a single one makes a list."""
    if isinstance(known, list):
        given = value if isinstance(value, (list, tuple)) else str(value).split(",")
        return [_like(known[0], each, name) for each in given]
    most = _MOST * max(1, known) if isinstance(known, int) else 0
    try:
        found = type(known)(value)
        wrong = isinstance(value, bool) != isinstance(known, bool)
        wrong |= isinstance(known, int) and not 0 <= found == float(value) <= most
    except (OverflowError, TypeError, ValueError):
        wrong = True
    if wrong:
        kinds = {int: f"a whole number from 0 to {most:,}", float: "a number"}
        kind = kinds.get(type(known), "a text")
        raise InputError(
            f"{value!r} is not {kind}", field=f"--set {name}", remedy=f"for example {known}"
        )
    return found


@cache
def _document(name: str) -> dict[str, Any]:
    return tomllib.loads(files("orsched.papers").joinpath(f"{name}.toml").read_text("utf-8"))


def title(name: str) -> str:
    """Return authors, title and arXiv number of a paper."""
    return str(_document(_known(name))["title"])


@cache
def setting(name: str) -> dict[str, Any]:
    """Return the constants of a paper's experiments, without their sources."""
    return {key: each["value"] for key, each in _document(_known(name))["setting"].items()}


@cache
def entries(name: str) -> tuple[Entry, ...]:
    """Return the figures, then the tables of a paper; raises ``InputError`` for another name."""
    document = _document(_known(name))
    found = [_entry(name, values) for values in document.get("entry", ())]
    return tuple(sorted(found, key=lambda each: (each.kind, each.number)))


def _known(name: str) -> str:
    if name not in PAPERS:
        raise InputError(
            f"{name!r} is not one of the papers", field="NAME", remedy=known_names(name, PAPERS)
        )
    return name


def _entry(paper: str, values: dict[str, Any]) -> Entry:
    (kind,) = (each for each in KINDS if each in values)
    known = {each.name for each in fields(Entry)}
    given = {name: value for name, value in values.items() if name != kind}
    if unknown := set(given) - known:
        raise ValueError(f"{paper}.toml, {kind} {values[kind]}: {sorted(unknown)}")
    given["printed"] = tuple(Printed(**each) for each in given.get("printed", ()))
    given["claim"] = tuple(Claim(**each) for each in given.get("claim", ()))
    given["columns"] = tuple(given.get("columns", ()))
    return Entry(paper, kind, values[kind], **given)


def find(name: str, figure: int | None = None, table: int | None = None) -> Entry:
    """Return the entry of a figure or table.

    Raises ``InputError`` where the paper has no such figure, or it is not rerun.
    """
    if (figure is None) == (table is None):
        raise InputError("one figure or table is drawn", field="--figure", remedy="give a number")
    kind, number = ("figure", figure) if table is None else ("table", table)
    of_kind = [each for each in entries(name) if each.kind == kind]
    found = next((each for each in of_kind if each.number == number), None)
    if found is None:
        raise InputError(
            f"{name} has no {kind} {number}",
            field=f"--{kind}",
            remedy="it has " + (", ".join(str(each.number) for each in of_kind) or "none"),
        )
    if found.skip:
        drawn = [str(each.number) for each in of_kind if not each.skip]
        raise InputError(
            f"{found.name} is not rerun: {found.skip}",
            field=f"--{kind}",
            remedy=f"{kind}s that are: {', '.join(drawn) or 'none'}",
        )
    return found
