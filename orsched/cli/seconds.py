"""Times on the command line: seconds, and a word where milliseconds were probably meant."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from orsched.cli.output import say


class _Seconds(click.types.FloatParamType):
    """A number of seconds; one with a unit is refused with the number to write."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return float(value)
        except ValueError:
            found = _WITH_UNIT.fullmatch(value.strip())
        remedy = "e.g. 0.5"
        if found:
            remedy = f"write {float(found[1]) * _UNITS[found[2].lower()]:g}"
        raise click.BadParameter(f"{value!r} is not a number of seconds: {remedy}", ctx, param)


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) *(us|ms|s|sec|m|min|h)", re.IGNORECASE)
SECONDS = _Seconds()


def note_milliseconds(ttft_s: float | None, tpot_s: float | None) -> None:
    """Say on stderr where a limit looks like milliseconds: all times here are in seconds."""
    for flag, value, least in (("--slo-ttft", ttft_s, 100), ("--slo-tpot", tpot_s, 2)):
        if value is not None and least <= value < math.inf:
            say(
                f"{flag} {value:g} is {value:g} seconds; if milliseconds were meant, "
                f"write {value / 1000:g}",
                "note",
            )
