"""Files written beside the printed result: their options, checks and writing."""

from __future__ import annotations

import json
import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from orsched.cli.declaring import Options, option
from orsched.cli.output import remark
from orsched.cli.request_options import named_files
from orsched.common.errors import InputError
from orsched.common.scalars import require_suffix

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.service_classes import SLO
    from orsched.data.workers import Worker

HISTORY = option("Write value and bound over the time of the search (.png, .svg or .pdf).")


class OneSchedule(Options):
    """Files of the one schedule that a command makes."""

    output: Path | None = option("Write the schedule (.json or .parquet).", "-o")
    report: Path | None = option("Write an interactive HTML report.")
    gantt: Path | None = option("Write a Gantt chart (.png, .svg or .pdf).")
    usage: Path | None = option("Write clients and KV blocks over time (.png, .svg or .pdf).")
    latency: Path | None = option(
        "Write distributions of TTFT, TPOT and JCT, with limits attainment over them"
        " (.png, .svg or .pdf)."
    )
    timeline: Path | None = option(
        "Write running and waiting requests and KV blocks over time (.png, .svg or .pdf)."
    )
    classes: Path | None = option("Write what classes get over time (.png, .svg or .pdf).")
    trace: Path | None = option("Write a Chrome/Perfetto trace (.json).")
    records: Path | None = option("Write records (.csv, .jsonl or .parquet).")


FILES = (
    "output", "report", "gantt", "usage", "latency", "timeline", "history", "classes", "trace",
    "records",
)  # fmt: skip
"""Kinds of files of a schedule."""


def given_files(given: Options) -> dict[str, Path | None]:
    """Return the files of a command by kind, in the order of its words."""
    return {kind: path for kind, path in vars(given).items() if kind in FILES}


OF_SEVERAL = ("latency", "timeline")
"""Options whose pictures show any number of schedules; compare writes them all."""

CURVES = (*OF_SEVERAL, "history")
"""The same, and what only schedules have that a search made."""

PICTURES = (*CURVES, "gantt", "usage", "classes", "plot")
"""Options whose files need matplotlib."""

SUFFIXES = {
    **dict.fromkeys(PICTURES, (".png", ".svg", ".pdf")),
    "instance-output": (".json", ".parquet"),
    **dict.fromkeys(("trace", "worker-file", "PACKING"), (".json",)),
    "report": (".html", ".htm"),
    "records": (".csv", ".jsonl", ".parquet"),
    "measurements": (".csv",),
    "errors": (".csv", ".json"),
    "TARGET": (".json", ".parquet", ".csv"),
    "OUT": (".mps", ".lp"),
}
"""What a file may end in, by the option or argument that names it."""


def check_paths(
    paths: dict[str, Path | None],
    inputs: Iterable[str | Path] = (),
    output: Collection[str] = (".json", ".parquet"),
) -> None:
    """Refuse, before any work, files that could not be written or would replace another.

    ``output`` is what ``--output`` may end in, () for anything. Raises ``InputError`` for a wrong
    suffix, a folder that is not there or not writable, one path for two outputs, and an output that
    is an input, ``MissingDependencyError`` for a Parquet file without pyarrow.
    """
    # Not Path.resolve, which raises where links go round in circles.
    read = (*inputs, *named_files())
    taken = {os.path.realpath(name): "the command reads it" for name in read}
    for kind, path in paths.items():
        field = f"--{kind}" if kind.islower() else kind
        if path is None or (path.exists() and not path.is_file()):
            continue  # a pipe or a device; a folder is refused when it is opened
        suffixes = output if kind == "output" else SUFFIXES[kind]
        suffix = require_suffix(path, suffixes, field) if suffixes else None
        target = os.path.realpath(path)
        if target in taken:
            raise InputError(
                f"this file would be overwritten: {taken[target]}",
                file=str(path),
                field=field,
                remedy="choose another name",
            )
        taken[target] = f"{field} writes it, too"
        if suffixes is not SUFFIXES["report"] or path.parent.exists():  # that of a report is made
            _require_folder(path, field)
        if suffix == ".parquet":
            from orsched.files.parquet import require_pyarrow

            require_pyarrow()


def _require_folder(path: Path, field: str) -> None:
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(
            "the folder may not be written to" if folder.is_dir() else "the folder does not exist",
            file=str(path),
            field=field,
            remedy="choose a folder that exists and may be written to",
        )


def require_packages(paths: dict[str, Path | None]) -> None:
    """Raise ``MissingDependencyError``, before any work, where a file needs a missing package."""
    if any(paths.get(kind) is not None for kind in PICTURES):
        from orsched.views.pictures import require_matplotlib

        require_matplotlib()
    if paths.get("report") is not None:
        from orsched.views.html import require_plotly

        require_plotly()


