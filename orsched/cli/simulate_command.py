"""``orsched simulate``: one policy, on other workers and with other arrivals if wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orsched.cli.artefacts import SINGLE, check_paths
from orsched.cli.options import (
    ALLOW_CODE,
    FORMAT,
    INSTANCE,
    PARAMETERS,
    SLO_OPTIONS,
    load_instance,
    read_slo,
    with_options,
)
from orsched.cli.policies import own_code, require_named, working_folder_last
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import REQUEST_OPTIONS
from orsched.cli.solve_commands import report_single
from orsched.errors import InputError
from orsched.pairs import read_pairs

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.study.config import Settings


@click.command("simulate", short_help="Run a policy once, from start to end.")
@INSTANCE
@click.option(
    "--policy",
    help="A method's name, or module:Class of your own (the working folder is searched, too); "
    "default: fcfs.",
)
@click.option(
    "--workers",
    metavar="N|FILES",
    help="Copies of the instance's worker, or worker files with commas in between.",
)
@click.option(
    "--arrivals",
    metavar="SPEC",
    help="Other arrivals: poisson:rate=10, gamma:rate=10,cv=2, replay:scale=1.5, at_once, ...",
)
@click.option(
    "--predictions",
    metavar="SPEC",
    help="Predicted lengths: classes, percentiles, noise:sigma=0.3 or oracle.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.toml",
    help="Settings of [policy], [workers], [arrivals], [predictions]; options may not repeat them.",
)
@ALLOW_CODE
@click.option("--seed", type=int, help="Seed of arrivals and random choices (default: 0).")
@with_options(PARAMETERS, *SLO_OPTIONS, FORMAT, *SINGLE, *REQUEST_OPTIONS)
def simulate_command(
    instance: str,
    policy: str | None,
    workers: str | None,
    arrivals: str | None,
    predictions: str | None,
    config: Path | None,
    allow_code: bool,
    seed: int | None,
    parameters: tuple[str, ...],
    slo_ttft: float | None,
    slo_tpot: float | None,
    style: str,
    **paths: Path | None,
) -> None:
    """Run a policy on INSTANCE from start to end, once; bound and check its schedule.

    Example: orsched simulate gsm8k-llama65b --workers 4 --arrivals poisson:rate=30
    --policy fcfs --param dispatch=fewest_requests
    """
    from orsched.solver import simulate

    slo = read_slo(slo_ttft, slo_tpot)
    check_paths(paths, [instance] if config is None else [instance, config])
    options = given_settings(policy, workers, arrivals, predictions, seed, parameters)
    run = options if config is None else merged(options, config, allow_code)
    check_paths(paths, run.files or ())
    name = "fcfs" if run.policy is None else run.policy
    try:
        require_named(name, run.information, run.parameters)
    except InputError as error:  # the file alone says it
        if config is None or policy or parameters:
            raise
        raise error.located(file=str(config)) from None
    with ProgressPrinter("loading") as progress:
        problem = scenario(load_instance(instance), run)
        progress.say(name)
        with own_code([name]):
            result = simulate(
                problem,
                name,
                seed=run.seed or 0,
                information=run.information,
                parameters=run.parameters,
                slo=slo,
            )
        progress.say("writing")
        report_single(problem, result, style, paths)


def given_settings(
    policy: str | None,
    workers: str | None,
    arrivals: str | None,
    predictions: str | None,
    seed: int | None,
    parameters: tuple[str, ...],
) -> Settings:
    """Return the settings given by options; raises ``InputError`` for what is wrong."""
    from orsched.columns import whole_number
    from orsched.instances.arrivals import read_arrivals
    from orsched.instances.predictions import read_predictor
    from orsched.study.config import Settings
    from orsched.study.scenario import read_workers, worker_files

    return Settings(
        policy,
        None,
        read_pairs(parameters, "--param"),
        None if workers is None else read_workers(workers),
        None if arrivals is None else read_arrivals(arrivals),
        None if predictions is None else read_predictor(predictions),
        None if seed is None else whole_number(seed, "seed", remedy="seeds start at 0"),
        None if workers is None else worker_files(workers),
    )


def merged(given: Settings, config: Path, allow_code: bool = False) -> Settings:
    """Return the settings of the options and of a configuration file together.

    Raises ``InputError`` for what is wrong in the file, what both give, or code that the file names
    and that is not allowed.
    """
    from orsched.own_code import is_own, require_consent
    from orsched.study.config import Settings, read_settings

    found = read_settings(config)
    if found.policy is not None and is_own(found.policy):
        working_folder_last([found.policy])
        try:
            require_consent([found.policy], "policy.name", allow_code)
        except InputError as error:
            raise error.located(file=str(config)) from None
    for field in ("policy", "workers", "arrivals", "predictions", "seed"):
        if getattr(given, field) is not None and getattr(found, field) is not None:
            raise InputError(
                f"{config} already says this", field=f"--{field}", remedy="say it once"
            )
    for name in given.parameters:
        if name in found.parameters:
            raise InputError(
                f"{config} already says this", field=f"--param {name}", remedy="say it once"
            )
    both = {
        field: mine if mine is not None else getattr(found, field)
        for field, mine in given._asdict().items()
    }
    return Settings(**{**both, "parameters": {**found.parameters, **given.parameters}})


def scenario(problem: Instance, run: Settings) -> Instance:
    """Return the instance with the workers, arrivals and predictions of the settings."""
    from orsched.instances.arrivals import with_arrivals
    from orsched.instances.predictions import predict
    from orsched.study.scenario import with_workers

    if run.workers is not None:
        problem = with_workers(problem, run.workers)
    if run.arrivals is not None:
        problem = with_arrivals(problem, run.arrivals, run.seed or 0)
    if run.predictions is not None:
        problem = predict(problem, run.predictions, run.seed or 0)
    return problem
