"""HTML tables: what all are made of, and small ones of instances and schedules for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from orsched.calibration.catalogue import cost_words
from orsched.common.units import ns_to_seconds, seconds_text
from orsched.metrics.flat_figures import flat_figures
from orsched.views.pictures import verdict_of
from orsched.views.style import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.data.instance import Instance
    from orsched.data.requests import Requests
    from orsched.data.schedule import Schedule
    from orsched.data.workers import Worker


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


def table_row(label: str, cells: Iterable[str]) -> str:
    """Return a row of cells with its head."""
    return f'<tr><th scope="row">{label}</th>{"".join(cells)}</tr>'


_WORDS = ("Information", "Status", "Checked", "Class", "Term")
"""Heads of columns of words; these stand to the left."""


def table(name: str, caption: str, heads: Sequence[str], body: Iterable[str]) -> str:
    """Return a table that scrolls sideways where it does not fit, with a name and a caption."""
    left = ' class="word"'
    head = "".join(f'<th scope="col"{left if name in _WORDS else ""}>{name}</th>' for name in heads)
    return (
        f'<div class="scroll"><table id="{name}"><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def instance_html(instance: Instance) -> str:
    """Return the key figures of an instance as an HTML table."""
    figures = instance.summary()
    rows = [
        ("Requests", f"{figures['requests']:,}"),
        ("Prompt tokens, mean", f"{figures['prompt_tokens_mean']:.1f}"),
        ("Output tokens, mean", f"{figures['output_tokens_mean']:.1f}"),
        ("Last arrival", f"{seconds_text(figures['last_arrival_s'])} s"),
        ("Predictions", prediction_words(instance.requests)),
        ("First token", f"from {figures['first_token']}"),
        *((worker.name, _worker(worker)) for worker in instance.workers[:10]),
    ]
    if len(instance.workers) > 10:
        rows.append(("Further workers", str(len(instance.workers) - 10)))
    rows.append(("SHA-256", figures["sha256"][:12]))
    return html_table(f"Instance {instance.name}", rows)


def prediction_words(requests: Requests) -> str:
    """Say whether lengths are predicted, and at which levels their distributions."""
    if requests.quantile_levels is not None:
        return f"yes, quantiles {', '.join(f'{level:g}' for level in requests.quantile_levels)}"
    return "no" if requests.predicted_tokens is None else "yes"


def schedule_html(schedule: Schedule) -> str:
    """Return the key figures of a schedule as an HTML table."""
    results = schedule.results
    rows = [
        ("Instance", f"{schedule.instance_name} ({schedule.instance_sha256[:12]})"),
        ("Information", schedule.information),
        ("Seed", str(schedule.seed)),
        ("Makespan", f"{seconds_text(ns_to_seconds(schedule.makespan_ns))} s"),
    ]
    if schedule.is_measured:
        part = "; stopped before all requests were done" if schedule.is_partial else ""
        rows.append(("Times", f"measured{part}"))
    if isinstance(utilization := results.get("slot_utilization"), float):
        rows.append(("Slot utilization", f"{utilization:.2%}"))
    if schedule.bound is not None:
        value = f"{seconds_text(ns_to_seconds(schedule.bound['value_ns']))} s"
        rows.append((f"Bound {schedule.bound['name']}", value))
    gap, stopped = results.get("gap"), schedule.is_measured and schedule.is_partial
    verdict = None if schedule.is_measured else verdict_of(schedule)
    if isinstance(gap, (int, float)) and gap >= 0 and not stopped:
        closed = verdict is not None and verdict.closes_gap
        rows.append(
            ("Gap", f"0.00% (to the certified bound: {gap:.2%})" if closed else f"{gap:.2%}")
        )
    if verdict is not None:
        rows.append(("Status", verdict.words))
    rows += _latency_rows(results)
    rows += [
        (label, f"{results[name]:,}")
        for name, label, always in (
            ("prefill_stages", "Prefill stages", True),
            ("decode_rounds", "Rounds", True),
            ("mixed_steps", "Mixed steps", False),
            ("restarts", "Restarts", False),
            ("invalid_tokens", "Invalid tokens", False),
            ("pad_tokens", "Pad tokens", False),
        )
        if isinstance(results.get(name), int) and (results[name] or always)
    ]
    rows.append(("Steps", f"{len(schedule.steps):,}"))
    return html_table(f"Schedule by {schedule.method}", rows)


def _latency_rows(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what people who serve models ask for; nothing of what is not defined."""
    figures = _figures(results)
    rows = []
    for name, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("jct", "JCT")):
        spread = [figures.get(f"{name}_{each}_s") for each in ("mean", "p50", "p99")]
        if None not in spread:
            digits = 4 if name == "tpot" else 3
            text = " / ".join(seconds_text(value, digits) for value in spread if value is not None)
            rows.append((f"{label} mean / p50 / p99", f"{text} s"))
    gaps = [figures.get(f"itl_{each}_s") for each in ("p50", "p99", "max")]
    if None not in gaps:
        text = " / ".join(seconds_text(value, 4) for value in gaps if value is not None)
        rows.append(("ITL p50 / p99 / max", f"{text} s"))
    attainment = figures.get("slo_attainment")
    if attainment is not None:
        rows.append(("Requests within the limits", f"{attainment:.2%}"))
    if figures.get("goodput_per_s") is not None:
        rows.append(("Goodput", f"{figures['goodput_per_s']:,.3f} requests/s"))
    if figures.get("tokens_per_s") is not None:
        rows.append(("Output tokens", f"{figures['tokens_per_s']:,.1f} tokens/s"))
    return rows


def _figures(results: dict[str, Any]) -> dict[str, float]:
    """Return the figures that are numbers: a file may say anything."""
    try:
        found = flat_figures(results)
    except (AttributeError, KeyError, OverflowError, TypeError):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, (int, float))}


def html_table(title: str, rows: list[tuple[str, Any]]) -> str:
    """Return a two-column HTML table with a caption; all texts are escaped."""
    body = "".join(
        f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>"


def _worker(worker: Worker) -> str:
    parts = [f"{worker.clients:,} clients", cost_words(worker.cost, worker.clients)]
    if worker.prefill_limit is not None:
        parts.append(f"prefill up to {worker.prefill_limit:,} tokens")
    if worker.memory is not None:
        parts.append(worker.memory.words)
    if worker.padding:
        parts.append("padded")
    return ", ".join(parts)
