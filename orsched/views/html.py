"""The interactive report: one HTML page that needs nothing else."""

from __future__ import annotations

import json
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from orsched.calibration.catalogue import cost_words
from orsched.certificates.scope import schedules_of
from orsched.common.errors import InputError, unavailable
from orsched.common.units import NS_PER_S
from orsched.data.schedule import require_same_instance, served_instance
from orsched.solving.objectives import arrivals_decide
from orsched.views.html_tables import prediction_words, text
from orsched.views.latency_curves import MEASURES, latency_data
from orsched.views.page_data import chart_of, instance_data
from orsched.views.pictures import as_schedules
from orsched.views.plan_and_run import pair_data, pairs_of, section
from orsched.views.report_tables import (
    Row,
    batch_table,
    bubble_table,
    class_table,
    latency_table,
    makespan_table,
    path_table,
    ranking_of,
    rows_of,
    worker_table,
)
from orsched.views.style import BUBBLES, DECODE_COLOURS, KEY, seconds

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule, Scheduled
    from orsched.data.service_classes import SLO, ServiceClass
    from orsched.data.workers import Worker
    from orsched.views.page_data import Chart


def facts(instance: Instance, slo: SLO | None) -> str:
    """Return the facts of the instance as a definition list."""
    requests, workers = instance.requests, instance.workers
    n, last = len(requests), int(requests.arrival_ns.max(initial=0))
    lines = [
        ("Requests", f"{n:,}"),
        ("Clients", f"{sum(w.clients for w in workers):,}"),
        ("Workers", f"{len(workers):,}"),
        ("Prompt tokens", _tokens(requests.prompt_tokens)),
        ("Output tokens", _tokens(requests.output_tokens)),
        ("Arrivals", _arrivals(instance, last)),
        ("First token", f"from {instance.first_token}"),
        ("Predicted lengths", prediction_words(requests)),
        ("Machine (cost model)", _each(cost_words(w.cost, w.clients) for w in workers)),
        ("Prefill cap", _each("none" if w.prefill_limit is None else f"{w.prefill_limit:,} tokens"
                              for w in workers)),
        ("Memory", _each(_memory(w) for w in workers)),
        *_limits(instance, slo),
        ("Padding", _each("yes" if w.padding else "no" for w in workers)),
    ]  # fmt: skip
    items = "".join(f"<div><dt>{k}</dt><dd>{text(v)}</dd></div>" for k, v in lines)
    about = f"<p>{text(instance.description)}</p>\n" if instance.description else ""
    return (
        f'{about}<dl class="facts">{items}</dl>\n'
        f'<p class="hash">Instance <b>{text(instance.name)}</b>, SHA-256 '
        f"<code>{instance.sha256}</code></p>\n"
    )


def _limits(instance: Instance, slo: SLO | None) -> list[tuple[str, str]]:
    """Return the limits that latencies are held against: one for all, and those of classes."""
    lines = []
    if slo is not None:
        pair = (("TTFT", slo.ttft_ns), ("TPOT", slo.tpot_ns))
        given = [f"{word} {ns / NS_PER_S:g} s" for word, ns in pair if ns is not None]
        given += [f"{each.name} {each.limit_ns / NS_PER_S:g} s" for each in slo.figures]
        lines.append(("Limits (SLO)", ", ".join(given)))
    if instance.names_classes:
        kinds = [f"{kind.name}: {limit_text(kind) or 'no limit'}" for kind in instance.classes]
        lines.append(("Classes", "; ".join(kinds)))
    return lines


def limit_text(kind: ServiceClass) -> str:
    """Return the limits of a class in words, ``TTFT 1 s, TPOT 0.05 s``; empty without any."""
    words = {"ttft_ns": "TTFT", "tpot_ns": "TPOT", "deadline_ns": "deadline"}
    limits = {word: getattr(kind, name) for name, word in words.items()}
    given = {word: ns for word, ns in limits.items() if ns is not None}
    return ", ".join(f"{word} {ns / NS_PER_S:g} s" for word, ns in given.items())


def _memory(worker: Worker) -> str:
    return "unlimited" if worker.memory is None else worker.memory.words


def _tokens(column: Any) -> str:
    if len(column) == 0:
        return "–"
    return f"{int(column.sum()) / len(column):,.1f} on average, at most {int(column.max()):,}"


