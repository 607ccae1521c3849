"""The tables of the report: a row a schedule, with exact, machine-readable numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.metrics.flat_figures import flat_figures
from orsched.solving.objectives import OBJECTIVES, fitting_objective
from orsched.views.html_tables import cell, table, table_row, text
from orsched.views.pictures import verdict_of
from orsched.views.style import BUBBLES, gap_text, one_line, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.service_classes import SLO
    from orsched.solving.run_block import Verdict


@dataclass(frozen=True)
class Row:
    """One schedule of the comparison: its label, its results, and what the checker found.

    ``part`` says of a run that was stopped how far it came; it is empty for all others.
    """

    label: str
    schedule: Schedule
    results: dict[str, Any]
    violations: int
    part: str = ""


def rows_of(instance: Instance, schedules: Sequence[Schedule], slo: SLO | None = None) -> list[Row]:
    """Compute every number again from the schedules and check each of them."""
    from orsched.checker import check
    from orsched.metrics.summary import summarise
    from orsched.metrics.timeline import finished_requests

    rows = []
    for label, schedule in zip(labels(schedules), schedules, strict=True):
        times = "measured" if schedule.is_measured else "model"
        found = check(instance, schedule, times=times)
        part = ""
        if schedule.is_measured and schedule.is_partial:
            done = finished_requests(instance, schedule)
            part = f"partial ({done:,} of {len(instance):,} requests finished)"
        rows.append(Row(label, schedule, summarise(instance, schedule, slo), len(found), part))
    return rows


def labels(schedules: Sequence[Schedule]) -> list[str]:
    """Return a label for each schedule: its method, with what tells it from its namesakes."""
    methods = [
        one_line(s.method) + s.is_measured * (", partial run" if s.is_partial else ", run")
        for s in schedules
    ]
    full = [
        f"{m} ({s.information})" if methods.count(m) > 1 else m
        for m, s in zip(methods, schedules, strict=True)
    ]
    return [
        f"{name} #{full[: k + 1].count(name)}" if full.count(name) > 1 else name
        for k, name in enumerate(full)
    ]


def short_time(ns: float) -> str:
    """Return a time in the unit that suits it: s, ms, µs or ns."""
    if ns >= 1_000_000_000:
        return seconds(int(ns))
    if 0 < ns < 1000:
        return f"{ns:.3g} ns"
    return f"{ns / 1_000_000:.1f} ms" if ns >= 1_000_000 else f"{ns / 1_000:.1f} µs"


def _or_dash(show: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return what shows a value, and a dash where there is none."""
    return lambda value: "–" if value is None else show(value)


_short = _or_dash(short_time)
_seconds = _or_dash(seconds)
_whole = _or_dash(lambda value: f"{value:,.0f}")
_tenths = _or_dash(lambda value: f"{value:,.1f}")
_hundredths = _or_dash(lambda value: f"{value:,.2f}")
_decimal = _or_dash(lambda value: f"{value:,}" if isinstance(value, int) else f"{value:,.2f}")


class Ranking(NamedTuple):
    """The best schedules by the objective ``name``, and ``words`` for what they may be called.

    ``rivals`` are the numbers of the schedules that compete: valid ones with times of the model;
    ``classes`` counts their classes of information. None is the best without rivals.
    """

    name: str
    words: str
    best: frozenset[int]
    rivals: tuple[int, ...]
    classes: int = 1


def ranking_of(instance: Instance, rows: Sequence[Row]) -> Ranking:
    """Return the ranking by the objective that fits: never the makespan where requests arrive.

    Where all rivals attain the limits equally, the least mean JCT decides among them. The best are
    those of each class of information; none where nothing is to choose between.
    """
    rivals = tuple(
        k for k, row in enumerate(rows) if not row.violations and not row.schedule.is_measured
    )
    competing = [rows[k].results for k in rivals]
    told = [rows[k].schedule.information for k in rivals]
    objective = fitting_objective(instance, [row.results for row in rows])
    alike = len(objective.best(competing)) == len(rivals) > 1
    if objective.name == "slo_attainment" and alike:
        objective = OBJECTIVES["jct_mean"]
    classes = objective.best_by_information(competing, told)
    best = [rivals[place] for _, places in classes for place in places]
    chosen = frozenset(best) if len(rivals) > 1 else frozenset()
    return Ranking(objective.name, objective.words, chosen, rivals, len(classes))


