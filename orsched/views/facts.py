"""The facts of an instance at the head of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.calibration.descriptions import cost_words
from orsched.common.units import NS_PER_S
from orsched.data.service_classes import limit_text
from orsched.views.comparison import text
from orsched.views.style import seconds
from orsched.views.tables import prediction_words

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.slo import SLO
    from orsched.data.workers import Worker


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
        ("Arrivals", f"until {seconds(last)}" if last else "all at the start"),
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
        lines.append(("Limits (SLO)", ", ".join(given) or "none"))
    if instance.names_classes:
        kinds = [f"{kind.name}: {limit_text(kind) or 'no limit'}" for kind in instance.classes]
        lines.append(("Classes", "; ".join(kinds)))
    return lines


def _memory(worker: Worker) -> str:
    return "unlimited" if worker.memory is None else worker.memory.words


def _tokens(column: Any) -> str:
    if len(column) == 0:
        return "–"
    return f"{int(column.sum()) / len(column):,.1f} on average, at most {int(column.max()):,}"


def _each(values: Any) -> str:
    """Join the different values in order of first use."""
    return ", ".join(dict.fromkeys(values))
