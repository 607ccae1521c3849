"""Options for what can be written beside the printed result, and the writing of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance
    from orsched.schedule import Schedule

_PATH = click.Path(dir_okay=False, path_type=Path)

SINGLE = (
    click.option("-o", "--output", type=_PATH, help="Write the schedule (.json or .parquet)."),
    click.option("--report", type=_PATH, help="Write an interactive HTML report."),
    click.option("--gantt", type=_PATH, help="Write a Gantt chart (.png, .svg or .pdf)."),
    click.option("--trace", type=_PATH, help="Write a Chrome/Perfetto trace (.json)."),
    click.option("--records", type=_PATH, help="Write records (.csv, .jsonl or .parquet)."),
)
"""Options of commands that make or read one schedule."""


def write_artefacts(instance: Instance, schedule: Schedule, paths: dict[str, Path | None]) -> None:
    """Write what was asked for by ``SINGLE``, and say on stderr where it lies."""
    for kind, path in paths.items():
        if path is not None:
            _WRITERS[kind](instance, schedule, path)
            click.echo(f"orsched: {kind} written to {path}", err=True)


def write_comparison(
    instance: Instance,
    schedules: Sequence[Schedule],
    report: Path | None,
    gantt: Path | None,
) -> None:
    """Write one report over all schedules, and a Gantt chart of each into a folder."""
    if report is not None:
        _report(instance, schedules, report)
        click.echo(f"orsched: report written to {report}", err=True)
    if gantt is not None:
        gantt.mkdir(parents=True, exist_ok=True)
        for schedule in schedules:
            path = gantt / f"{schedule.method}-{schedule.information}.png"
            _gantt(instance, schedule, path)
            click.echo(f"orsched: gantt written to {path}", err=True)


def _output(instance: Instance, schedule: Schedule, path: Path) -> None:
    from orsched.files import save_schedule

    save_schedule(schedule, path)


def _report(instance: Instance, schedules: Schedule | Sequence[Schedule], path: Path) -> None:
    from orsched.models.bounds import ordering_cannot_help
    from orsched.report.html import write_report
    from orsched.schedule import Schedule

    note = ordering_cannot_help(instance)
    several = [schedules] if isinstance(schedules, Schedule) else list(schedules)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_report(instance, several, path, notes=[] if note is None else [note])


def _gantt(instance: Instance, schedule: Schedule, path: Path) -> None:
    from orsched.plotting.gantt import save_gantt

    save_gantt(instance, schedule, path)


def _trace(instance: Instance, schedule: Schedule, path: Path) -> None:
    from orsched.report.perfetto import write_chrome_trace

    write_chrome_trace(instance, schedule, path)


def _records(instance: Instance, schedule: Schedule, path: Path) -> None:
    from orsched.report.records import write_records

    write_records(instance, schedule, path)


_WRITERS: dict[str, Any] = {
    "output": _output,
    "report": _report,
    "gantt": _gantt,
    "trace": _trace,
    "records": _records,
}
