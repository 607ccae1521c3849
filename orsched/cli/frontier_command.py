"""``orsched frontier``."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.columns import require_columns, view_options, viewed
from orsched.cli.deadline import ended_by
from orsched.cli.exit_codes import EXIT_INPUT, EXIT_INTERRUPTED
from orsched.cli.machine_output import say_machine
from orsched.cli.options import (
    FORMAT,
    INSTANCE,
    ITERATIONS,
    SEED,
    SLO_OPTIONS,
    TIME_LIMIT,
    read_slo,
    with_options,
)
from orsched.cli.output import print_rows, printable, say
from orsched.cli.policies import own_code
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import COPIES, REQUEST_OPTIONS, load_admitted
from orsched.cli.solve_commands import left_of
from orsched.common.errors import InputError
from orsched.common.units import seconds_text

if TYPE_CHECKING:
    from orsched.planning.frontier_points import Frontier
    from orsched.solving.objectives import Objective


def _figure(context: click.Context, parameter: click.Parameter, value: str) -> Objective:
    from orsched.solving.objectives import objective_named

    try:
        return objective_named(value)
    except InputError as error:
        raise InputError(error.problem, field=parameter.name, remedy=error.remedy) from None


@click.command("frontier", short_help="Draw what one objective costs in another.")
@INSTANCE
@click.option("--first", default="makespan", show_default=True, metavar="FIGURE", callback=_figure,
              help="An objective, e.g. makespan, ttft_mean, tokens_per_s.")  # fmt: skip
@click.option("--second", default="jct_mean", show_default=True, metavar="FIGURE", callback=_figure,
              help="Another one.")  # fmt: skip
@click.option("--points", type=int, default=9, show_default=True, metavar="N",
              help="Weighted sums to search for, from --second alone to --first.")  # fmt: skip
@click.option("--methods", default="fcfs,hybrid,gittins@clairvoyant", show_default=True,
              help="Methods whose schedules are shown beside, separated by commas.")  # fmt: skip
@click.option("--search", default="auto", show_default=True, metavar="METHOD",
              help="The method for weighted sums.")  # fmt: skip
@with_options(SEED, TIME_LIMIT, ITERATIONS, *SLO_OPTIONS, FORMAT, *view_options(None))
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path),
              help="Write a picture (.png, .svg or .pdf).")  # fmt: skip
@with_options(*REQUEST_OPTIONS, COPIES)
def frontier_command(
    instance: str,
    first: Objective,
    second: Objective,
    points: int,
    methods: str,
    search: str,
    seed: int,
    time_limit: float | None,
    iterations: int | None,
    slo_ttft: float | None,
    slo_tpot: float | None,
    style: str,
    plot: Path | None,
) -> int:
    """Make schedules of INSTANCE between two objectives and mark those that nothing dominates.

    Example: orsched frontier gsm8k-llama65b --second ttft_mean --time-limit 300 --plot plane.svg
    """
    from orsched.common.stop import MaxRuntime
    from orsched.planning.frontiers import frontier

    begin = perf_counter()
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates before the loading
    slo = read_slo(slo_ttft, slo_tpot)
    check_paths({"plot": plot}, [instance])
    if plot is not None:
        from orsched.views.pictures import require_matplotlib

        require_matplotlib()
    bounds = (f"{first.name}_bound", f"{second.name}_bound")
    stated = ("information", "objective", "status")
    require_columns(("method", "share", first.name, second.name, "efficient", *bounds, *stated), ())
    names = [name.strip() for name in methods.split(",") if name.strip()]
    with ProgressPrinter("loading") as progress:
        with ended_by(time_limit), own_code([*names, search]):
            problem = load_admitted(instance)
            found = frontier(
                problem,
                first,
                second,
                points,
                methods=names,
                search=search,
                seed=seed,
                time_limit=left_of(time_limit, begin),
                iterations=iterations,
                slo=slo,
                callback=progress.callback,
            )
        if plot is not None:
            from orsched.views.frontier import save_frontier

            progress.say("writing")
            save_frontier(found, plot)
    _print(found, style)
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
