"""``orsched check``: the independent checker on a schedule file."""

from __future__ import annotations

from pathlib import Path

import click

from orsched.cli.options import FORMAT, INSTANCE, load_instance
from orsched.cli.output import print_rows
from orsched.cli.progress import ProgressPrinter


@click.command("check")
@INSTANCE
@click.argument("schedule", type=click.Path(dir_okay=False, path_type=Path), metavar="SCHEDULE")
@click.option(
    "--times",
    type=click.Choice(["model", "measured"]),
    default="model",
    show_default=True,
    help="Whether stage times must be the cost model's, or were measured.",
)
@FORMAT
def check_command(instance: str, schedule: Path, times: str, style: str) -> int:
    """Check every rule and every reported number of SCHEDULE against INSTANCE.

    Prints the violations; exits with 0 if there is none, with 1 otherwise.
    """
    from dataclasses import fields

    from orsched.checker import Violation, check
    from orsched.files import load_schedule

    with ProgressPrinter("checking"):
        problem = load_instance(instance)
        violations = check(problem, load_schedule(schedule), times=times)
    if style == "table":
        for violation in violations:
            click.echo(f"{violation.kind}: {violation.message}")
    else:
        rows = [violation.to_dict() for violation in violations]
        names = ["kind", *(f.name for f in fields(Violation) if f.name != "kind")]
        if style == "csv":
            rows = [{name: row.get(name) for name in names} for row in rows]
        print_rows(rows, style, names)
    if not violations:
        click.echo(f"orsched: {schedule} is a valid schedule for {problem.name}", err=True)
    return 1 if violations else 0
