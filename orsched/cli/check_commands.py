"""``orsched check`` and ``orsched report``: faults of schedule files, and pictures of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import (
    CURVES,
    HISTORY,
    SUFFIXES,
    OneSchedule,
    check_paths,
    given_files,
    require_packages,
    write_artefacts,
    write_comparison,
    write_curves,
    write_plan_and_run,
)
from orsched.cli.bound_commands import (
    BOUND,
    PACKING,
    check_bulk_claim,
    check_packing,
    claim_of,
    packed_words,
)
from orsched.cli.columns import View, Viewed, given_view, viewed
from orsched.cli.declaring import AT_LEAST_1, argument, command, option
from orsched.cli.ending import EXIT_INVALID
from orsched.cli.options import INSTANCE, Limits
from orsched.cli.output import ProgressPrinter, print_json, print_rows, printable, say
from orsched.cli.request_options import RequestsAndCopies, load_instance
from orsched.cli.run_command import is_schedule
from orsched.common.errors import InputError, InvalidScheduleError
from orsched.common.scalars import DEFAULT_BUDGET

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from orsched.checker import Violation
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


VIOLATION = (
    "kind", "message", "request", "client", "worker", "step", "field", "expected", "found",
)  # fmt: skip
"""Columns of violations, the fields of ``Violation``."""


@command(
    "check",
    usual="times budget clients cost style",
)
class CheckCommand(Viewed, RequestsAndCopies):
    """Check every rule and every reported number of SCHEDULE against INSTANCE.

    SCHEDULE may be a bound on bulk work that `orsched bound --certificate` has printed, or a
    packing that `orsched pack` has written; then INSTANCE is what was packed.

    Prints the violations; exits with 0 if there is none, with 1 otherwise. Measured times are taken
    as they are, and a run that was stopped need not serve all requests: then the verdict says so.
    """

    known = VIOLATION

    instance: str = INSTANCE
    schedule: Path = argument("SCHEDULE")
    times: str | None = option(
        "Whether stage times must be the cost model's, or were measured: the trace of a run needs "
        "one of the two; all other schedules have times of the model.",
        choices=["model", "measured"],
    )
    budget: int = option(
        "Cells of tables that may be filled to verify the bound's certificate.",
        type=AT_LEAST_1,
        default=DEFAULT_BUDGET,
    )

    def _run(self) -> int:
        from orsched.checker import check
        from orsched.files import load_schedule

        instance, schedule, style = self.instance, self.schedule, self.style
        require_order(instance, (schedule,))
        packed, claim = claim_of(schedule, PACKING), claim_of(schedule, BOUND)
        if packed is not None:
            return _check_packing(self, packed)
        if claim is not None:
            faults = check_bulk_claim(load_instance(instance), claim, self.budget)
            return _verdict("bound", faults, f"{schedule} is a proven bound for {instance}", style)
        with ProgressPrinter("checking"):
            problem = load_instance(instance).admitted()
            loaded = load_schedule(schedule)
            _require_times(loaded, self.times, schedule)
            violations = check(problem, loaded, times=self.times or "model", budget=self.budget)
            if loaded.instance_sha256 != problem.sha256:
                violations = _of_another_instance(problem, loaded, violations)
        reach = _reach(problem, loaded, violations) if self.times == "measured" else None
        _print_violations(violations, reach, style)
        about = "" if violations else f" is a valid schedule for {problem.name}"
        if reach is not None:
            about = f": {_in_words(reach)}"
            if not violations:
                about = f" breaks no rule as a run of {problem.name}{about}"
        if about:
            say(f"{schedule}{about}")
        return EXIT_INVALID if violations else 0


def _check_packing(given: CheckCommand, claim: dict[str, Any]) -> int:
    """Print what is wrong with a packing, or what it proves; return the exit code."""
    try:
        faults = check_packing(given.instance, claim, given.budget)
    except InputError as error:
        raise error.located(file=str(given.schedule)) from None
    proven = "" if faults else packed_words(given.schedule, given.instance, claim)
    return _verdict("packing", faults, proven, given.style)


def _verdict(kind: str, faults: list[str], proven: str, style: str) -> int:
    """Print faults of a certificate, or what it proves; return the exit code."""
    print_rows([{"kind": kind, "message": fault} for fault in faults], style)
    if not faults:
        say(proven)
    return EXIT_INVALID if faults else 0


def require_order(instance: str, schedules: Iterable[Path]) -> None:
    """Raise ``InputError`` where a schedule stands in the place of the instance, and it of one."""
    given = [str(schedule) for schedule in schedules]
    if is_schedule(instance) and not all(map(is_schedule, given)):
        raise InputError(
            "is a schedule, and INSTANCE comes first",
            file=instance,
            remedy=f"write {' '.join([*given, instance])}",
        )


def _of_another_instance(
    problem: Instance, schedule: Schedule, violations: list[Violation]
) -> list[Violation]:
    """Return the one violation that all others follow from, in words that name both instances."""
    from orsched.checker.violations import ViolationKind
    from orsched.data.schedule import MADE_ANEW, other_instance

    message = f"{other_instance(problem, schedule)} ({MADE_ANEW})"
    return [replace(v, message=message) for v in violations if v.kind is ViolationKind.INSTANCE]


def _require_times(schedule: Schedule, times: str | None, path: Path) -> None:
    """Refuse measured times of a plan, and a run without a word on its times."""
    if times == "measured" and not schedule.is_measured:
        raise InputError(
            "this schedule was planned: it has no measured times, and they have to be checked",
            file=str(path),
            field="--times",
            remedy="leave --times out",
        )
    if times is None and schedule.is_measured:
        raise InputError(
            "this is the trace of a run: its times were measured",
            file=str(path),
            field="--times",
            remedy="--times measured, which takes them as they are",
        )


def _reach(problem: Instance, run: Schedule, violations: list[Violation]) -> dict[str, Any]:
    """Return what the verdict on a run covers; the work of an invalid one cannot be counted."""
    from orsched.metrics.timeline import finished_requests

    return {
        "valid": not violations,
        "times": "not checked",
        "partial": run.is_partial,
        "finished": None if violations else finished_requests(problem, run),
        "requests": len(problem),
    }


def _in_words(reach: dict[str, Any]) -> str:
    if not reach["partial"]:
        return "times not checked"
    count = reach["finished"]
    done = "" if count is None else f" ({count:,} of {reach['requests']:,} requests finished)"
    return f"times not checked, partial{done}"


def _print_violations(
    violations: list[Violation], reach: dict[str, Any] | None, style: str
) -> None:
    """Print what is wrong; JSON has a list of it, and of a run a table around it."""
    if style == "table" and given_view() == View():
        for violation in violations:
            click.echo(f"{violation.kind}: {printable(violation.message)}")
        return
    rows = [violation.to_dict() for violation in violations]
    names = given_view().columns or VIOLATION
    if style != "json" or given_view() != View():
        rows = viewed([{name: row.get(name) for name in VIOLATION} for row in rows])
    if style == "json" and reach is not None:
        print_json({**reach, "violations": rows})
        return
    print_rows(rows, style, names)


@command(
    "report",
    usual="output gantt usage latency timeline trace records slo_ttft slo_text clients",
)
class ReportCommand(Limits, RequestsAndCopies):
    """Draw and list SCHEDULE files of INSTANCE; each is checked first.

    The HTML report, --latency, --timeline and --history take any number of schedules, --gantt one
    or a plan with its run (orsched run), all others one. A report with a run compares both. The
    limits are for the HTML report and --latency; without them, they have those that the schedules
    were made with.
    """

    instance: str = INSTANCE
    schedules: tuple[Path, ...] = argument("SCHEDULE...", required=True)
    output: Path | None = option("Write an interactive HTML report of all.", "-o")
    gantt: Path | None = OneSchedule.gantt
    usage: Path | None = OneSchedule.usage
    latency: Path | None = option("Write distributions of TTFT, TPOT and JCT (.png, .svg or .pdf).")
    timeline: Path | None = OneSchedule.timeline
    history: Path | None = HISTORY
    trace: Path | None = OneSchedule.trace
    records: Path | None = OneSchedule.records

    def _run(self) -> None:
        slo, schedules, paths = self.slo, self.schedules, given_files(self)
        output = paths.pop("output")
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
        require_order(self.instance, schedules)
        check_paths({"output": output, **paths}, (self.instance, *schedules), SUFFIXES["report"])
        require_packages({"report": output, **paths})
        with ProgressPrinter("loading") as progress:
            problem, loaded = checked_schedules(self.instance, schedules, progress)
            progress.say("writing")
            write_comparison(problem, loaded, output, None, slo=slo)
            names = [path.stem for path in schedules] if several else ()
            write_curves(problem, loaded, {kind: paths.pop(kind) for kind in CURVES}, names, slo)
            if several and paths["gantt"] is not None:
                write_plan_and_run(problem, *_plan_and_run(loaded), paths["gantt"])
            else:
                write_artefacts(problem, loaded[0], paths)


def checked_schedules(
    instance: str, paths: Sequence[Path], progress: ProgressPrinter
) -> tuple[Instance, list[Schedule]]:
    """Return an instance and schedules of it that the checker accepts."""
    from orsched.checker import check
    from orsched.data.schedule import require_same_instance
    from orsched.files import load_schedule

    problem = load_instance(instance).admitted()
    loaded = [load_schedule(path) for path in paths]
    progress.say("checking")
    for path, schedule in zip(paths, loaded, strict=True):
        require_same_instance(problem, schedule, str(path), "INSTANCE")
        times = "measured" if schedule.is_measured else "model"
        violations = check(problem, schedule, times=times)
        if violations:
            message = f"{path} is not valid: {violations[0].message} (see orsched check)"
            raise InvalidScheduleError(message, violations)
    return problem, loaded


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
