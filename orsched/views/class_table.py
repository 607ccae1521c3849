"""The table of figures by service class: one row a schedule and class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.views.comparison import cell, short_time, table, text
from orsched.views.style import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orsched.views.comparison import Row


class Figure(NamedTuple):
    """A column: its heading, its name in the page, where its value is, and which end is better.

    ``better`` is ``min``, ``max``, or None where no end is; times are in nanoseconds.
    """

    head: str
    field: str
    path: tuple[str, ...]
    better: str | None = None
    kind: str = "share"


FIGURES = (
    Figure("Requests", "requests", ("requests",), kind="count"),
    Figure("TTFT mean", "ttft-mean", ("ttft_ns", "mean"), "min", "time"),
    Figure("TTFT p99", "ttft-p99", ("ttft_ns", "p99"), "min", "time"),
    Figure("TPOT p99", "tpot-p99", ("tpot_ns", "p99"), "min", "time"),
    Figure("Within limits", "attainment", ("slo", "attainment"), "max"),
    Figure("Tokens in time", "token-attainment", ("slo", "token_attainment"), "max"),
    Figure("Deadlines met", "deadlines", ("deadline", "attainment"), "max"),
    Figure("Tokens/s", "tokens-per-s", ("tokens_per_s",), "max", "count"),
    Figure("Computed again", "recomputed", ("recomputed_tokens",), kind="count"),
    Figure("Hits", "hit-rate", ("hit_rate",)),
)

_SHOW: dict[str, Callable[[Any], str]] = {
    "share": percent,
    "count": lambda value: "–" if value is None else f"{value:,.0f}",
    "time": lambda value: "–" if value is None else short_time(value),
}


def class_table(rows: Sequence[Row], rivals: Iterable[int] = ()) -> str:
    """Return the table; empty without classes.

    The best figure of each class among the rivals, numbers of rows, is marked.
    """
    parts = [(k, name, part) for k, row in enumerate(rows) for name, part in _classes(row)]
    competing = set(rivals)
    best = _best([(name, part) for k, name, part in parts if k in competing])
    body = []
    for k, name, part in parts:
        cells = [f'<th scope="row">{text(rows[k].label)}</th><td class="word">{text(name)}</td>']
        for figure in FIGURES:
            value = _value(part, figure)
            marked = k in competing and value is not None
            is_best = marked and best.get((name, figure.field)) == value
            cells.append(_cell(figure, value, is_best=is_best))
        body.append(f"<tr>{''.join(cells)}</tr>")
    heads = ["Method", "Class", *(figure.head for figure in FIGURES)]
    return table("classes-table", "Requests by class", heads, body) if body else ""


def _best(parts: list[tuple[str, dict[str, Any]]]) -> dict[tuple[str, str], float]:
    """Return the best figures by class and field; none where all are alike."""
    best = {}
    for figure in FIGURES:
        by_class: dict[str, set[float]] = {}
        for name, part in parts:
            value = _value(part, figure)
            if value is not None:
                by_class.setdefault(name, set()).add(value)
        for name, values in by_class.items():
            if figure.better and len(values) > 1:
                best[name, figure.field] = min(values) if figure.better == "min" else max(values)
    return best


def _classes(row: Row) -> Iterable[tuple[str, dict[str, Any]]]:
    return (row.results.get("classes") or {}).items()


def _value(part: dict[str, Any], figure: Figure) -> float | None:
    found: Any = part
    for name in figure.path:
        found = None if found is None else found.get(name)
    return None if found is None or (figure.field == "hit-rate" and not found) else found


def _cell(figure: Figure, value: float | None, *, is_best: bool) -> str:
    shown = _SHOW[figure.kind](value)
    if is_best:
        shown = f'<b class="best" title="best of this class">{shown}</b>'
    exact = {"ns": value} if figure.kind == "time" else {"value": value}
    return cell(shown, field=figure.field, **exact)
