"""``orsched frontier``: what one objective costs in another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths, require_packages
from orsched.cli.columns import Viewed, require_columns, viewed
from orsched.cli.declaring import command, option
from orsched.cli.ending import EXIT_INPUT, EXIT_INTERRUPTED, ended_by
from orsched.cli.machines import say_machine
from orsched.cli.options import INSTANCE, ITERATIONS, SEED, Limits, Timed
from orsched.cli.output import ProgressPrinter, print_rows, printable, say
from orsched.cli.policies import own_code
from orsched.cli.request_options import RequestsAndCopies, load_admitted
from orsched.common.errors import InputError
from orsched.common.units import seconds_text

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.planning.frontiers import Frontier
    from orsched.solving.objectives import Objective


def _figure(context: click.Context, parameter: click.Parameter, value: str) -> Objective:
    from orsched.solving.objectives import objective_named

    try:
        return objective_named(value)
    except InputError as error:
        raise InputError(error.problem, field=parameter.name, remedy=error.remedy) from None


@command(
    "frontier",
    usual="first second points methods search time_limit clients cost plot style",
)
class FrontierCommand(Timed, Limits, Viewed, RequestsAndCopies):
    """Make schedules of INSTANCE between two objectives and mark those that nothing dominates.

    Example: orsched frontier gsm8k-llama65b --second ttft_mean --time-limit 300 --plot plane.svg
    """

    instance: str = INSTANCE
    first: Objective = option(
        "An objective, e.g. makespan, ttft_mean, tokens_per_s.",
        default="makespan",
        metavar="FIGURE",
        callback=_figure,
    )
    second: Objective = option(
        "Another one.", default="jct_mean", metavar="FIGURE", callback=_figure
    )
    points: int = option(
        "Weighted sums to search for, from --second alone to --first.", default=9, metavar="N"
    )
    methods: str = option(
        "Methods whose schedules are shown beside, separated by commas.",
        default="fcfs,hybrid,gittins@clairvoyant",
    )
    search: str = option("The method for weighted sums.", default="auto", metavar="METHOD")
    seed: int = SEED
    iterations: int | None = ITERATIONS
    plot: Path | None = option("Write a picture (.png, .svg or .pdf).")

    def _run(self) -> int:
        from orsched.planning.frontiers import frontier

        self.require_ends()
        slo, first, second = self.slo, self.first, self.second
        check_paths({"plot": self.plot}, [self.instance])
        require_packages({"plot": self.plot})
        bounds = (f"{first.name}_bound", f"{second.name}_bound")
        stated = ("information", "objective", "status")
        require_columns(
            ("method", "share", first.name, second.name, "efficient", *bounds, *stated), ()
        )
        names = [name.strip() for name in self.methods.split(",") if name.strip()]
        with ProgressPrinter("loading") as progress:
            with ended_by(self.time_limit), own_code([*names, self.search]):
                problem = load_admitted(self.instance)
                found = frontier(
                    problem,
                    first,
                    second,
                    self.points,
                    methods=names,
                    search=self.search,
                    seed=self.seed,
                    time_limit=self.time_left,
                    iterations=self.iterations,
                    slo=slo,
                    callback=progress.callback,
                )
            if self.plot is not None:
                from orsched.views.search_charts import save_frontier

                progress.say("writing")
                save_frontier(found, self.plot)
        _print(found, self.style)
        for failure in found.failed:
            say(str(failure))
        if any(point.result.termination == "interrupted" for point in found):
            return EXIT_INTERRUPTED
        return EXIT_INPUT if found.failed else 0


def _print(found: Frontier, style: str) -> None:
    say_machine(found.instance)
    rows: list[dict[str, Any]] = viewed(found.to_rows())
    if style != "table":
        print_rows(rows, style)
    else:
        bounds = {f"{found.first.name}_bound", f"{found.second.name}_bound", "objective"}
        marked = [
            {name: value for name, value in row.items() if name not in bounds}
            | ({"efficient": "*" if row["efficient"] else ""} if "efficient" in row else {})
            for row in rows
        ]
        print_rows(marked, style)
        for aim, value in ((found.first, found.first_bound), (found.second, found.second_bound)):
            if value is not None:
                side, unit = "most" if aim.largest else "least", " s" if aim.is_time else ""
                figure = f"{aim.name} is at {side} {seconds_text(value)}{unit}"
                proven = f"{figure}: proven of {found.schedules}"
                click.echo(printable(proven))
    for note in found.notes:
        say(note, "note")
