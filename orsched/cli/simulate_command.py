"""``orsched simulate``: one policy, on other workers and with other arrivals if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orsched.cli.artefacts import SINGLE, check_paths, require_contents, require_packages
from orsched.cli.columns import view_options
from orsched.cli.options import (
    ALLOW_CODE,
    BOUNDS,
    FORMAT,
    INSTANCE,
    OBJECTIVE,
    PARAMETERS,
    SLO_OPTIONS,
    load_instance,
    read_slo,
    with_options,
)
from orsched.cli.output import remark, say
from orsched.cli.policies import own_code, require_named
from orsched.cli.problem_options import (
    INSTANCE_OUTPUT,
    PROBLEM_OPTIONS,
    PROBLEM_SEED,
    derived,
    given_settings,
    merged,
)
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import REQUEST_OPTIONS
from orsched.cli.solve_commands import report_single
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.solving.objectives import Objective


@click.command("simulate", short_help="Run a policy once, from start to end.")
@INSTANCE
@click.option(
    "--policy",
    help="A method's name, module:Class or path/to/own.py:Class of your own (default: fcfs).",
)
@click.option(
    "--information",
    type=click.Choice(["none", "predicted", "clairvoyant"]),
    help="What the method may know of output lengths (default: its own).",
)
@with_options(*PROBLEM_OPTIONS, ALLOW_CODE, PROBLEM_SEED, INSTANCE_OUTPUT)
@with_options(PARAMETERS, OBJECTIVE, *SLO_OPTIONS, BOUNDS, FORMAT, *view_options(), *SINGLE)
@with_options(*REQUEST_OPTIONS)
def simulate_command(
    instance: str,
    policy: str | None,
    information: str | None,
    workers: str | None,
    arrivals: str | None,
    predictions: str | None,
    failures: str | None,
    autoscale: str | None,
    config: Path | None,
    allow_code: bool,
    seed: int | None,
    instance_output: Path | None,
    parameters: tuple[str, ...],
    objective: Objective | None,
    slo_ttft: float | None,
    slo_tpot: float | None,
    bounds: tuple[str, ...],
    style: str,
    **paths: Path | None,
) -> None:
    """Run a policy on INSTANCE from start to end, once; bound and check its schedule.

    Example: orsched simulate gsm8k-llama65b --workers 4 --arrivals poisson:rate=30
    --policy fcfs --param dispatch=fewest_requests
    """
    from orsched.files import save_instance
    from orsched.solving.solver import simulate

    slo = read_slo(slo_ttft, slo_tpot)
    written = {**paths, "instance-output": instance_output}
    check_paths(written, [instance] if config is None else [instance, config])
    fleet = (failures, autoscale)
    options = given_settings(policy, workers, arrivals, predictions, seed, parameters, *fleet)
    require_packages(paths)
    run = options if config is None else merged(options, config, allow_code)
    if information is not None and run.information is not None:
        raise InputError(f"{config} already says this", field="--information", remedy="say it once")
    run = run._replace(information=information or run.information)
    check_paths(written, run.files or ())
    name = "fcfs" if run.policy is None else run.policy
    try:
        require_named(name, run.information, run.parameters)
    except InputError as error:  # the file alone says it
        if config is None or policy or parameters:
            raise
        raise error.located(file=str(config)) from None
    with ProgressPrinter("loading") as progress:
        given = load_instance(instance)
        problem = derived(given, run)
        require_contents(problem, paths)
        progress.say(name)
        with own_code([name]):
            result = simulate(
                problem,
                name,
                seed=run.seed or 0,
                information=run.information,
                parameters=run.parameters,
                slo=slo,
                bounds=bounds,
                objective=objective or "makespan",
            )
        progress.say("writing")
        if instance_output is not None:
            save_instance(problem, instance_output)
            remark(f"instance written to {instance_output}")
        report_single(problem, result, style, paths, objective)
    read = given.admitted() if run.workers is None else given  # what check makes of the file
    if paths["output"] is not None and instance_output is None and problem.sha256 != read.sha256:
        say(
            "check and report need the instance as it was simulated: --instance-output writes it",
            "note",
        )
