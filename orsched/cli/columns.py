"""Which columns of results are printed, in which order rows stand, and which of them is best."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from orsched.cli.machine_output import say_machine
from orsched.cli.output import cell_text, print_rows, printable, table
from orsched.errors import InputError
from orsched.near_names import known_names
from orsched.result import ROW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orsched.instance import Instance
    from orsched.objectives import Objective
    from orsched.result import Result

    F = TypeVar("F", bound=Callable[..., Any])

    Row = dict[str, Any]

WIDTH = 100
"""Most characters of a line in a pipe or file, as far as columns can be left out for it."""

_NARROW = 80
"""Most characters of a line where methods failed: their reasons are cut for it."""

_NARROWEST = 40
"""A terminal that says it is narrower is taken to be so wide."""

_REASON = 24
"""Characters of a failed method's reason that are kept, however narrow the terminal is."""

_LEAST = 5
"""So many columns are never left out."""

_AT_ONCE = (
    "seed", "method", "information", "seeds", "makespan_s", "gap", "bound_s", "slot_utilization",
    "tokens_per_s", "jct_mean_bound_s", "ttft_mean_bound_s",
)  # fmt: skip
_OVER_TIME = (
    "seed", "method", "seeds", "slo_attainment", "goodput_per_s", "ttft_mean_s",
    "ttft_mean_bound_s", "ttft_p99_s", "tpot_p99_s", "jct_mean_s", "jct_mean_bound_s", "makespan_s",
    "information",
)  # fmt: skip
"""Columns of tables, the last of which are left out first where a line is too long."""

_OBJECTIVE = ("objective", "objective_value", "objective_bound", "objective_gap")
"""Columns of rows that were made for an objective that was named."""

_OF_RESULTS = (*ROW, *_OBJECTIVE, "seed", "seeds", "error")
_GIVEN = "orsched.columns"


class View(NamedTuple):
    """What was asked for: names of columns, and the name to sort by (behind ``-``: downwards)."""

    columns: tuple[str, ...] | None = None
    sort: str | None = None


def view_options(known: Sequence[str] | None = _OF_RESULTS) -> tuple[Callable[[F], F], ...]:
    """Return the options ``--columns`` and ``--sort``; ``print_results`` and ``viewed`` read them.

    ``known`` are the names that there are, None where only the rows tell.
    """

    def keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is None:
            return
        kept = context.meta.setdefault(_GIVEN, {})
        if parameter.name == "sort":
            kept["sort"] = value
            names = [value.removeprefix("-")]
        else:
            names = [name.strip() for name in value.split(",") if name.strip()]
            kept["columns"] = tuple(names)
        if known is not None or not names:
            _require_known(names, known or (), f"--{parameter.name}")

    columns = click.option(
        "--columns", metavar="A,B,C", expose_value=False, callback=keep,
        help="Columns to print, by their names in JSON and CSV.",
    )  # fmt: skip
    sort = click.option(
        "--sort", metavar="NAME", expose_value=False, callback=keep,
        help="Sort rows by a column; -NAME: the largest first.",
    )  # fmt: skip
    return columns, sort


def require_columns(known: Sequence[str], prefixes: tuple[str, ...]) -> None:
    """Refuse names that no row can have: neither known nor with one of the prefixes."""
    view = given_view()
    names = {"--columns": view.columns or ()}
    if view.sort is not None:
        names["--sort"] = (view.sort.removeprefix("-"),)
    for field, given in names.items():
        other = [name for name in given if not name.startswith(prefixes)]
        if other:
            _require_known(other, known, field)


def given_view() -> View:
    """Return what the running command was given."""
    context = click.get_current_context(silent=True)
    return View() if context is None else View(**context.meta.get(_GIVEN, {}))


def viewed(rows: Sequence[Row]) -> list[Row]:
    """Return rows as ``--sort`` and ``--columns`` want them; as they are without these options.

    Raises ``InputError`` for a name that the rows do not have.
    """
    view, found = given_view(), list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if view.sort is not None and found:
        name = view.sort.removeprefix("-")
        _require_known([name], names, "--sort")
        found = _sorted(found, name, downwards=view.sort.startswith("-"))
    if view.columns is not None and found:
        _require_known(view.columns, names, "--columns")
        found = [{name: row.get(name) for name in view.columns} for row in found]
    return found


def _sorted(rows: list[Row], name: str, *, downwards: bool) -> list[Row]:
    """Return rows in order of a column, those without a value last."""
    some = [row for row in rows if row.get(name) is not None]
    some.sort(key=lambda row: row[name], reverse=downwards)
    return some + [row for row in rows if row.get(name) is None]


def _require_known(names: Iterable[str], known: Sequence[str], field: str) -> None:
    names = list(names)
    if not names:
        raise InputError("no column is named", field=field, remedy="e.g. method,ttft_p99_s")
    for name in names:
        if name in known:
            continue
        remedy = known_names(name, known, "there are: ")
        raise InputError(f"there is no column {name!r}", field=field, remedy=remedy)


