"""Results as rows: which columns are printed, in which order, which row is best, and why."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import click

from orsched.cli.declaring import option
from orsched.cli.machines import print_fleet, print_workers, say_machine, workers_of
from orsched.cli.options import Printed
from orsched.cli.output import cell_text, print_below, print_notes, print_rows, printable, table
from orsched.common.errors import InputError, known_names
from orsched.common.units import NS_PER_S
from orsched.solving.result import ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.data.instance import Instance
    from orsched.solving.objectives import Objective
    from orsched.solving.result import Result

    Row = dict[str, Any]


LATENCIES = ("ttft", "tpot", "jct")


def class_rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each service class of a schedule's results, none without classes.
    ``slo_attainment`` is the share of requests within the limits on TTFT and mean TPOT,
    ``in_time_share`` that of requests all of whose tokens are in time, ``token_attainment`` that of
    tokens in time, ``deadline_attainment`` that of deadlines met; None without a limit."""
    rows = []
    for name, part in (results.get("classes") or {}).items():
        slo, deadline = part["slo"] or {}, part["deadline"] or {}
        rows.append(
            {
                "class": name,
                "requests": part["requests"],
                **_latencies(part),
                "slo_attainment": slo.get("attainment"),
                "in_time_share": slo.get("in_time_share"),
                "token_attainment": slo.get("token_attainment"),
                "deadline_attainment": deadline.get("attainment"),
                "prompt_tokens": part["prompt_tokens"],
                "output_tokens": part["output_tokens"],
                "tokens_per_s": part["tokens_per_s"],
                "output_tokens_per_s": part["output_tokens_per_s"],
                "recomputed_tokens": part["recomputed_tokens"],
                "hit_rate": part["hit_rate"],
            }
        )
    return rows


def tenant_rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each tenant of a schedule's results, none without tenants."""
    return [
        {
            "tenant": name,
            "requests": part["requests"],
            "prompt_tokens": part["prompt_tokens"],
            "output_tokens": part["output_tokens"],
            "ttft_mean_s": _seconds(part["ttft_mean_ns"]),
            "jct_mean_s": _seconds(part["jct_mean_ns"]),
        }
        for name, part in (results.get("tenants") or {}).items()
    ]


def _latencies(part: dict[str, Any]) -> dict[str, float | None]:
    found = {}
    for name in LATENCIES:
        spread = part[f"{name}_ns"] or {}
        for figure in ("mean", "p50", "p99"):
            found[f"{name}_{figure}_s"] = _seconds(spread.get(figure))
    return found


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / NS_PER_S


WIDTH = 100
"""Most characters of a line in a pipe or file, as far as columns can be left out for it."""

_NARROWEST = 40
"""A terminal that says it is narrower is taken to be so wide."""

_REASON = 40
"""Characters of a failed method's reason that are kept, however narrow the terminal is."""

_WHO = ("seed", "method", "information", "seeds")
"""Columns that say whose row it is: never left out, and first in each part of a table."""

_PROVEN = ("objective_bound", "attainment_bound", "gap", "status")
"""Columns of what is proven, which stand behind the objective's figure."""

_AT_ONCE = (
    "bubble_share", "tail_s", "slot_utilization", "tokens_per_s", "jct_mean_bound_s",
    "ttft_mean_bound_s",
)  # fmt: skip
_OVER_TIME = (
    "slo_kept", "slo_attainment", "goodput_per_s", "ttft_mean_s", "ttft_mean_bound_s",
    "ttft_p99_s", "tpot_p99_s", "itl_p99_s", "itl_max_s", "jct_mean_s", "jct_mean_bound_s",
)  # fmt: skip
"""Further columns of tables."""

_LEFT_OUT = (
    "itl_p99_s", "tokens_per_s", "slot_utilization", "goodput_per_s", "tpot_p99_s", "ttft_mean_s",
    "makespan_s", "itl_max_s", "ttft_p99_s", "jct_mean_s",
)  # fmt: skip
"""Columns that are left out where a line is too long, in this order."""

