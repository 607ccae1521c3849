"""Colours and words that all pictures share; names and units of figures on axes.

The colours, Okabe and Ito's, also differ in lightness: for the colour-blind and for print.
"""

from __future__ import annotations

import re
from math import inf
from typing import Any, NamedTuple

from orsched.common.units import NS_PER_S, seconds_text

DECODE_COLOURS = ("#0072B2", "#56B4E9")
"""Successive requests of a client alternate between the two, so that borders are visible."""

BULK_COLOURS = ("#009E73", "#7FCEB9")
"""The same for bulk requests, beside others that are not; hatched besides."""

BULK_HATCH = "\\\\"
OWNERS = {
    "interactive": ("interactive running", DECODE_COLOURS[0]),
    "bulk": ("bulk running", BULK_COLOURS[0]),
    "running": ("running", DECODE_COLOURS[0]),
    "cached": ("cached, free", "#F0E442"),
}
"""Word and colour of each owner of memory, from the bottom of a stack."""

PREFILL_COLOUR = "#000000"
STAGE_COLOUR = "#E69F00"
MIXED_OPACITY = 0.15
"""Mixed steps are stripes as well, but lighter: the other clients go on decoding."""

INVALID_COLOUR = "#882255"
INVALID_HATCH = "////"
PAUSED_COLOUR = "#A9A9A9"
TRANSFER_COLOUR = "#CC79A7"
RESTART_COLOUR = "#D55E00"
IDLE_COLOUR = "#EBE5DA"
FOLDED_COLOUR = "#F5F2EC"
BOUND_COLOUR = "#D55E00"
LAST_COLOUR = "#B3003C"
MAKESPAN_COLOUR = "#000000"
LIMIT_COLOUR = "#444444"
"""Limits on latencies: no line of a method has this colour."""

BUBBLES = {
    "waiting_for_prefill": ("waiting for prefill", "#E69F00"),
    "other_prefill": ("paused for others", "#CC79A7"),
    "no_request": ("no request", "#999999"),
    "tail": ("tail", "#F0E442"),
    "invalid": ("invalid tokens", INVALID_COLOUR),
}
"""Word and colour of each cause of bubbles."""


USES = {
    "decode": ("decode", DECODE_COLOURS[0]),
    "prefill": ("prefill", PREFILL_COLOUR),
    "invalid": ("invalid tokens", INVALID_COLOUR),
    "paused": ("paused for others", PAUSED_COLOUR),
}
"""Word and colour of each use of clients, from the bottom of a stack."""

KEY = {
    "decode": "decode",
    "bulk": "decode of a bulk request",
    "own": "own prefill",
    "stage": "prefill stage",
    "mixed": "mixed step",
    "paused": "paused",
    "invalid": "invalid tokens",
    "transfer": "cache on its way",
    "restart": "restart",
    "idle": "bubble: no request",
    "end": "makespan",
    "bound": "lower bound",
}
"""What is explained below a Gantt chart."""

MOST_OF_DATA = 3
"""A limit above so many times the largest value is not drawn in its place but at the border."""

WORKER_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999",
)  # fmt: skip

LINE_STYLES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)),
)  # fmt: skip
"""Lines beside each other differ in these as well as in colour."""


DASHES = ("solid", "dash", "dashdot", "dot")
"""The same for lines that a colour alone tells apart, by their names in Plotly."""


def line_look(place: int) -> dict[str, Any]:
    """Return colour and line style of the line with that number."""
    colours, styles = len(WORKER_COLOURS), len(LINE_STYLES)
    # After all colours the styles move on by one, so that many lines stay different.
    return {
        "color": WORKER_COLOURS[place % colours],
        "linestyle": LINE_STYLES[(place + place // colours) % styles],
    }


def seconds(ns: int, digits: int = 4) -> str:
    """Return a time in seconds with at least so many significant digits, for people."""
    value = ns / NS_PER_S
    decimals = max(0, digits - len(str(int(value)))) if value >= 1 else digits
    return f"{seconds_text(value, decimals)} s"


def short(value: float) -> str:
    """Return a number with at most three significant digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{float(f'{value:.3g}'):,}".removesuffix(".0")


def percent(value: float | None) -> str:
    """Return a share as per cent, or a dash."""
    return "–" if value is None else f"{100 * value:.1f} %"


def gap_text(value: float | None) -> str:
    """Return a gap as per cent with two decimals, or a dash."""
    return "–" if value is None else f"{100 * value:.2f} %"


def one_line(text: str) -> str:
    """Return a label without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shortened(text: str, limit: int) -> str:
    """Return a label of one line with at most so many letters."""
    plain = one_line(text)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


class AxisName(NamedTuple):
    """How a column is shown: name with unit, and the ``factor`` that values are multiplied by.

    ``better``: 1 if more of it is better, -1 if less is; ``most`` is the largest possible value.
    """

    words: str
    factor: float = 1.0
    better: int = 0
    most: float = inf


_PER_NS = 1 / NS_PER_S
_NAMES = {
    "makespan_ns": AxisName("makespan (s)", _PER_NS, -1),
    "makespan_s": AxisName("makespan (s)", 1, -1),
    "bound_ns": AxisName("lower bound of the makespan (s)", _PER_NS),
    "bound_s": AxisName("lower bound of the makespan (s)"),
    "gap": AxisName("gap to the bound (%)", 100, -1),
    "itl_max_ns": AxisName("largest gap between tokens (s)", _PER_NS, -1),
    "itl_max_s": AxisName("largest gap between tokens (s)", 1, -1),
    "tokens_per_s": AxisName("throughput (output tokens/s)", 1, 1),
    "goodput_per_s": AxisName("goodput (requests within the limits/s)", 1, 1),
    "slo_attainment": AxisName("SLO attainment (%)", 100, 1, 100),
    "slo_goodput_per_s": AxisName("goodput (requests within the limits/s)", 1, 1),
    "slot_utilization": AxisName("slot utilization (%)", 100, 1, 100),
    "hit_rate": AxisName("prompt tokens found in the cache (%)", 100, 1, 100),
    "arrivals_rate": AxisName("arrivals (requests/s)"),
    "arrivals_cv": AxisName("variation of times between arrivals"),
    "workers": AxisName("workers"),
    "kv_blocks_peak": AxisName("KV blocks, most at once", 1, -1),
}
_LATENCY = re.compile(r"(ttft|tpot|jct)_(?:ns_(mean|p\d+|max)|(mean|p\d+|max)_s)")
_PREFIX = re.compile(r"^(instance|param)_")


def axis_name(column: str) -> AxisName:
    """Return the name, with its unit, of a column of rows, tables or choices, or its own words.

    Columns in ``_ns`` are shown in seconds, shares of the table in per cent.
    """
    if column in _NAMES:
        return _NAMES[column]
    found = _LATENCY.fullmatch(column)
    if found:
        name, in_ns, in_s = found.groups()
        statistic = "mean" if "mean" in (in_ns, in_s) else in_ns or in_s
        return AxisName(f"{name.upper()} {statistic} (s)", _PER_NS if in_ns else 1.0, -1)
    words = _PREFIX.sub("", column)
    in_ns, in_s = re.search(r"_ns(?=_|$)", words), words.endswith("_s")
    words = re.sub(r"_ns(?=_|$)", "", words)
    words = (words.removesuffix("_s") if in_s else words).replace("_", " ").strip()
    return AxisName(f"{words} (s)" if in_ns or in_s else words, _PER_NS if in_ns else 1.0)
