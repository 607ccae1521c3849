"""What ``orsched run`` prints and writes."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import write_artefacts, write_comparison, write_plan_and_run
from orsched.cli.output import print_rows, printable, remark, say, table
from orsched.common.units import NS_PER_MS, NS_PER_S
from orsched.metrics.flat_figures import flat_figures

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.calibration.plan_errors import PlanAgainstRun
    from orsched.runner.execution import RunResult


def print_run(done: RunResult, against: PlanAgainstRun, style: str) -> None:
    """Print the run's row, then plan against run (in JSON: within the row)."""
    row = run_row(done, against)
    if style != "table":
        row |= {name: value for name, value in _figures(done).items() if name not in row}
    if style == "json":
        row["plan_against_run"] = against.to_dict()
    print_rows([row], style, single=True)
    if style == "table":
        click.echo(f"\n{table(phase_rows(against))}")
        if against.terms:
            click.echo(f"\n{table(term_rows(against))}")
        click.echo("\n" + "\n".join(printable(line) for line in verdict(against)))
        if "utilization" in done.trace.run:
            click.echo(_use_of_peaks(done.trace.run["utilization"]))
    if done.stopped:
        say(f"{done.stopped}: the trace is of a part of the run")
    for violation in done.violations[:3]:
        say(f"{violation.kind}: {violation.message}")


def _figures(done: RunResult) -> dict[str, float | None]:
    """Return the figures of the run that people ask for, from its measured times."""
    return flat_figures(done.trace.results)


def run_row(done: RunResult, against: PlanAgainstRun) -> dict[str, Any]:
    """Return the figures of a run."""
    trace, block = done.trace, done.trace.run
    return {
        "method": trace.method,
        "information": trace.information,
        "device": block["device"],
        "model": block.get("model", "-"),
        "plan_s": against.plan_makespan_ns / NS_PER_S,
        "makespan_s": trace.makespan_ns / NS_PER_S,
        "plan_error": against.makespan_error,
        "slot_utilization": trace.results.get("slot_utilization"),
        "busy_share": block["busy_share"],
        "gap_share": block["gap_share"],
        "tokens_per_s": trace.results.get("tokens_per_s"),
        "checked": not done.violations,
    }


def phase_rows(against: PlanAgainstRun) -> list[dict[str, Any]]:
    """Return planned and measured times by phase, as a table shows them."""
    return [
        {
            "phase": row.phase,
            "stages": row.stages,
            "rounds": row.rounds,
            "plan s": row.planned_ns / NS_PER_S,
            "run s": row.took_ns / NS_PER_S,
            "gaps s": row.gap_ns / NS_PER_S,
            "error": percent(row.error, sign=True),
            "a stage: mean": percent(row.mean),
            "p95": percent(row.p95),
            "worst": percent(row.worst),
        }
        for row in against.phases
    ]


def term_rows(against: PlanAgainstRun) -> list[dict[str, Any]]:
    """Return the terms of the cost model, as a table shows them."""
    return [
        {
            "phase": term.phase,
            "term": term.term,
            "plan us": term.planned_ns / 1000,
            "run us": term.measured_ns / 1000,
            "adds ms": term.error_ns / NS_PER_MS,
            "alone us": term.alone_ns / 1000,
            "explains": percent(term.explains),
        }
        for term in against.terms
    ]


def verdict(against: PlanAgainstRun) -> list[str]:
    """Return in a few lines how the run compares with the plan."""
    plan, run = (ns / NS_PER_S for ns in (against.plan_makespan_ns, against.run_makespan_ns))
    parts = ", ".join(f"{k} {v / NS_PER_S:+.3f} s" for k, v in against.parts.items() if v)
    said = "planned were" if against.has_plan else "the cost model says"
    lines = [
        f"The run took {run:.3f} s, {said} {plan:.3f} s"
        f" ({percent(against.makespan_error, sign=True)}){': ' + parts if parts else ''}.",
    ]
    if against.has_plan:
        count = len(against.stages.worker)
        lines.append(f"{against.followed:,} of {count:,} stages are the plan's.")
    worst = against.worst_term
    if worst is not None:
        lines.append(
            f"The error is mostly of {worst.phase}; its term '{worst.term}' alone, with "
            f"{worst.alone_ns / 1000:,.3f} us instead of {worst.planned_ns / 1000:,.3f} us, "
            f"explains {percent(worst.explains)} of it (of the squares)."
        )
    if against.refit_error is not None:
        error = percent(against.refit_error, sign=True)
        lines.append(f"With the {against.cost['model']} model fitted to this run: {error}.")
    return lines


def _use_of_peaks(use: dict[str, Any]) -> str:
    """Return a sentence on FLOPs and bandwidth."""
    decode = use["decode"]
    return (
        f"Of the device's peaks: {percent(use['mfu'])} of the FLOPs, "
        f"{percent(use['bandwidth_utilization'])} of the bandwidth "
        f"(in steps with a round: {percent(decode['bandwidth_utilization'])})."
    )


def percent(value: float | None, *, sign: bool = False) -> str:
    """Return a share as per cent, or a dash."""
    if value is None:
        return "-"
    return f"{100 * value:+.2f} %" if sign else f"{100 * value:.2f} %"


def write_run(done: RunResult, against: PlanAgainstRun, paths: dict[str, Path | None]) -> None:
    """Write the requested files, and print their paths on stderr."""
    own = {kind: path for kind, path in paths.items() if kind != "errors"}
    if done.plan is not None:
        write_artefacts(done.instance, done.trace, {"output": own.pop("output")})
        write_comparison(done.instance, [done.plan, done.trace], own.pop("report"), None)
        write_plan_and_run(done.instance, done.plan, done.trace, own.pop("gantt"))
    write_artefacts(done.instance, done.trace, own)
    target = paths["errors"]
    if target is not None:
        _write_errors(against, target)
        remark(f"errors written to {target}")


def _write_errors(against: PlanAgainstRun, path: Path) -> None:
    from orsched.files.atomic import write_text

    rows = against.stage_rows()
    if path.suffix.lower() == ".json":
        document = {**against.to_dict(), "stage_rows": rows}
        write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
        return
    text = io.StringIO()
    names = list(rows[0]) if rows else ["worker", "phase"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