OTHER_NAMES = {"preemptions": "restarts", "objective_gap": "gap"}
"""Other names of columns: of engines, and of before."""


class View(NamedTuple):
    """What was asked for: names of columns, and the name to sort by (behind ``-``: downwards)."""

    columns: tuple[str, ...] | None = None
    sort: str | None = None


def _columns(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    names = [OTHER_NAMES.get(name, name) for name in names]
    _require_of_command(context, names, "--columns")
    return tuple(dict.fromkeys(names))


def _sort(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    name = value.removeprefix("-")
    name = OTHER_NAMES.get(name, name)
    _require_of_command(context, [name], "--sort")
    return "-" * value.startswith("-") + name


def _require_of_command(context: click.Context, names: list[str], field: str) -> None:
    known = getattr(context.command, "options", Viewed).known
    if known is not None or not names:
        _require_known(names, known or (), field)


class Viewed(Printed):
    """Which columns and rows of a table are printed, and how; ``viewed`` reads it."""

    known: ClassVar[Sequence[str] | None] = None
    """The columns that exist, None where only the rows tell."""

    columns: tuple[str, ...] | None = option(
        "Columns to print, by their names in JSON and CSV.",
        type=click.STRING,
        multiple=False,
        metavar="A,B,C",
        callback=_columns,
    )
    sort: str | None = option(
        "Sort rows by a column; -NAME: the largest first.", metavar="NAME", callback=_sort
    )


class ViewedResults(Viewed):
    """The same of rows of results."""

    known = (*ROW, "seed", "seeds", "error")


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
    given = {} if context is None else context.params
    return View(given.get("columns"), given.get("sort"))


def viewed(rows: Sequence[Row]) -> list[Row]:
    """Return rows as ``--sort`` and ``--columns`` want them; ``InputError`` for an unknown name."""
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
        remedy = known_names(name, known, "known: ")
        raise InputError(f"unknown column {name!r}", field=field, remedy=remedy)


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

    ``over_time``, where there is no single instance: whether requests arrive over time. Without an
    objective the best is found by what fits; ``single``: the row is a JSON object, not a list.
    """
    from orsched.solving.objectives import arrives_over_time, fitting, objective_named

    machine = {} if instance is None else {"machine": say_machine(instance)}
    if style != "table":
        shown = viewed(rows)
        if style == "json" and given_view().columns is None:
            shown = [row | machine for row in shown]
        print_rows(shown, style, single=single)
        return
    if instance is not None:
        over_time = arrives_over_time(instance)
    sought = objective_named(_sought(rows))
    aim = objective or fitting(rows, over_time=over_time)
    best = _marked(rows, aim)
    marked = [
        {**row, "method": f"{row['method']} *"} if place in best else row
        for place, row in enumerate(rows)
    ]
    if given_view().columns is not None:
        click.echo(table(viewed(marked)))
    else:
        names = _names(sought, over_time=objective is None and not aim.is_makespan)
        shown = viewed([_with_bound(row, sought) for row in marked])
        click.echo(fitted_table(shown, names, keep=(sought.column, aim.column)))
    for line in _remarks(rows, aim, sought, best, instance):
        click.echo(printable(line))


def _sought(rows: Sequence[Row]) -> str:
    """Return the objective that the rows' values, bounds and gaps are of: one for all of them."""
    return next((row["objective"] for row in rows if row.get("objective")), "makespan")


def _names(sought: Objective, *, over_time: bool) -> list[str]:
    """Return the columns of a table: figure, bound, gap and status of the objective together."""
    figure = "objective_value" if sought.shares else sought.column
    proven = (figure, *_PROVEN)
    own = f"{figure.removesuffix('_s')}_bound_s"  # stands there as the objective's bound
    every = _OVER_TIME if over_time or not sought.is_makespan else _AT_ONCE
    further = [name for name in every if name not in (figure, own)]
    last = [] if sought.is_makespan else ["makespan_s"]
    if over_time:
        return [*_WHO, *further, *proven]
    return [*_WHO, *proven, *further, *last]


def _with_bound(row: Row, sought: Objective) -> Row:
    """Return a row with the objective's bound under a heading with its unit."""
    if sought.is_time or row.get("objective_bound") is None:
        return row
    return {**row, "objective_bound": None, "attainment_bound": row["objective_bound"]}


def _marked(rows: Sequence[Row], objective: Objective) -> list[int]:
    """Return the places of the best rows by class of information; none without a choice."""
    best = [place for _, places in objective.best_by_information(rows) for place in places]
    defined = sum(objective.value(row) is not None for row in rows)
    several_seeds = any("seed" in row for row in rows)
    return [] if len(best) == defined or several_seeds else sorted(best)


def fitted_table(rows: Sequence[Row], names: Sequence[str], keep: Sequence[str] = ()) -> str:
    """Return a table of the columns that rows have values in, as wide as a line may be.

    Columns of ``_LEFT_OUT`` but for those to ``keep`` go first where a line is too long; then the
    table goes on in further parts, each with the names of the rows. Failed rows have their reason
    in place of figures, cut where the line is full; stderr and JSON have it in full.
    """
    shown = [{**row, "error": None} for row in rows]
    names = [name for name in names if any(row.get(name) is not None for row in shown)]
    room = _table_width()
    for name in _LEFT_OUT:
        if _width(shown, names) <= room:
            break
        names = [each for each in names if each != name or each in keep]
    who = [name for name in names if name in _WHO]
    parts: list[list[str]] = [[]]
    for name in (each for each in names if each not in who):
        if parts[-1] and _width(shown, [*who, *parts[-1], name]) > room:
            parts.append([])
        parts[-1].append(name)
    tables = [_part(rows, [*who, *part], len(who), room) for part in parts]
    return "\n\n".join(tables)


def _part(rows: Sequence[Row], names: Sequence[str], who: int, room: int) -> str:
    """Return a table in which the reason of a failed row stands behind its names."""
    lines = table([{name: row.get(name) for name in names} for row in rows]).splitlines()
    rule = lines[1].split("  ") if len(lines) > 1 else []
    left = sum(len(dashes) + 2 for dashes in rule[:who])
    for place, row in enumerate(rows, 2):
        if row.get("error") is not None:
            reason = _cut(str(row["error"]), max(_REASON, room - left))
            lines[place] = f"{lines[place][:left].ljust(left)}{printable(reason)}"
    return "\n".join(lines)


def _width(rows: Sequence[Row], names: Sequence[str]) -> int:
    lines = table([{name: row.get(name) for name in names} for row in rows]).splitlines()
    return max(map(len, lines))


def fitted(rows: Sequence[Row], names: Sequence[str], least: int) -> list[Row]:
    """Return the columns with values, at least the first ``least``, that fit into a line."""
    names = [name for name in names if any(row.get(name) is not None for row in rows)]
    while len(names) > least and _width(rows, names) > _table_width():
        names.pop()
    return [{name: row.get(name) for name in names} for row in rows]


def _table_width() -> int:
    """Return how long a line of a table may be: as the terminal is wide, or ``WIDTH``."""
    if sys.stdout is not None and sys.stdout.isatty():
        return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 0)).columns)
    return WIDTH