class Column(NamedTuple):
    """A column of figures, ``field`` in the page; ``is_time``: in nanoseconds.

    ``value`` reads it off a ``Row``, or the results of a class, None where it is not defined;
    ``better`` is ``min`` or ``max``, the end that is marked.
    """

    head: str
    field: str
    value: Callable[[Any], float | None]
    show: Callable[[Any], str]
    better: str | None = None
    is_time: bool = False


def _at(*path: str) -> Callable[[Any], Any]:
    """Return what reads a figure in nested results, None where any of it is missing."""

    def value(item: Row | dict[str, Any]) -> Any:
        found: Any = item.results if isinstance(item, Row) else item
        for name in path:
            found = None if found is None else found.get(name)
        return found

    return value


def _flat(name: str) -> Callable[[Row], float | None]:
    """Return what reads a flat figure of a row."""
    return lambda row: flat_figures(row.results)[name]


def _time(head: str, field: str, *path: str) -> Column:
    return Column(head, field, _at(*path), _short, "min", is_time=True)


def _count(head: str, field: str, *path: str) -> Column:
    return Column(head, field, _at(*path), _whole)


def _marked(
    columns: Sequence[Column], items: Mapping[int, Any], told: Mapping[int, str]
) -> set[tuple[int, int]]:
    """Return (column, item) of the best of each group, ``told``; none where all are equal."""
    found: set[tuple[int, int]] = set()
    for k, column in enumerate(columns):
        values = {r: column.value(item) for r, item in items.items() if column.better}
        known = {r: value for r, value in values.items() if value is not None}
        if len(set(known.values())) < 2:
            continue
        end = min if column.better == "min" else max
        for group in {told[r] for r in known}:
            own = {r: v for r, v in known.items() if told[r] == group}
            found |= {(k, r) for r, value in own.items() if value == end(own.values())}
    return found


def _cell(
    column: Column, value: float | None, best_of: str = "", below: str = "", **more: Any
) -> str:
    """Return the cell of a figure, marked as the best of something."""
    shown = column.show(value)
    if best_of:
        shown = f'<b class="best" title="best of this {best_of}">{shown}</b>'
    exact = {"ns": value} if column.is_time else {"value": value}
    return cell(shown + below, field=column.field, **exact, **more)


def makespan_table(rows: Sequence[Row], ranking: Ranking, *, badged: bool) -> str:
    """Return the table of makespan, bound and throughput, the decision time filled in later.

    The badge, where this table has it, and the marked values are those of ``ranking``. Where
    requests arrive over time the makespan is mostly the last arrival's: nothing is marked then.
    """
    less, more = "min" if badged else None, "max" if badged else None
    columns = [
        Column("Makespan", "makespan", _at("makespan_ns"), _seconds, less, is_time=True),
        Column("Lower bound", "bound", _at("bound_ns"), _seconds, is_time=True),
        Column("Gap", "gap", _gap, gap_text, less),
        Column("Slot utilization", "utilization", _at("slot_utilization"), percent, more),
        _count("Prefill stages K", "stages", "prefill_stages"),
        _count("Rounds R", "rounds", "decode_rounds"),
        Column("Output tokens/s", "rate", _at("tokens_per_s"), _tenths, more),
    ]
    marked = _marked_rows(columns, rows, ranking)
    body = []
    for index, row in enumerate(rows):
        found = row.violations
        body.append(
            f'<tr data-method="{text(row.schedule.method)}" data-index="{index}">'
            + head_cell(index, row, ranking if badged else None)
            + f'<td class="word">{row.schedule.information}</td>'
            + _cells(columns, index, row, marked, {})
            + f'<td class="word" data-field="status">{text(_status(row))}</td>'
            + cell("–", field="decision")
            + f'<td class="word {"good" if found == 0 else "bad"}" data-field="checked" '
            f'data-violations="{found}">{verdict(row)}</td></tr>'
        )
    heads = ["Method", "Information", *(c.head for c in columns)]
    heads += ["Status", "Decision p99", "Checked"]
    return table("comparison", "Makespan and throughput", heads, body)


