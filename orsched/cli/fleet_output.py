"""The block about workers that come and go below the table of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orsched.cli.output import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.solving.result import Result

_SHOWN = ("worker_s", "starts", "lost_steps", "lost_s", "restarts")


def print_fleet(results: Sequence[Result], style: str) -> None:
    """Print a line for each method: worker-seconds, what failures cost, how often work restarted.

    Only below a table, where workers fail, are repaired, or are started and drained.
    """
    if style != "table":
        return
    rows = []
    for result in results:
        fleet, row = result.schedule.results.get("fleet"), result.to_row()
        if fleet is not None:
            used = {
                "method": row["method"],
                "busy": f"{100 * (fleet['utilization'] or 0):.2f} %",
            }
            rows.append({**used, **{name: row[name] for name in _SHOWN}})
    if rows:
        kept = [name for name in rows[0] if any(row[name] is not None for row in rows)]
        click.echo("\n" + table([{name: row[name] for name in kept} for row in rows]))