def _each(values: Any) -> str:
    """Join the different values in order of first use."""
    return ", ".join(dict.fromkeys(values))


MOST_REQUESTS = 20_000
"""Instances with more requests get no bounds on means in a report: they take too long."""


def slo_of(schedules: Sequence[Schedule]) -> SLO | None:
    """Return the limits that the schedules were made with; None without any, or with several."""
    from orsched.data.service_classes import SLO

    given = [s.results["slo"] for s in schedules if isinstance(s.results.get("slo"), dict)]
    pairs = {(slo.get("ttft_ns"), slo.get("tpot_ns")) for slo in given}
    if len(pairs) != 1:
        return None
    pair = pairs.pop()
    return None if pair == (None, None) else SLO(ttft_ns=pair[0], tpot_ns=pair[1])


def bounds_on_means(instance: Instance, rows: Sequence[Row]) -> dict[str, list[int | None]]:
    """Return lower bounds on mean TTFT and JCT, by row; only what is above 0.

    They hold for what the schedule does (chunks, mixed steps, restarts). Runs have none: their
    worker may be faster than its model.
    """
    if not 0 < len(instance) <= MOST_REQUESTS:
        return {}
    found = {}
    for measure in ("ttft", "jct"):
        column = [_bound_ns(instance, row, f"mean_{measure}") for row in rows]
        if any(column):
            found[measure] = column
    return found


def _bound_ns(instance: Instance, row: Row, objective: str) -> int | None:
    from orsched.models.bounds.bounds import mean_bounds

    if row.violations or row.schedule.is_measured:
        return None
    found = mean_bounds(instance, row.schedule, [objective], None)
    return found[objective]["value_ns"] or None


def write_report(
    instance: Instance,
    schedules: Scheduled | Sequence[Scheduled],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    notes: Sequence[str] = (),
    slo: SLO | None = None,
    told: Callable[[str], None] | None = None,
) -> None:
    """Write an interactive page that compares schedules of one instance.

    The page holds tables of all schedules, distributions of latencies, and the attainment over the
    limits. Each schedule has a Gantt chart, charts over time and its client-time by use. Tables of
    latency come first where requests arrive over time or limits are given. The words are explained.
    All numbers are computed again and every schedule is checked; exact values are in ``data-``
    attributes. Equal input gives equal bytes; what comes from the ``run`` blocks of the schedules
    is in the element ``orsched-run``, but for the status.

    Args:
        instance: the problem.
        schedules: one or more schedules for it, or results.
        path: the HTML file.
        title: heading; None: the name of the instance.
        notes: statements to print at the top, such as that ordering cannot help.
        slo: limits to report the attainment of; None: those that all schedules were made with.
        told: called with the name of each part of the work as it begins; bounds on the means of an
            instance with arrivals take seconds.

    Raises:
        InputError: no schedule, a schedule for another instance, or the file cannot be written.
        MissingDependencyError: plotly is missing.

    >>> case = orsched.load("gate")
    >>> orsched.write_report(case, orsched.solve(case, "fcfs"), "report.html")
    """
    from orsched.files.document import write_text

    schedules = as_schedules(schedules)
    instance = served_instance(instance, schedules)
    if not schedules:
        raise InputError("no schedule to report", field="schedules", remedy="give one")
    for k, schedule in enumerate(schedules):
        try:
            require_same_instance(instance, schedule)
        except InputError as error:
            raise error.located(row=k) from None
    limits = slo_of(schedules) if slo is None else slo
    tell = told or (lambda what: None)
    tell("checking")
    rows = rows_of(instance, schedules, limits)
    tell("bounding means")
    bounds = bounds_on_means(instance, rows)
    tell("writing")
    parts = {
        "heading": text(title if title is not None else f"Schedules for {instance.name}"),
        "facts": facts(instance, limits),
        "notes": _notes([*notes, *_findings(instance, rows)]),
        "tables": _tables(instance, rows, bounds),
        **_charts(instance, rows, limits),
    }
    # Its policy lets nothing be loaded: it works offline and reports nothing about its reader.
    write_text(path, [Template(_asset("page.html")).substitute(parts)])


