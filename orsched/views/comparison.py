"""The comparison of schedules as HTML tables with exact, machine-readable numbers."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from orsched.views.style import BUBBLES, one_line, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.slo import SLO


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
    """Compute every number anew from the schedules and check each of them."""
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


def text(value: str) -> str:
    """Return a label as HTML text on one line."""
    return escape(one_line(value), quote=True)


def cell(shown: str, **data: float | str | None) -> str:
    """Return a number cell; the exact values stand in ``data-`` attributes."""
    values = "".join(
        f' data-{name.replace("_", "-")}="{escape(str(value), quote=True)}"'
        for name, value in data.items()
        if value is not None
    )
    return f"<td{values}>{shown}</td>"


def verdict(row: Row) -> str:
    """Return what the checker says; of a run, what it could not say."""
    found = row.violations
    said = "yes" if found == 0 else f"no: {found} violation{'s' if found > 1 else ''}"
    if row.schedule.is_measured:
        said += "; times not checked"
    return f"{said}; {row.part}" if row.part else said


def bubble_table(rows: Sequence[Row]) -> str:
    """Return the table of busy client-time and bubbles by cause."""
    heads = ["Method", "Busy", *(word.capitalize() for word, _ in BUBBLES.values())]
    body = []
    for row in rows:
        bubbles, busy = row.results["bubble_ns"], row.results["busy_client_ns"]
        total = busy + sum(bubbles.values())
        cells = [f'<th scope="row">{text(row.label)}</th>']
        for name, value in {"busy": busy, **{k: bubbles[k] for k in BUBBLES}}.items():
            share = percent(value / total if total else None)
            cells.append(cell(share, field=name.replace("_", "-"), ns=value))
        body.append(f"<tr>{''.join(cells)}</tr>")
    return table(
        "bubbles-table", "Client-time by use, as shares of clients × makespan", heads, body
    )


def batch_table(rows: Sequence[Row]) -> str:
    """Return the table of batches, restarts, tokens without use, workers and memory."""
    heads = [
        "Method", "Requests a prefill", "Requests a round", "Mixed steps", "Restarts",
        "Invalid tokens", "Pad tokens", "Workers end from", "to", "Standard deviation",
        "KV blocks, peak", "KV blocks, mean",
    ]  # fmt: skip
    body = []
    for row in rows:
        results = row.results
        sizes, ends, blocks = results["batch_size"], results["worker_end_ns"], results["kv_blocks"]
        cells = [f'<th scope="row">{text(row.label)}</th>']
        for name in ("prefill", "decode"):
            cells.append(cell(_decimal(sizes[name]), field=f"batch-{name}", value=sizes[name]))
        for name in ("mixed_steps", "restarts", "invalid_tokens", "pad_tokens"):
            field, value = name.replace("_", "-"), results[name]
            cells.append(cell(f"{value:,}", field=field, value=value))
        for name in ("min", "max", "std"):
            cells.append(cell(short_time(ends[name]), field=f"worker-end-{name}", ns=ends[name]))
        for name in ("peak", "mean"):
            value = None if blocks is None else blocks[name]
            cells.append(cell(_decimal(value), field=f"kv-{name}", value=value))
        body.append(f"<tr>{''.join(cells)}</tr>")
    return table("batches", "Means, counts and sums of each schedule", heads, body)


def _decimal(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


MOST_STEPS_ON_PATH = 20_000
"""Schedules with more steps get no line in the table of critical paths: the graph grows large."""


def path_table(instance: Instance, rows: Sequence[Row]) -> str:
    """Return the table of critical paths: what the makespan is made of, by kind of stage."""
    from orsched.models.bounds.precedence import critical_path_summary

    heads = [
        "Method", "Prefill stages", "Mixed steps", "Decode rounds", "Idle", "Length",
        "Busiest client",
    ]  # fmt: skip
    body = []
    for row in rows:
        if not 0 < len(row.schedule.steps) <= MOST_STEPS_ON_PATH or row.violations:
            continue
        path = critical_path_summary(instance, row.schedule)
        cells = [f'<th scope="row">{text(row.label)}</th>']
        for name in ("prefill_ns", "mixed_ns", "decode_ns", "idle_ns", "length_ns"):
            cells.append(cell(seconds(path[name]), field=name.replace("_", "-"), ns=path[name]))
        busiest = path["longest_client"]
        busy = seconds(busiest["busy_ns"])
        client = str(busiest["client"])
        if len(instance.workers) > 1:
            client = f"{text(instance.workers[busiest['worker']].name)}, {client}"
        cells.append(f"<td>{client}: {busy} with {len(busiest['requests'])} requests</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    return table("path-table", "The critical path of each schedule", heads, body) if body else ""


def short_time(ns: float) -> str:
    """Return a time in the unit that suits it: s, ms, µs or ns."""
    if ns >= 1_000_000_000:
        return seconds(int(ns))
    if 0 < ns < 1000:
        return f"{ns:.3g} ns"
    return f"{ns / 1_000_000:.1f} ms" if ns >= 1_000_000 else f"{ns / 1_000:.1f} µs"


_LEFT = ' class="word"'
_WORDS = ("Information", "Status", "Checked", "Class", "Term")
"""Heads of columns of words; these stand to the left."""


def table(name: str, caption: str, heads: Sequence[str], body: Iterable[str]) -> str:
    """Return a table that scrolls sideways where it does not fit, with a name and a caption."""
    head = "".join(
        f'<th scope="col"{_LEFT if name in _WORDS else ""}>{name}</th>' for name in heads
    )
    return (
        f'<div class="scroll"><table id="{name}"><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )
