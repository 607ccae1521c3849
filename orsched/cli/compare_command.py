"""``orsched compare``: several methods on one instance, or on many seeds of a generator."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths, require_packages, write_comparison
from orsched.cli.class_output import print_classes, with_classes
from orsched.cli.columns import print_results, view_options
from orsched.cli.compare_seeds import Generated, compare_seeds
from orsched.cli.deadline import ended_by
from orsched.cli.failed_methods import exit_code_of
from orsched.cli.fleet_output import print_fleet
from orsched.cli.options import (
    BOUNDS,
    FORMAT,
    GAP,
    INSTANCE,
    ITERATIONS,
    OBJECTIVE,
    SLO_OPTIONS,
    TIME_LIMIT,
    load_instance,
    read_slo,
    with_options,
)
from orsched.cli.output import print_notes
from orsched.cli.policies import own_code, require_search
from orsched.cli.problem_options import (
    PROBLEM_OPTIONS,
    PROBLEM_SEED,
    derived,
    given_settings,
    merged,
)
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import REQUEST_OPTIONS
from orsched.cli.solve_commands import left_of
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from orsched.planning.study.config import Settings
    from orsched.solving.method_choice import Chosen
    from orsched.solving.objectives import Objective


@click.command("compare", short_help="Solve with several methods, one line for each.")
@INSTANCE
@click.option(
    "--methods",
    default="fcfs,offline,online,hybrid",
    show_default=True,
    help="Names, module:Class or path/to/own.py:Class, separated by commas; name@information picks "
    "what a method may know, name+parameter=value sets a parameter.",
)
@with_options(OBJECTIVE, *PROBLEM_OPTIONS, *SLO_OPTIONS)
@click.option(
    "--seeds",
    metavar="A:B",
    help="INSTANCE is a generator (see orsched info): run its seeds A to B-1 and print means.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --seeds: an argument of the generator; may be given several times.",
)
@click.option("--each", is_flag=True, help="With --seeds: a row a seed instead of means.")
@click.option("--param", multiple=True, hidden=True)
@with_options(PROBLEM_SEED, TIME_LIMIT, ITERATIONS, GAP, BOUNDS, FORMAT, *view_options())
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML report."
)
@click.option(
    "--gantt", type=click.Path(file_okay=False, path_type=Path), help="Write charts to a folder."
)
@with_options(*REQUEST_OPTIONS)
def compare_command(
    instance: str,
    methods: str,
    objective: Objective | None,
    workers: str | None,
    arrivals: str | None,
    predictions: str | None,
    failures: str | None,
    autoscale: str | None,
    config: Path | None,
    slo_ttft: float | None,
    slo_tpot: float | None,
    seeds: str | None,
    settings: tuple[str, ...],
    each: bool,
    param: tuple[str, ...],
    seed: int | None,
    time_limit: float | None,
    iterations: int | None,
    gap: float | None,
    bounds: tuple[str, ...],
    style: str,
    report: Path | None,
    gantt: Path | None,
) -> int:
    """Solve INSTANCE with several methods and print one line for each.

    Examples: orsched compare gsm8k-llama65b;
    orsched compare gsm8k-llama65b --methods fcfs,vllm,mine.py:Policy --workers 4
    --arrivals poisson:rate=20 --slo-ttft 2 --slo-tpot 0.05;
    orsched compare gsm8k --seeds 0:10 --methods fcfs,hybrid,hybrid@predicted;
    orsched compare pang-case --seeds 0:100 --methods fcfs,hybrid (Pang's 100-case study).

    A method that makes no schedule has the reason in its line, in full on stderr, and is not the
    end of the others. Exit codes: 0 all made one, 2 some did not, 3 some did not in the time limit.
    With --seeds and a time limit the seeds before are printed.
    """
    from orsched.common.stop import MaxRuntime, require_gap
    from orsched.solving.solver import compare

    begin = perf_counter()
    if time_limit is not None:
        MaxRuntime(time_limit)  # validates before the loading
    if gap is not None:
        require_gap(gap, "--gap")
    names = _names(methods, param)
    slo = read_slo(slo_ttft, slo_tpot)
    check_paths({"report": report}, [instance] if config is None else [instance, config])
    require_packages({"report": report, "gantt": gantt})
    run = given_settings(
        None, workers, arrivals, predictions, seed, failures=failures, autoscale=autoscale
    )
    run = _settings(run, config)
    check_paths({"report": report}, run.files or ())
    options: dict[str, Any] = {
        "iterations": iterations, "gap": gap, "slo": slo, "bounds": bounds, "objective": objective,
    }  # fmt: skip
    _require_seeds(seeds, bool(settings or each), report or gantt)
    chosen = _chosen(names)
    require_search(names, {"--iterations": iterations, "--gap": gap})
    if seeds is not None:
        made = Generated(instance, seeds, settings, run)
        return compare_seeds(made, chosen, each, time_limit, options, style)
    with ProgressPrinter("loading") as progress:
        with ended_by(time_limit), own_code(names):
            problem = derived(load_instance(instance), run)
            results = compare(
                problem,
                chosen,
                seed=run.seed or 0,
                callback=progress.callback,
                time_limit=left_of(time_limit, begin),
                **options,
            )
        progress.say("writing")
        titles = [r.label or r.schedule.method for r in results]
        write_comparison(problem, [r.schedule for r in results], report, gantt, titles)
    rows = results.with_failed(
        [with_classes(r, style) for r in results],
        short=style == "table",
    )
    print_results(rows, style, problem, objective=objective)
    print_classes(results, style)
    print_fleet(list(results), style)
    print_notes(results)
    return exit_code_of(results)


def _settings(given: Settings, config: Path | None) -> Settings:
    """Return the settings of options and file; the file's policy is for ``simulate``."""
    if config is None:
        return given
    run = merged(given, config, allow_code=True)  # nothing is loaded: a policy is refused
    if run.policy is not None or run.parameters or run.information is not None:
        raise InputError(
            "[policy] is for orsched simulate",
            file=str(config),
            field="policy",
            remedy="take it out, and name the methods with --methods",
        )
    return run


def _names(methods: str, param: tuple[str, ...]) -> list[str]:
    """Return the names of the methods; parameters stand behind them."""
    if param:
        raise InputError(
            "the methods have parameters of their own",
            field="--param",
            remedy=f"write it behind the method's name: --methods 'fcfs,vllm+{param[0]}'",
        )
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise InputError("no method is named", field="--methods", remedy="e.g. fcfs,vllm")
    return names


def _require_seeds(seeds: str | None, of_seeds: bool, picture: Path | None) -> None:
    """Refuse what goes with ``--seeds`` alone, or never goes with it."""
    if seeds is None and of_seeds:
        raise InputError(
            "--set and --each go with --seeds",
            field="--seeds",
            remedy="add --seeds A:B, or leave them out",
        )
    if seeds is not None and picture is not None:
        raise InputError(
            "charts and reports show one instance",
            field="--seeds",
            remedy="leave --seeds out, or the charts and the report",
        )


def _chosen(names: list[str]) -> list[Chosen]:
    """Return the methods of the names; refuses, before anything runs, those that are wrong."""
    from orsched.solving.method_choice import choose_all

    found = []
    for name in names:
        with own_code([name]):
            found += choose_all([name], field="--methods")
    return found