def _charts(instance: Instance, rows: list[Row], slo: SLO | None) -> dict[str, str]:
    """Return the parts of the page that charts are drawn in, their data, and the scripts."""
    latencies = latency_data(instance, [row.schedule for row in rows], slo)
    charts = [chart_of(instance, row.schedule, len(rows)) for row in rows]
    pairs, paths = pairs_of(instance, rows), path_table(instance, rows)
    data = {**_data(instance, rows, charts), "latency": latencies}
    if pairs:
        data["pairs"] = pair_data(pairs)
    tabs, panels = _panels(rows, charts)
    last = f"<script>\n{_asset('plan_and_run.js')}</script>\n" if pairs else ""
    path = f"<section><h2>What the makespan is made of</h2>\n{paths}</section>\n" if paths else ""
    return {
        "css": _asset("page.css"),
        "latencies": _latencies() if latencies else "",
        "tabs": tabs,
        "key": _key(rows, charts),
        "panels": panels,
        "plan_and_run": section(pairs, rows),
        "bubbles": bubble_table(rows),
        "batches": batch_table(rows) + worker_table(instance, rows),
        "paths": path,
        "words": _asset("words.html").replace("\n", ""),
        "data": _block("orsched-data", data),
        "runs": _block("orsched-run", [row.schedule.run for row in rows]),
        "plotly": _plotly(),
        "script": "\n".join(_asset(f"{name}.js") for name in _SCRIPTS),
        "last_script": last,
    }


def _tables(instance: Instance, rows: list[Row], bounds: dict[str, list[int | None]]) -> str:
    """Return the tables with a row a schedule; first the one that decides which is the best."""
    ranking = ranking_of(instance, rows)
    latency_first = ranking.name != "makespan"
    makespans = makespan_table(rows, ranking, badged=not latency_first)
    latencies = latency_table(rows, ranking, badged=latency_first, bounds=bounds)
    tables = [latencies, makespans] if latency_first else [makespans, latencies]
    return "\n".join([*tables, class_table(rows, ranking.rivals)])


def _latencies() -> str:
    """Return the empty charts of latencies, all schedules in each."""
    shown = {name: f"by {words}" for name, (_, words) in MEASURES.items()}
    shown["attainment"] = "within the limits, over these limits"
    charts = "".join(
        f'<div id="latency-{name}" role="img" aria-label="Share of requests {words}"></div>'
        for name, words in shown.items()
    )
    return (
        '<section id="latencies"><h2>Latency of requests</h2>\n<ul class="key" id="latency-key">'
        f'</ul>\n<div class="quarters">{charts}</div></section>\n'
    )


_SCRIPTS = (
    "theme", "telling", "time_axis", "lanes", "gantt", "gantt_panel", "over_time", "latency",
    "sorting", "page",
)  # fmt: skip
"""Parts of the page's script, in order: each uses what the ones before it define."""


def _asset(name: str) -> str:
    return files("orsched.views").joinpath(name).read_text(encoding="utf-8")


def require_plotly() -> None:
    """Raise ``MissingDependencyError`` if plotly is missing."""
    try:
        import plotly.offline  # noqa: F401
    except ImportError as error:
        raise unavailable(error, "the report needs plotly: pip install plotly") from None


def _plotly() -> str:
    require_plotly()
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _block(name: str, value: Any) -> str:
    """Return JSON that no label can end early: inside it there is no ``<``, ``>`` or ``&``."""
    packed = json.dumps(value, separators=(",", ":"), allow_nan=False, sort_keys=True)
    for character in "<>&":
        packed = packed.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{name}">{packed}</script>\n'


def _data(instance: Instance, rows: list[Row], charts: list[Chart]) -> dict[str, Any]:
    methods = []
    for row, chart in zip(rows, charts, strict=True):
        bubbles, bound = row.results["bubble_ns"], row.results["bound_ns"]
        methods.append(
            {
                "label": row.label,
                "makespan": row.results["makespan_ns"],
                "bound": bound,
                "use": [row.results["busy_client_ns"], *(bubbles[name] for name in BUBBLES)],
                **chart.columns,
            }
        )
    uses = [["busy", DECODE_COLOURS[0]], *map(list, BUBBLES.values())]
    return {"instance": instance_data(instance), "uses": uses, "methods": methods}