def _cut(text: str, most: int) -> str:
    """Return a text of at most so many characters; a longer one ends in dots."""
    return text if len(text) <= most else f"{text[: most - 3].rstrip()}..."


def _remarks(
    rows: Sequence[Row],
    objective: Objective,
    sought: Objective,
    best: list[int],
    instance: Instance | None,
) -> list[str]:
    """Return the lines below a table; ``objective`` is the star's, ``sought`` that of the gap."""
    lines = [line for row in rows for line in limit_lines(row)]
    over = [str(row["method"]) for row in rows if row.get("overloaded")]
    if over:
        lines.append(f"overloaded, the queue grows as long as requests arrive: {', '.join(over)}")
    classes = objective.best_by_information(rows) if best else []
    for information, places in classes:
        names = ", ".join(str(rows[place]["method"]) for place in places)
        figure = cell_text(objective.column, objective.value(rows[places[0]]))
        unit = " s" if objective.is_time else ""
        of = f" with information {information}" if len(classes) > 1 else ""
        lines.append(f"* {objective.words}{of}: {names} ({figure}{unit})")
    if classes and objective.name != sought.name:
        lines.append(f"bound, gap and status are those of the {sought.title}")
    lines += proven_lines((str(row["method"]), row.get("best_of")) for row in rows)
    if instance is not None:
        lines += _last_arrival(rows, instance)
    return lines