def latency_table(
    rows: Sequence[Row],
    ranking: Ranking,
    *,
    badged: bool,
    bounds: Mapping[str, Sequence[int | None]] | None = None,
) -> str:
    """Return the table of TTFT, TPOT and JCT and, where limits are given, attainment and goodput.

    ``bounds`` (columns of lower bounds by ``ttft`` and ``jct``) stand below the means.
    """
    columns = []
    attainment, goodput = _flat("slo_attainment"), _flat("goodput_per_s")
    if any(attainment(row) is not None for row in rows):
        columns += [
            Column("SLO attainment", "slo-attainment", attainment, percent, "max"),
            Column("Goodput, 1/s", "goodput", goodput, _hundredths, "max"),
        ]
    for measure in ("ttft", "tpot", "jct"):
        for figure in ("mean", "p50", "p99"):
            head = f"{measure.upper()} {figure}"
            columns.append(_time(head, f"{measure}-{figure}", f"{measure}_ns", figure))
        if measure == "tpot":
            columns.append(_time("ITL p99", "itl-p99", "itl_ns", "p99"))
            columns.append(_time("ITL max", "itl-max", "itl_ns", "max"))
    marked = _marked_rows(columns, rows, ranking)
    below = {f"{measure}-mean": values for measure, values in (bounds or {}).items()}
    body = [
        f'<tr data-index="{index}">'
        + head_cell(index, row, ranking if badged else None)
        + _cells(columns, index, row, marked, below)
        + "</tr>"
        for index, row in enumerate(rows)
    ]
    return table("latency", "Latency of requests", ["Method", *(c.head for c in columns)], body)


def head_cell(index: int, row: Row, ranking: Ranking | None) -> str:
    """Return the head of a row, with the badge where the ranking gives it one."""
    badge = ""
    if ranking is not None and index in ranking.best:
        told = f", information {row.schedule.information}" if ranking.classes > 1 else ""
        badge = f' <span class="badge">{text(ranking.words + told)}</span>'
    return f'<th scope="row">{text(row.label)}{badge}</th>'


def verdict(row: Row) -> str:
    """Return what the checker says; of a run, what it could not say."""
    found = row.violations
    said = "yes" if found == 0 else f"no: {found} violation{'s' if found > 1 else ''}"
    if row.schedule.is_measured:
        said += "; times not checked"
    return f"{said}; {row.part}" if row.part else said


def _gap(row: Row) -> float | None:
    """Return the gap of the makespan, which is 0 where a search closed it."""
    found = _verdict(row)
    gap: float | None = row.results["gap"]
    return 0.0 if found is not None and found.closes_gap and gap is not None else gap


def _verdict(row: Row) -> Verdict | None:
    """Return what the method said of a valid plan; None for runs and what the checker refuses."""
    stated = not row.violations and not row.schedule.is_measured
    return verdict_of(row.schedule) if stated else None


def _status(row: Row) -> str:
    """Return what is proven of a schedule, by its bound or as its file says."""
    found = _verdict(row)
    if row.violations or row.schedule.is_measured:
        return "–"
    if row.results["gap"] == 0:
        return "optimal"
    return "feasible" if found is None else found.words


def _marked_rows(
    columns: Sequence[Column], rows: Sequence[Row], ranking: Ranking
) -> set[tuple[int, int]]:
    rivals = {r: rows[r] for r in ranking.rivals}
    return _marked(columns, rivals, {r: row.schedule.information for r, row in rivals.items()})


