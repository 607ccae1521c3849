"""``orsched report``: pictures, traces and records of schedule files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orsched.cli.artefacts import (
    CURVES,
    HISTORY,
    check_paths,
    require_packages,
    write_artefacts,
    write_comparison,
    write_curves,
    write_plan_and_run,
)
from orsched.cli.check_command import require_order
from orsched.cli.options import INSTANCE, SLO_OPTIONS, load_instance, read_slo, with_options
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import COPIES, REQUEST_OPTIONS
from orsched.common.errors import InputError, InvalidScheduleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.schedule import Schedule

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("report", short_help="Draw and list schedules: report, charts, records.")
@INSTANCE
@click.argument("schedules", nargs=-1, required=True, type=_FILE, metavar="SCHEDULE...")
@click.option("-o", "--output", type=_FILE, help="Write an interactive HTML report of all.")
@click.option("--gantt", type=_FILE, help="Write a Gantt chart (.png, .svg or .pdf).")
@click.option(
    "--usage", type=_FILE, help="Write clients and KV blocks over time (.png, .svg or .pdf)."
)
@click.option(
    "--latency", type=_FILE, help="Write distributions of TTFT, TPOT and JCT (.png, .svg or .pdf)."
)
@click.option(
    "--timeline",
    type=_FILE,
    help="Write running and waiting requests and KV blocks over time (.png, .svg or .pdf).",
)
@HISTORY
@click.option("--trace", type=_FILE, help="Write a Chrome/Perfetto trace (.json).")
@click.option("--records", type=_FILE, help="Write records (.csv, .jsonl or .parquet).")
@with_options(*SLO_OPTIONS, *REQUEST_OPTIONS, COPIES)
def report_command(
    instance: str,
    schedules: tuple[Path, ...],
    output: Path | None,
    slo_ttft: float | None,
    slo_tpot: float | None,
    **paths: Path | None,
) -> None:
    """Draw and list SCHEDULE files of INSTANCE; each is checked first.

    The HTML report, --latency, --timeline and --history take any number of schedules, --gantt one
    or a plan with its run (orsched run), all others one. A report with a run compares both. The
    limits are for the HTML report and --latency; without them, they have those that the schedules
    were made with.
    """
    from orsched.checker import check
    from orsched.data.schedule import require_same_instance
    from orsched.files import load_schedule

    slo = read_slo(slo_ttft, slo_tpot)
    if output is None and not any(paths.values()):
        raise InputError(
            "nothing to write",
            remedy="give -o, --gantt, --usage, --latency, --timeline, --history, --trace or "
            "--records",
        )
    if slo is not None and output is None and paths["latency"] is None:
        raise InputError(
            "limits are for the HTML report and the distributions of latencies",
            field="--slo-ttft",
            remedy="add -o or --latency",
        )
    several = len(schedules) > 1
    if several and any(paths[kind] for kind in ("usage", "trace", "records")):
        raise InputError(
            "--usage, --trace and --records take one schedule",
            field="SCHEDULE",
            remedy="give one SCHEDULE, or leave these options out",
        )
    require_order(instance, schedules)
    check_paths({"report": output, **paths}, (instance, *schedules))
    require_packages({"report": output, **paths})
    with ProgressPrinter("loading") as progress:
        problem = load_instance(instance).admitted()
        loaded = [load_schedule(path) for path in schedules]
        progress.say("checking")
        for path, schedule in zip(schedules, loaded, strict=True):
            require_same_instance(problem, schedule, str(path), "INSTANCE")
            times = "measured" if schedule.is_measured else "model"
            violations = check(problem, schedule, times=times)
            if violations:
                message = f"{path} is not valid: {violations[0].message} (see orsched check)"
                raise InvalidScheduleError(message, violations)
        progress.say("writing")
        write_comparison(problem, loaded, output, None, slo=slo)
        names = [path.stem for path in schedules] if several else ()
        write_curves(problem, loaded, {kind: paths.pop(kind) for kind in CURVES}, names, slo)
        if several and paths["gantt"] is not None:
            write_plan_and_run(problem, *_plan_and_run(loaded), paths["gantt"])
        else:
            write_artefacts(problem, loaded[0], paths)


def _plan_and_run(schedules: Sequence[Schedule]) -> tuple[Schedule, Schedule]:
    plans = [schedule for schedule in schedules if not schedule.is_measured]
    runs = [schedule for schedule in schedules if schedule.is_measured]
    if len(plans) != 1 or len(runs) != 1:
        raise InputError(
            "--gantt takes one schedule, or a plan and its run",
            field="SCHEDULE",
            remedy="give one SCHEDULE, or a plan and its run",
        )
    return plans[0], runs[0]
