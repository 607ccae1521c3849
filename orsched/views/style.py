"""Colours and words that all pictures of schedules share.

The colours are Okabe and Ito's, chosen so that they also differ in lightness: a picture stays
readable for the colour-blind and in print.
"""

from __future__ import annotations

from typing import Any

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

WORKER_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999",
)  # fmt: skip

LINE_STYLES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)),
)  # fmt: skip
"""Lines beside each other differ in these as well as in colour."""


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