def _cells(
    columns: Sequence[Column],
    index: int,
    row: Row,
    marked: set[tuple[int, int]],
    bounds: Mapping[str, Sequence[int | None]],
) -> str:
    """Return the cells of a row; a bound on a figure, by its field, is below it."""
    cells = []
    for k, column in enumerate(columns):
        value, below = column.value(row), ""
        more: dict[str, Any] = {}
        lower = bounds.get(column.field, {index: None})[index]
        if lower is not None:
            title = "no schedule without further features has less"
            below = f'<small title="{title}">≥ {_short(lower)}</small>'
            more["bound_ns"] = lower
        if column.field == "gap" and value != row.results["gap"]:  # closed by a search
            certified = row.results["gap"]
            title = "to the lower bound, which has a certificate"
            below = f'<small title="{title}">certified: {gap_text(certified)}</small>'
            more["certified"] = certified
        if column.field == "bound" and row.schedule.bound is not None:
            more["name"] = str(row.schedule.bound["name"])
        if column.field == "utilization":
            more["busy_client_ns"] = row.results["busy_client_ns"]
        cells.append(_cell(column, value, "column" * ((k, index) in marked), below, **more))
    return "".join(cells)


_CLASS_COLUMNS = (
    _count("Requests", "requests", "requests"),
    _time("TTFT mean", "ttft-mean", "ttft_ns", "mean"),
    _time("TTFT p99", "ttft-p99", "ttft_ns", "p99"),
    _time("TPOT p99", "tpot-p99", "tpot_ns", "p99"),
    Column("Within limits", "attainment", _at("slo", "attainment"), percent, "max"),
    Column("Tokens in time", "token-attainment", _at("slo", "token_attainment"), percent, "max"),
    Column("Deadlines met", "deadlines", _at("deadline", "attainment"), percent, "max"),
    Column("Tokens/s", "tokens-per-s", _at("tokens_per_s"), _whole, "max"),
    _count("Computed again", "recomputed", "recomputed_tokens"),
    Column("Hits", "hit-rate", lambda part: part.get("hit_rate") or None, percent),
)


def class_table(rows: Sequence[Row], rivals: Iterable[int] = ()) -> str:
    """Return figures by schedule and class, the best of the rivals (rows) marked; "" without."""
    parts = [
        (k, name, part)
        for k, row in enumerate(rows)
        for name, part in (row.results.get("classes") or {}).items()
    ]
    competing, marked = set(rivals), set[tuple[int, int]]()
    for kind in {name for _, name, _ in parts}:
        own = {
            p: part for p, (k, name, part) in enumerate(parts) if name == kind and k in competing
        }
        marked |= _marked(_CLASS_COLUMNS, own, dict.fromkeys(own, kind))
    body = [
        table_row(
            text(rows[k].label),
            [
                f'<td class="word">{text(name)}</td>',
                *(
                    _cell(column, column.value(part), "class" * ((c, place) in marked))
                    for c, column in enumerate(_CLASS_COLUMNS)
                ),
            ],
        )
        for place, (k, name, part) in enumerate(parts)
    ]
    heads = ["Method", "Class", *(column.head for column in _CLASS_COLUMNS)]
    return table("classes-table", "Requests by class", heads, body) if body else ""


def bubble_table(rows: Sequence[Row]) -> str:
    """Return the table of busy client-time and bubbles by cause."""
    heads = ["Method", "Busy", *(word.capitalize() for word, _ in BUBBLES.values())]
    body = []
    for row in rows:
        bubbles = row.results["bubble_ns"]
        uses = {"busy": row.results["busy_client_ns"], **{name: bubbles[name] for name in BUBBLES}}
        total = uses["busy"] + sum(bubbles.values())
        cells = [
            cell(percent(ns / total if total else None), field=name.replace("_", "-"), ns=ns)
            for name, ns in uses.items()
        ]
        body.append(table_row(text(row.label), cells))
    caption = "Client-time by use, as shares of clients × makespan"
    return table("bubbles-table", caption, heads, body)


