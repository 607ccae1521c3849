"""Options that make another problem of an instance: workers, arrivals, predicted lengths.

``simulate`` and ``compare`` share them, and the file of ``--config`` that says the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orsched.cli.policies import working_folder_last
from orsched.common.errors import InputError
from orsched.common.pairs import read_pairs

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.planning.study.config import Settings

PROBLEM_OPTIONS = (
    click.option(
        "--workers",
        metavar="N|SPLIT|FILES",
        help="Copies of the instance's worker, by role (2P2D:ns_per_token=5243), or worker files.",
    ),
    click.option(
        "--arrivals",
        metavar="SPEC",
        help="Other arrivals: poisson:rate=10, gamma:rate=10,cv=2, replay:scale=1.5, at_once, ...",
    ),
    click.option(
        "--predictions",
        metavar="SPEC",
        help="Predicted lengths: classes, percentiles, prompt_length, noise:sigma=0.3, oracle.",
    ),
    click.option(
        "--failures",
        metavar="SPEC",
        help="Workers that fail and are repaired: mtbf=3600,mttr=120 (seconds).",
    ),
    click.option(
        "--autoscale",
        metavar="SPEC",
        help="Start and drain workers by load: min=1,max=8,target=0.7,startup=40 (seconds).",
    ),
    click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.toml",
        help="Settings of [policy], [workers], [arrivals], [predictions], [failures], "
        "[autoscale]; options may not repeat them.",
    ),
)
INSTANCE_OUTPUT = click.option(
    "--instance-output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the instance as it is simulated (.json or .parquet), for check and report.",
)
PROBLEM_SEED = click.option(
    "--seed",
    type=int,
    help="Seed of arrivals, predictions and random choices (default: 0).",
)


def given_settings(
    policy: str | None,
    workers: str | None,
    arrivals: str | None,
    predictions: str | None,
    seed: int | None,
    parameters: tuple[str, ...] = (),
    failures: str | None = None,
    autoscale: str | None = None,
) -> Settings:
    """Return the settings given by options; raises ``InputError`` for what is wrong."""
    from orsched.common.columns import whole_number
    from orsched.data.autoscaling import read_autoscaling
    from orsched.instances.arrivals import read_arrivals
    from orsched.instances.failures import read_failures
    from orsched.instances.predictions import read_predictor
    from orsched.planning.study.config import Settings
    from orsched.solving.scenario import read_workers, worker_files

    return Settings(
        policy,
        None,
        read_pairs(parameters, "--param"),
        None if workers is None else read_workers(workers),
        None if arrivals is None else read_arrivals(arrivals),
        None if predictions is None else read_predictor(predictions),
        None
        if seed is None
        else whole_number(seed, "seed", remedy="give a whole number of at least 0"),
        None if workers is None else worker_files(workers),
        None if failures is None else read_failures(failures),
        None if autoscale is None else read_autoscaling(autoscale),
    )


def merged(given: Settings, config: Path, allow_code: bool = False) -> Settings:
    """Return the settings of the options and of a configuration file together.

    Raises ``InputError`` for what is wrong in the file, what both give, or code that the file names
    and that is not allowed.
    """
    from orsched.common.own_code import is_own, require_consent
    from orsched.planning.study.config import Settings, read_settings

    found = read_settings(config)
    if found.policy is not None and is_own(found.policy):
        working_folder_last([found.policy])
        try:
            require_consent([found.policy], "policy.name", allow_code)
        except InputError as error:
            raise error.located(file=str(config)) from None
    for field in ("policy", "workers", "arrivals", "predictions", "seed", "failures", "autoscale"):
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


def derived(problem: Instance, run: Settings, seed: int | None = None) -> Instance:
    """Return the instance with the workers, arrivals and predictions of the settings."""
    from orsched.solving.scenario import scenario

    number = (run.seed or 0) if seed is None else seed
    axes = (run.workers, run.arrivals, run.predictions)
    return scenario(problem, *axes, number, run.failures, run.autoscale)