def _findings(instance: Instance, rows: list[Row]) -> list[str]:
    """Return what the numbers prove by themselves: of a run never that it is the shortest."""
    found = []
    for row in rows:
        bound, makespan = row.results["bound_ns"], row.results["makespan_ns"]
        stated = row.schedule.bound
        if row.violations:
            continue
        if row.part:
            found.append(f"{row.label} was stopped: {row.part}.")
        elif bound is None or stated is None:
            continue
        elif not row.schedule.is_measured and makespan == bound:
            found.append(
                f"{row.label} meets the lower bound: it is the shortest among "
                f"{schedules_of(stated['certificate'])}."
            )
        elif row.schedule.is_measured and makespan < bound:
            found.append(
                f"{row.label} ended before the lower bound, which is one by the times of the cost "
                "model: the worker was faster than its model."
            )
    return [*found, *_last_arrival(instance, rows)]


def _arrivals(instance: Instance, last_ns: int) -> str:
    if not instance.arrivals_follow:
        return f"until {seconds(last_ns)}" if last_ns else "all at the start"
    most = instance.concurrency
    return "when others have ended" + ("" if most is None else f", {most:,} at a time")


def _last_arrival(instance: Instance, rows: list[Row]) -> list[str]:
    """Say whose makespan is the last arrival's: it tells nothing about the method then."""
    decided = [row for row in rows if arrivals_decide(instance, row.schedule.makespan_ns)]
    if not decided:
        return []
    of = "" if len(decided) == len(rows) else f" of {', '.join(row.label for row in decided)}"
    last = seconds(int(instance.requests.arrival_ns.max()))
    return [
        f"The makespan{of} is the last arrival's, at {last}: arrivals decide it, not the method."
    ]


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="note" role="note">{text(n)}</p>\n' for n in notes)


def _panels(rows: list[Row], charts: list[Chart]) -> tuple[str, str]:
    """Return the tabs and one empty panel a schedule; the script draws a panel when it is shown."""
    tabs, panels = [], []
    for k, row in enumerate(rows):
        chosen, label = k == 0, text(row.label)
        tabs.append(
            f'<button type="button" role="tab" id="tab-{k}" aria-controls="panel-{k}" '
            f'aria-selected="{str(chosen).lower()}" tabindex="{0 if chosen else -1}">'
            f"{label}</button>"
        )
        panels.append(
            f'<div role="tabpanel" id="panel-{k}" aria-labelledby="tab-{k}"'
            f'{"" if chosen else " hidden"}><p class="part" hidden></p>'
            '<p class="folded" hidden><label><input type="checkbox"> <span></span></label></p>'
            f'<div class="gantt" id="gantt-{k}" role="group" aria-label="Gantt chart of {label}">'
            f'</div><div class="usage" id="usage-{k}" role="group" aria-label="Clients by use, '
            f'requests that wait and run, and KV blocks over time of {label}"></div>'
            f"{_class_chart(row, charts[k], k)}</div>"
        )
    return "".join(tabs), "".join(panels)


def _class_chart(row: Row, chart: Chart, index: int) -> str:
    """Return the empty chart of what classes get over time, if there is something to show."""
    if "classes" not in chart.columns:
        return ""
    return (
        f'<div class="usage" id="classes-{index}" role="group" aria-label="Attainment, memory by '
        f'owner, bulk tokens and service over time of {text(row.label)}"></div>'
    )


def _key(rows: list[Row], charts: list[Chart]) -> str:
    """Explain the colours; rare kinds of work where they occur."""
    results = [row.results for row in rows]
    occurs = {
        "bulk": any("bulk" in chart.columns["decode"] for chart in charts),
        "mixed": any(r["mixed_steps"] for r in results),
        "paused": any(chart.has_pauses for chart in charts),
        "invalid": any(r["invalid_tokens"] for r in results),
        "transfer": False,
        "restart": any(r["restarts"] for r in results),
        "bound": any(row.schedule.bound is not None for row in rows),
    }
    words = {**KEY, "decode": "decode, one bar a request"}
    words["end"] = words.pop("end")  # last
    items = [(name, word) for name, word in words.items() if occurs.get(name, True)]
    listed = "".join(f'<li><i class="{name}"></i>{word}</li>' for name, word in items)
    return f'<ul class="key">{listed}</ul>\n'