_BATCH_COLUMNS = (
    Column("Requests a prefill", "batch-prefill", _at("batch_size", "prefill"), _decimal),
    Column("Requests a round", "batch-decode", _at("batch_size", "decode"), _decimal),
    _count("Mixed steps", "mixed-steps", "mixed_steps"),
    _count("Restarts", "restarts", "restarts"),
    _count("Invalid tokens", "invalid-tokens", "invalid_tokens"),
    _count("Pad tokens", "pad-tokens", "pad_tokens"),
    _time("Workers end from", "worker-end-min", "worker_end_ns", "min"),
    _time("to", "worker-end-max", "worker_end_ns", "max"),
    _time("Standard deviation", "worker-end-std", "worker_end_ns", "std"),
    Column("KV blocks, peak", "kv-peak", _at("kv_blocks", "peak"), _decimal),
    Column("KV blocks, mean", "kv-mean", _at("kv_blocks", "mean"), _decimal),
)


def batch_table(rows: Sequence[Row]) -> str:
    """Return the table of batches, restarts, tokens without use, workers and memory."""
    heads = ["Method", *(column.head for column in _BATCH_COLUMNS)]
    body = [
        table_row(text(row.label), [_cell(column, column.value(row)) for column in _BATCH_COLUMNS])
        for row in rows
    ]
    return table("batches", "Means, counts and sums of each schedule", heads, body)


def worker_table(instance: Instance, rows: Sequence[Row]) -> str:
    """Return the table of what each worker did, "" on one worker."""
    from orsched.metrics.class_metrics import extremes, worker_figures

    heads = [
        "Method", "Worker", "Requests", "Busy", "Prefilled tokens", "Cache hits", "Queue, mean",
        "Queue, longest",
    ]  # fmt: skip
    shown: tuple[Callable[[Any], str], ...] = (
        text, _whole, percent, _whole, percent, _hundredths, _whole,
    )  # fmt: skip
    body = []
    for row in rows if len(instance.workers) > 1 else ():
        for own in extremes(worker_figures(instance, row.schedule)):
            cells = [cell(show(value)) for show, value in zip(shown, own.values(), strict=True)]
            body.append(table_row(text(row.label), cells))
    caption = "What each worker did; of many, the busiest and the least busy ones"
    return table("workers-table", caption, heads, body) if body else ""


MOST_STEPS_ON_PATH = 20_000
"""Schedules with more steps get no line in the table of critical paths: the graph grows large."""


def path_table(instance: Instance, rows: Sequence[Row]) -> str:
    """Return the table of critical paths: what the makespan is made of, by kind of stage."""
    from orsched.models.bounds.request_slack import critical_path_summary

    heads = [
        "Method", "Prefill stages", "Mixed steps", "Decode rounds", "Idle", "Length",
        "Busiest client",
    ]  # fmt: skip
    body = []
    for row in rows:
        if not 0 < len(row.schedule.steps) <= MOST_STEPS_ON_PATH or row.violations:
            continue
        path = critical_path_summary(instance, row.schedule)
        cells = [
            cell(seconds(path[name]), field=name.replace("_", "-"), ns=path[name])
            for name in ("prefill_ns", "mixed_ns", "decode_ns", "idle_ns", "length_ns")
        ]
        busiest = path["longest_client"]
        busy = seconds(busiest["busy_ns"])
        client = str(busiest["client"])
        if len(instance.workers) > 1:
            client = f"{text(instance.workers[busiest['worker']].name)}, {client}"
        cells.append(f"<td>{client}: {busy} with {len(busiest['requests'])} requests</td>")
        body.append(table_row(text(row.label), cells))
    return table("path-table", "The critical path of each schedule", heads, body) if body else ""
