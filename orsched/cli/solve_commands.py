"""``orsched solve``."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from orsched.cli.artefacts import (
    HISTORY,
    SINGLE,
    check_paths,
    require_contents,
    require_packages,
    write_artefacts,
)
from orsched.cli.class_output import print_classes, with_classes
from orsched.cli.columns import print_results, view_options
from orsched.cli.deadline import ended_by
from orsched.cli.fleet_output import print_fleet
from orsched.cli.options import (
    BOUNDS,
    FORMAT,
    GAP,
    INSTANCE,
    ITERATIONS,
    OBJECTIVE,
    PARAMETERS,
    SEED,
    SLO_OPTIONS,
    TIME_LIMIT,
    load_instance,
    read_slo,
    with_options,
)
from orsched.cli.output import print_notes
from orsched.cli.policies import own_code, require_named, require_search
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import COPIES, REQUEST_OPTIONS
from orsched.common.pairs import read_pairs

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.solving.objectives import Objective
    from orsched.solving.result import Result


@click.command("solve", short_help="Make a schedule, bound it and check it.")
@INSTANCE
@click.option(
    "--method",
    help="A method (see orsched info), module:Class or path/to/own.py:Class.  [default: hybrid; "
    "with another objective than the makespan: auto]",
)
@click.option(
    "--information",
    type=click.Choice(["none", "predicted", "clairvoyant"]),
    help="What the method may know of output lengths (default: its own).",
)
@click.option(
    "--initial",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="SCHEDULE",
    help="Start from this schedule; windows and exact go on from it. The result is never worse.",
)
@with_options(OBJECTIVE, PARAMETERS, SEED, TIME_LIMIT, ITERATIONS, GAP, *SLO_OPTIONS)
@with_options(BOUNDS, FORMAT, *view_options(), *SINGLE, HISTORY)
@with_options(*REQUEST_OPTIONS, COPIES)
def solve_command(
    instance: str,
    method: str | None,
    information: str | None,
    objective: Objective | None,
    initial: Path | None,
    parameters: tuple[str, ...],
    seed: int,
    time_limit: float | None,
    iterations: int | None,
    gap: float | None,
    slo_ttft: float | None,
    slo_tpot: float | None,
    bounds: tuple[str, ...],
    style: str,
    **paths: Path | None,
) -> int:
    """Make a schedule for INSTANCE (a name or a path), bound it and check it."""
    from orsched.common.stop import MaxRuntime, require_gap
    from orsched.files import load_schedule
    from orsched.solving.objectives import MAKESPAN
    from orsched.solving.result import Termination
    from orsched.solving.solver import default_method, solve

    begin = perf_counter()
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates before the loading
    if gap is not None:
        require_gap(gap, "--gap")
    given = read_pairs(parameters, "--param")
    slo = read_slo(slo_ttft, slo_tpot)
    check_paths(paths, [instance, *([] if initial is None else [str(initial)])])
    require_packages(paths)
    aim = objective or MAKESPAN
    method = method or default_method(aim)
    require_named(method, information, given)
    require_search([method], {"--iterations": iterations, "--gap": gap})
    with ProgressPrinter("loading") as progress:
        with ended_by(time_limit), own_code([method]):
            problem = load_instance(instance).admitted()
            start = None if initial is None else load_schedule(initial)
            require_contents(problem, paths)
            progress.say(method)
            result = solve(
                problem,
                method,
                aim,
                seed=seed,
                initial_schedule=start,
                callback=progress.callback,
                information=information,
                parameters=given,
                time_limit=left_of(time_limit, begin),
                iterations=iterations,
                gap=gap,
                slo=slo,
                bounds=bounds,
            )
        progress.say("writing")
        report_single(problem, result, style, paths, objective)
    return 130 if result.termination is Termination.INTERRUPTED else 0


def left_of(time_limit: float | None, begin: float) -> float | None:
    """Return what is left of a time limit that counts from the command's start."""
    return None if time_limit is None else max(1e-3, time_limit - (perf_counter() - begin))


def report_single(
    instance: Instance,
    result: Result,
    style: str,
    paths: dict[str, Path | None],
    objective: Objective | None = None,
) -> None:
    """Write the files that were asked for, then print the one row."""
    write_artefacts(instance, result.schedule, paths)
    row = with_classes(result, style)
    print_results([row], style, instance, single=True, objective=objective)
    print_classes([result], style)
    print_fleet([result], style)
    print_notes([result])