def limit_lines(row: Row) -> list[str]:
    """Return a line on each limited figure of a row: value and limit."""
    lines = []
    for name, each in (row.get("slo_limits") or {}).items():
        value = "not defined" if each["value_s"] is None else f"{each['value_s']:.4g} s"
        verdict = "kept" if each["kept"] else "NOT kept"
        who = row.get("method", "")
        lines.append(f"{who}: {name} {value}, limit {each['limit_s']:g} s: {verdict}")
    return lines


def proven_lines(named: Iterable[tuple[str, Any]]) -> list[str]:
    """Return a line for each class of schedules of which rows are the best: name and class."""
    proven: dict[str, list[str]] = {}
    for name, best_of in named:
        if best_of:
            proven.setdefault(str(best_of), []).append(name)
    return [f"optimal among {each}: {', '.join(names)}" for each, names in proven.items()]


def _last_arrival(rows: Sequence[Row], instance: Instance) -> list[str]:
    from orsched.common.units import seconds_to_ns
    from orsched.solving.objectives import arrivals_decide

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


def print_methods(
    rows: Sequence[Row],
    results: Sequence[Result],
    style: str,
    instance: Instance,
    *,
    single: bool = False,
    objective: Objective | None = None,
) -> None:
    """Print rows of results of an instance, and below them classes, fleets, workers and notes."""
    print_results(rows, style, instance, single=single, objective=objective)
    if style == "table":
        _print_classes(results)
        print_fleet(results)
        print_workers(results)
    print_notes(results)


_OF_CLASSES = (
    "class", "requests", "ttft_mean_s", "ttft_p99_s", "tpot_p99_s", "slo_attainment",
    "token_attainment", "deadline_attainment", "tokens_per_s", "hit_rate",
)  # fmt: skip


def with_classes(result: Result, style: str) -> dict[str, Any]:
    """Return a result's row; in JSON with what it has by class and tenant."""
    row = result.to_row()
    results = result.schedule.results
    if style == "json":
        for name, rows in (("classes", class_rows(results)), ("tenants", tenant_rows(results))):
            if rows:
                row[name] = rows
        if several := workers_of(result):
            row["workers"] = several
        if results.get("fairness"):
            row["service_difference"] = results["fairness"]["service_difference"]
    return row


def _print_classes(results: Sequence[Result]) -> None:
    """Print a line for each method and class, and the service of tenants, if there are any."""

    rows: list[Row] = []
    differences: list[Row] = []
    for result in results:
        method = {"method": result.label or result.schedule.method}
        for row in class_rows(result.schedule.results):
            rows.append(method | {name: row[name] for name in _OF_CLASSES})
        found = result.schedule.results.get("fairness")
        if found:
            between = " and ".join(found["between"] or ()) or None
            value = found["service_difference"]
            differences.append({**method, "service_difference": value, "between": between})
    print_below(rows, [] if any(row["hit_rate"] for row in rows) else ["hit_rate"])
    if differences:
        click.echo("\n" + table(differences))
