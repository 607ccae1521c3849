"""What ``orsched run`` prints and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import write_artefacts
from orsched.cli.output import print_rows
from orsched.units import NS_PER_S

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.runner.execution import Ran


def print_run(done: Ran, style: str) -> None:
    """Print the run's row."""
    print_rows([run_row(done)], style, single=True)
    for violation in done.violations[:3]:
        click.echo(f"orsched: {violation.kind}: {violation.message}", err=True)


def run_row(done: Ran) -> dict[str, Any]:
    """Return the figures of a run."""
    trace, plan, block = done.trace, done.plan, done.trace.run
    gaps = block["gap_ns"]
    return {
        "method": trace.method,
        "information": trace.information,
        "device": block["device"],
        "model": block.get("model", "-"),
        "plan_s": plan.makespan_ns / NS_PER_S,
        "run_s": trace.makespan_ns / NS_PER_S,
        "slot_utilization": trace.results["slot_utilization"],
        "busy_share": block["busy_share"],
        "gap_p99_us": None if gaps is None else gaps["p99"] / 1000,
        "tokens_per_s": trace.results["tokens_per_s"],
        "checked": not done.violations,
    }


def write_run(done: Ran, paths: dict[str, Path | None]) -> None:
    """Write what was asked for."""
    write_artefacts(done.instance, done.trace, {k: v for k, v in paths.items() if k != "errors"})
