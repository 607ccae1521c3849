"""``orsched check``: the independent checker on a schedule file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.certificates.budget import DEFAULT_BUDGET
from orsched.cli.bulk_bounds import bulk_claim, check_bulk_claim
from orsched.cli.columns import View, given_view, view_options, viewed
from orsched.cli.options import FORMAT, INSTANCE, load_instance, with_options
from orsched.cli.output import print_json, print_rows, printable, say
from orsched.cli.pack_command import check_packing, packing_claim, say_packed
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import COPIES, REQUEST_OPTIONS
from orsched.cli.run_command import is_schedule
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.checker import Violation
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


VIOLATION = (
    "kind", "message", "request", "client", "worker", "step", "field", "expected", "found",
)  # fmt: skip
"""Columns of violations, the fields of ``Violation``."""


@click.command("check", short_help="Check every rule and reported number of a schedule.")
@INSTANCE
@click.argument("schedule", type=click.Path(dir_okay=False, path_type=Path), metavar="SCHEDULE")
@click.option(
    "--times",
    type=click.Choice(["model", "measured"]),
    help="Whether stage times must be the cost model's, or were measured: the trace of a run needs "
    "one of the two; all other schedules have times of the model.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    default=DEFAULT_BUDGET,
    show_default=True,
    help="Cells of tables that may be filled to verify the bound's certificate.",
)
@with_options(FORMAT, *view_options(VIOLATION), *REQUEST_OPTIONS, COPIES)
def check_command(instance: str, schedule: Path, times: str | None, budget: int, style: str) -> int:
    """Check every rule and every reported number of SCHEDULE against INSTANCE.

    SCHEDULE may be a bound on bulk work that `orsched bound --certificate` has printed, or a
    packing that `orsched pack` has written; then INSTANCE is what was packed.

    Prints the violations; exits with 0 if there is none, with 1 otherwise. Measured times are taken
    as they are, and a run that was stopped need not serve all requests: then the verdict says so.
    """
    from orsched.checker import check
    from orsched.files import load_schedule

    require_order(instance, (schedule,))
    packed = packing_claim(schedule)
    if packed is not None:
        return _check_packing(instance, schedule, packed, budget, style)
    claim = bulk_claim(schedule)
    if claim is not None:
        faults = check_bulk_claim(load_instance(instance), claim, budget)
        print_rows([{"kind": "bound", "message": fault} for fault in faults], style)
        if not faults:
            say(f"{schedule} is a proven bound for {instance}")
        return 1 if faults else 0
    with ProgressPrinter("checking"):
        problem = load_instance(instance).admitted()
        loaded = load_schedule(schedule)
        _require_times(loaded, times, schedule)
        violations = check(problem, loaded, times=times or "model", budget=budget)
        if loaded.instance_sha256 != problem.sha256:
            violations = _of_another_instance(problem, loaded, violations)
    reach = _reach(problem, loaded, violations) if times == "measured" else None
    _print_violations(violations, reach, style)
    about = "" if violations else f" is a valid schedule for {problem.name}"
    if reach is not None:
        about = f": {_in_words(reach)}"
        if not violations:
            about = f" breaks no rule as a run of {problem.name}{about}"
    if about:
        say(f"{schedule}{about}")
    return 1 if violations else 0


def _check_packing(source: str, path: Path, claim: dict[str, Any], budget: int, style: str) -> int:
    """Print what is wrong with a packing, or what it proves; return the exit code."""
    try:
        faults = check_packing(source, claim, budget)
    except InputError as error:
        raise error.located(file=str(path)) from None
    print_rows([{"kind": "packing", "message": fault} for fault in faults], style)
    if not faults:
        say_packed(path, source, claim)
    return 1 if faults else 0


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
