"""Which figures of papers are rerun, and what all reruns share."""

from __future__ import annotations

import operator
import re
import tomllib
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.resources import files
from numbers import Real
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, known_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


Row = dict[str, Any]
Values = dict[str, float]

HOLDS, FAILS, NOT_COMPARABLE = "HOLDS", "FAILS", "NOT COMPARABLE"


def means(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    """Return a row for each job: what tells the jobs apart, and means of figures over seeds."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for job, figures in done:
        key = tuple((k, v) for k, v in job.items() if k != "seed" and settings.get(k) != v)
        groups.setdefault(key, []).append(figures)
    return [dict(key) | {name: _mean([f[name] for f in found]) for name in found[0]}
            for key, found in groups.items()]  # fmt: skip


def _mean(values: list[Any]) -> Any:
    if all(value == values[0] for value in values):
        return values[0]
    return fmean(values) if all(isinstance(value, Real) for value in values) else None


def _no_values(rows: Sequence[Row]) -> Values:
    """Return no values: a figure without statements needs none."""
    return {}


@dataclass(frozen=True)
class Rerun:
    """What makes the rows of a figure; see ``orsched.papers``.

    Attributes:
        jobs: settings to runs, each a flat dict.
        run: a run to its figures.
        values: rows to named numbers.
        rows: finished runs and settings to rows.
        schedules: settings to an instance and its schedules, for Gantt charts.
        share: the name of another rerun that has the same runs.
    """

    jobs: Callable[[Mapping[str, Any]], list[Row]]
    run: Callable[[Row], Row]
    values: Callable[[list[Row]], Values] = _no_values
    rows: Callable[[Sequence[tuple[Row, Row]], Mapping[str, Any]], list[Row]] = means
    schedules: Callable[[Mapping[str, Any]], tuple[Instance, list[Schedule]]] | None = None
    share: str = ""


@dataclass(frozen=True)
class Printed:
    """A number that the paper prints.

    Attributes:
        value: the name of ours among the values of the rerun.
        printed: a number, or the two ends of a range.
        where: its place in the paper.
    """

    value: str
    printed: float | list[float]
    where: str


@dataclass(frozen=True)
class Claim:
    """A statement of the paper.

    Attributes:
        text: the statement, in our words.
        where: its place in the paper.
        holds: comparisons of values and numbers, joined by ``and``; "": it is not comparable.
        reason: one line on the verdict.
        not_comparable: why nothing here can be compared with it.
    """

    text: str
    where: str
    holds: str = ""
    reason: str = ""
    not_comparable: str = ""


class Verdict(NamedTuple):
    """What a rerun says of a statement: HOLDS, FAILS or NOT COMPARABLE, and one line of reason."""

    verdict: str
    statement: str
    where: str
    reason: str


_COMPARE = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
}  # fmt: skip
_OPERATOR = re.compile(r"\s*(<=|>=|==|<|>)\s*")


def judge(claim: Claim, values: Values) -> Verdict:
    """Return the verdict on a statement: its comparisons, with the values that they compare."""
    if not claim.holds:
        return Verdict(NOT_COMPARABLE, claim.text, claim.where, claim.not_comparable)
    held, missing = True, False
    shown: Values = {}
    for comparison in claim.holds.split(" and "):
        parts = _OPERATOR.split(comparison.strip())
        numbers = [number_of(part, values) for part in parts[::2]]
        shown |= {part: values[part] for part in parts[::2] if part in values}
        known = [number for number in numbers if number is not None]
        if len(known) < len(numbers):
            missing = True
            continue
        pairs = zip(known, parts[1::2], known[1:], strict=False)
        held = held and all(_COMPARE[sign](left, right) for left, sign, right in pairs)
    if missing:
        return Verdict(NOT_COMPARABLE, claim.text, claim.where, "this size has no such rows")
    ours = ", ".join(f"{name.replace('_', ' ')} {short(number)}" for name, number in shown.items())
    reason = "; ".join(text for text in (ours, claim.reason) if text)
    return Verdict(HOLDS if held else FAILS, claim.text, claim.where, reason)


def number_of(text: str, values: Values) -> float | None:
    """Return a value by its name, or a number; None for a value that the rows do not have."""
    try:
        return float(text)
    except ValueError:
        return values.get(text)


def beside(printed: Sequence[Printed], values: Values) -> list[Row]:
    """Return a row for each printed number, ours beside it."""
    return [
        {
            "value": each.value.replace("_", " "),
            "printed": to_text(each.printed),
            "ours": _ours(each.value, values),
            "where": each.where,
        }
        for each in printed
    ]


def _ours(name: str, values: Values) -> str:
    """Return a value, or a range of which both ends have the name."""
    ends = [name] if name in values else [f"{name}_low", f"{name}_high"]
    return " to ".join(short(values[end]) for end in ends if end in values) or "-"


def to_text(printed: float | list[float]) -> str:
    """Return a printed number or range."""
    return " to ".join(f"{x:,}" for x in (printed if isinstance(printed, list) else [printed]))


def short(number: float) -> str:
    """Return a number with about four digits."""
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4g}"


def change(ours: float, other: float) -> float:
    """Return the change against another value, in per cent."""
    return 100 * (ours - other) / other


def pick(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values.

    >>> pick([{"rate": 5, "mean_s": 2.0}, {"rate": 9, "mean_s": 3.0}], rate=9)
    [{'rate': 9, 'mean_s': 3.0}]
    """
    return [row for row in rows if all(row.get(name) == v for name, v in wanted.items())]


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