def print_results(
    rows: Sequence[Row],
    style: str,
    instance: Instance | None = None,
    *,
    over_time: bool = False,
    single: bool = False,
    objective: Objective | None = None,
) -> None:
    """Print rows of results: in a table the columns that fit, the best row marked, and why.

    Args:
        rows: one a method (and seed), as ``Result.to_row`` has them.
        style: table, json or csv.
        instance: the problem, where there is one for all rows.
        over_time: whether requests arrive over time, where there is not.
        single: the one row is a JSON object, not a list.
        objective: what was asked for; None: what fits.
    """
    from orsched.objectives import arrives_over_time, fitting

    machine = {} if instance is None else {"machine": say_machine(instance)}
    if style != "table":
        shown = viewed(rows)
        if style == "json" and given_view().columns is None:
            shown = [row | machine for row in shown]
        print_rows(shown, style, single=single)
        return
    if instance is not None:
        over_time = arrives_over_time(instance)
    asked = objective is not None and not objective.is_makespan
    objective = objective or fitting(rows, over_time=over_time)
    names: Sequence[str] = _AT_ONCE if objective.is_makespan else _OVER_TIME
    if asked:
        names = _asked(objective, names)
    best = _marked(rows, objective)
    chosen = given_view().columns is not None
    marked = [
        {**row, "method": f"{row['method']} *"} if place in best else row
        for place, row in enumerate(rows)
    ]
    shown = viewed(marked)
    if not chosen:
        shown = fitted(shown, names)
    click.echo(table(shown))
    for line in _remarks(rows, objective, best, instance):
        click.echo(printable(line))


def with_objective(result: Result, objective: Objective | None) -> Row:
    """Return the columns of an objective that was named; nothing where none was."""
    if objective is None:
        return {}
    values = (objective.name, objective.value(result), result.objective_bound, result.gap)
    return dict(zip(_OBJECTIVE, values, strict=True))


def _asked(objective: Objective, names: Sequence[str]) -> list[str]:
    """Return columns with value, bound and gap of an objective behind the method's name."""
    first = ["seed", "method", "seeds", "objective_value", "objective_bound", "objective_gap"]
    own = [] if objective.shares else [objective.column]
    return [*first, *(name for name in names if name not in (*first, *own))]


def _marked(rows: Sequence[Row], objective: Objective) -> list[int]:
    """Return the places of the best rows; none where there is nothing to choose between."""
    best = objective.best(rows)
    defined = sum(objective.value(row) is not None for row in rows)
    several_seeds = any("seed" in row for row in rows)
    return [] if len(best) == defined or several_seeds else best


def fitted(rows: Sequence[Row], names: Sequence[str], least: int = _LEAST) -> list[Row]:
    """Return the columns that rows have values in, without the last ones if a line is too long.

    The first ``least`` columns stay, and the reasons of failed methods, which come last and are cut
    where the line is full; stderr and JSON have them in full.
    """
    names = [name for name in names if any(row.get(name) is not None for row in rows)]
    room = _table_width()
    if not any(row.get("error") is not None for row in rows):
        while len(names) > least and _width(rows, names) > room:
            names.pop()
        return [{name: row.get(name) for name in names} for row in rows]
    room = min(room, _NARROW)
    while len(names) > least and _width(rows, [*names, "error"]) > room:
        names.pop()
    left = max(_REASON, room - _width(rows, names) - 2)
    return [
        {**{name: row.get(name) for name in names}, "error": _cut(row.get("error"), left)}
        for row in rows
    ]


def _table_width() -> int:
    """Return how long a line of a table may be: as the terminal is wide, or ``WIDTH``."""
    if sys.stdout is not None and sys.stdout.isatty():
        return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 0)).columns)
    return WIDTH


def _cut(text: str | None, most: int) -> str | None:
    """Return a text of at most so many characters; a longer one ends in dots."""
    if text is None or len(text) <= most:
        return text
    return f"{text[: most - 3].rstrip()}..."


def _width(rows: Sequence[Row], names: Sequence[str]) -> int:
    lines = table([{name: row.get(name) for name in names} for row in rows]).splitlines()
    return max(map(len, lines))


def _remarks(
    rows: Sequence[Row], objective: Objective, best: list[int], instance: Instance | None
) -> list[str]:
    """Return what is to be said below a table: who is best by what, and whose makespan it is."""
    lines = []
    if best:
        names = ", ".join(str(rows[place]["method"]) for place in best)
        figure = cell_text(objective.column, objective.value(rows[best[0]]))
        unit = " s" if objective.is_time else ""
        lines.append(f"* {objective.words}: {names} ({figure}{unit})")
    if instance is not None:
        lines += _last_arrival(rows, instance)
    return lines


def _last_arrival(rows: Sequence[Row], instance: Instance) -> list[str]:
    from orsched.objectives import arrivals_decide
    from orsched.units import seconds_to_ns

    made = [row for row in rows if row["makespan_s"] is not None]
    decided = [r for r in made if arrivals_decide(instance, seconds_to_ns(r["makespan_s"]))]
    if not decided:
        return []
    last = int(instance.requests.arrival_ns.max()) / 1e9
    of = ""
    if len(decided) < len(made):
        of = " of " + ", ".join(str(row["method"]) for row in decided)
    return [
        f"the makespan{of} is the last arrival's, at {last:,.2f} s: arrivals decide it, "
        "not the method"
    ]
