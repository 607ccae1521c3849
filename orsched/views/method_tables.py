"""The tables with one row a schedule: makespan and throughput, latency and attainment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.metrics.flat_figures import flat_figures
from orsched.solving.objectives import OBJECTIVES, fitting_objective
from orsched.solving.run_block import verdict_of
from orsched.views.comparison import cell, short_time, table, text, verdict
from orsched.views.style import gap_text, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orsched.data.instance import Instance
    from orsched.solving.run_block import Verdict
    from orsched.views.comparison import Row


class Ranking(NamedTuple):
    """The best schedules.

    Attributes:
        name: the objective.
        words: what the best may be called.
        classes: how many classes of information compete.
        best: numbers of the best schedules; none without rivals.
        rivals: numbers of the schedules that compete: valid ones with times of the model.
    """

    name: str
    words: str
    best: frozenset[int]
    rivals: tuple[int, ...]
    classes: int = 1


def ranking_of(instance: Instance, rows: Sequence[Row]) -> Ranking:
    """Return the ranking by the objective that fits: never the makespan where requests arrive.

    Where all rivals attain the limits alike, the least mean JCT decides among them. The best are
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
    """A column of figures.

    Attributes:
        head: its heading.
        field: its name in the page.
        value: the figure of a row, None where it is not defined.
        show: the figure as text.
        better: ``min`` or ``max``, the end that is marked; None: neither.
        is_time: whether the figure is in nanoseconds.
    """

    head: str
    field: str
    value: Callable[[Row], float | None]
    show: Callable[[Any], str]
    better: str | None = None
    is_time: bool = False


def makespan_table(rows: Sequence[Row], ranking: Ranking, *, badged: bool) -> str:
    """Return the table of makespan, bound and throughput, the decision time filled in later.

    The badge, where this table has it, and the marked values are those of ``ranking``. Where
    requests arrive over time the makespan is mostly the last arrival's: nothing is marked then.
    """
    columns = [
        _time("Makespan", "makespan", "makespan_ns", better="min" if badged else None),
        _time("Lower bound", "bound", "bound_ns"),
        Column("Gap", "gap", _gap, gap_text, "min" if badged else None),
        Column(
            "Slot utilization", "utilization", lambda r: r.results["slot_utilization"], percent,
            "max" if badged else None,
        ),
        Column("Prefill stages K", "stages", lambda r: r.results["prefill_stages"], _whole),
        Column("Rounds R", "rounds", lambda r: r.results["decode_rounds"], _whole),
        Column(
            "Output tokens/s", "rate", lambda r: r.results["tokens_per_s"], _rate,
            "max" if badged else None,
        ),
    ]  # fmt: skip
    marked = _marked(columns, rows, ranking)
    body = []
    for index, row in enumerate(rows):
        found = row.violations
        body.append(
            f'<tr data-method="{text(row.schedule.method)}" data-index="{index}">'
            + head_cell(index, row, ranking if badged else None)
            + f'<td class="word">{row.schedule.information}</td>'
            + _cells(columns, index, row, marked)
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
    """Return the table of attainment, goodput, TTFT, TPOT and JCT.

    Attainment and goodput stand where limits are given, ``bounds`` (columns of lower bounds by
    ``ttft`` and ``jct``) below the means.
    """
    columns = []
    attainment, goodput = _figure("slo_attainment"), _figure("goodput_per_s")
    if any(attainment(row) is not None for row in rows):
        columns += [
            Column("SLO attainment", "slo-attainment", attainment, percent, "max"),
            Column("Goodput, 1/s", "goodput", goodput, _decimal, "max"),
        ]
    for measure in ("ttft", "tpot", "jct"):
        for figure in ("mean", "p50", "p99"):
            columns.append(_latency(f"{measure.upper()} {figure}", measure, figure))
        if measure == "tpot":
            columns.append(_latency("Largest gap", "itl", "max"))
    marked = _marked(columns, rows, ranking)
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


def _figure(name: str) -> Callable[[Row], float | None]:
    """Return what reads a flat figure of a row."""
    return lambda row: flat_figures(row.results)[name]


def _time(head: str, field: str, name: str, better: str | None = None) -> Column:
    return Column(
        head, field, lambda row: row.results[name],
        lambda ns: "–" if ns is None else seconds(ns), better, is_time=True,
    )  # fmt: skip


def _latency(head: str, measure: str, figure: str) -> Column:
    def value(row: Row) -> float | None:
        values = row.results.get(f"{measure}_ns")
        return None if values is None else values[figure]

    return Column(head, f"{measure}-{figure}", value, _short, "min", is_time=True)


def _marked(columns: Sequence[Column], rows: Sequence[Row], ranking: Ranking) -> set[Any]:
    """Return (column, row) of each class of information's best; none where all are alike."""
    found = set()
    for k, column in enumerate(columns):
        known: dict[int, float] = {}
        for r in ranking.rivals:
            value = column.value(rows[r]) if column.better else None
            if value is not None:
                known[r] = value
        if len(set(known.values())) < 2:
            continue
        end = min if column.better == "min" else max
        for told in {rows[r].schedule.information for r in known}:
            own = {r: v for r, v in known.items() if rows[r].schedule.information == told}
            found |= {(k, r) for r, value in own.items() if value == end(own.values())}
    return found


def _cells(
    columns: Sequence[Column],
    index: int,
    row: Row,
    marked: set[Any],
    bounds: Mapping[str, Sequence[int | None]] | None = None,
) -> str:
    """Return the cells of a row; a bound on a figure, by its field, stands below it."""
    cells = []
    for k, column in enumerate(columns):
        value = column.value(row)
        shown = column.show(value)
        if (k, index) in marked:
            shown = f'<b class="best" title="best of this column">{shown}</b>'
        exact = {"ns": value} if column.is_time else {"value": value}
        more: dict[str, Any] = {}
        lower = (bounds or {}).get(column.field, {index: None})[index]
        if lower is not None:
            title = "no schedule without further features has less"
            shown += f'<small title="{title}">≥ {_short(lower)}</small>'
            more["bound_ns"] = lower
        if column.field == "gap" and value != row.results["gap"]:  # closed by a search
            certified = row.results["gap"]
            shown += (
                '<small title="to the lower bound, which has a certificate">certified: '
                f"{gap_text(certified)}</small>"
            )
            more["certified"] = certified
        if column.field == "bound" and row.schedule.bound is not None:
            more["name"] = str(row.schedule.bound["name"])
        if column.field == "utilization":
            more["busy_client_ns"] = row.results["busy_client_ns"]
        cells.append(cell(shown, field=column.field, **exact, **more))
    return "".join(cells)


def _short(ns: float | None) -> str:
    return "–" if ns is None else short_time(ns)


def _whole(value: int) -> str:
    return f"{value:,}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"