def require_contents(instance: Instance, paths: dict[str, Path | None]) -> None:
    """Raise ``InputError``, before any work, where the instance has nothing for a file to show."""
    if paths.get("classes") is not None:
        from orsched.views.over_time import require_classes

        try:
            require_classes(instance)
        except InputError as error:
            raise InputError(error.problem, field="--classes", remedy=error.remedy) from None


def write_artefacts(instance: Instance, schedule: Schedule, paths: dict[str, Path | None]) -> None:
    """Write the files of ``OneSchedule``, and print their paths on stderr."""
    for kind, path in paths.items():
        if path is not None:
            _written(kind, instance, schedule, path)


def write_cost(cost: CostModel, report: dict[str, Any], path: Path | None) -> None:
    """Write a cost model with what is known of it, if it is asked for."""
    if path is not None:
        from orsched.files import save_cost

        save_cost(cost, path, report)
        remark(f"cost model written to {path}")


def write_worker(worker: Worker, path: Path) -> None:
    """Write the file of a worker."""
    from orsched.files.document import write_text

    write_text(path, json.dumps(worker.to_dict(), indent=1) + "\n")
    remark(f"worker written to {path}")


def write_plan_and_run(
    instance: Instance, plan: Schedule, trace: Schedule, path: Path | None
) -> None:
    """Write one picture of plan and run, if it is asked for."""
    if path is not None:
        from orsched.views.plan_and_run import save_plan_and_run

        save_plan_and_run(instance, plan, trace, path)
        remark(f"gantt written to {path}")


def write_comparison(
    instance: Instance,
    schedules: Sequence[Schedule],
    report: Path | None,
    gantt: Path | None,
    names: Sequence[str] = (),
    slo: SLO | None = None,
) -> None:
    """Write one report over all schedules, and a folder of charts: a Gantt chart of each, by its
    name and what it knew, and ``latency.png`` and ``timeline.png`` of all.
    """
    if report is not None:
        _report(instance, schedules, report, slo)
        remark(f"report written to {report}")
    if gantt is not None:
        gantt.mkdir(parents=True, exist_ok=True)
        known = [schedule.information for schedule in schedules]
        files = _file_names([f"{name}-{what}" for name, what in zip(names, known, strict=True)])
        for name, schedule in zip(files, schedules, strict=True):
            _written("gantt", instance, schedule, gantt / f"{name}.png")
        words = [f"{name} ({what})" for name, what in zip(names, known, strict=True)]
        write_curves(
            instance, schedules, {kind: gantt / f"{kind}.png" for kind in OF_SEVERAL}, words
        )


def write_curves(
    instance: Instance,
    schedules: Sequence[Schedule],
    paths: dict[str, Path | None],
    names: Sequence[str] = (),
    slo: SLO | None = None,
) -> None:
    """Write the pictures that show several schedules beside each other: ``OF_SEVERAL``."""
    for kind, path in paths.items():
        if path is not None and schedules:
            module, _, name = _WRITERS[kind].partition(":")
            limits = {"slo": slo} if kind == "latency" else {}
            getattr(import_module(module), name)(instance, schedules, path, names=names, **limits)
            remark(f"{kind} written to {path}")


def _file_names(names: Sequence[str]) -> list[str]:
    """Return names that files can have, all different."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^\w.+=@-]", "_", name)[:80]
        other, number = plain, 2
        while other in found:
            other, number = f"{plain}-{number}", number + 1
        found.append(other)
    return found


def _report(
    instance: Instance,
    schedules: Schedule | Sequence[Schedule],
    path: Path,
    slo: SLO | None = None,
) -> None:
    from orsched.cli.output import name_step
    from orsched.data.schedule import Schedule
    from orsched.models.bounds.ordering import ordering_cannot_help
    from orsched.views.html import write_report

    note = ordering_cannot_help(instance)
    several = [schedules] if isinstance(schedules, Schedule) else list(schedules)
    path.parent.mkdir(parents=True, exist_ok=True)
    notes = [] if note is None else [note]
    write_report(instance, several, path, notes=notes, slo=slo, told=name_step)


_WRITERS = {
    "gantt": "orsched.views.gantt:save_gantt",
    "usage": "orsched.views.over_time:save_usage",
    "latency": "orsched.views.latency:save_latency",
    "timeline": "orsched.views.over_time:save_timeline",
    "history": "orsched.views.figures:save_history",
    "classes": "orsched.views.over_time:save_classes",
    "trace": "orsched.views.perfetto:write_chrome_trace",
    "records": "orsched.views.records:write_records",
}
"""What writes a file of one schedule: called with the instance, the schedule and the path."""


def _written(kind: str, instance: Instance, schedule: Schedule, path: Path) -> None:
    if kind == "output":
        from orsched.files import save_schedule

        save_schedule(schedule, path)
    elif kind == "report":
        _report(instance, schedule, path)
    else:
        module, _, name = _WRITERS[kind].partition(":")
        getattr(import_module(module), name)(instance, schedule, path)
    remark(f"{kind} written to {path}")
