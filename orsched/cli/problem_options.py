"""Options that make another problem of an instance: workers, arrivals, predicted lengths.

``simulate`` and ``compare`` share them, and the file of ``--config`` that says the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.cli.declaring import Options, option
from orsched.cli.policies import parameters_in, working_folder_last
from orsched.common.errors import InputError
from orsched.common.parameters import read_pairs

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.data.instance import Instance
    from orsched.planning.study.plan import Settings


class Problem(Options):
    """Other workers, arrivals and predictions than the instance has."""

    workers: str | None = option(
        "Copies of the instance's worker, by role (2P2D:ns_per_token=5243), or worker files.",
        metavar="N|SPLIT|FILES",
    )
    arrivals: str | None = option(
        "Other arrivals: poisson:rate=10, gamma:rate=10,cv=2, replay:scale=1.5, at_once, ...",
        metavar="SPEC",
    )
    predictions: str | None = option(
        "Predicted lengths: classes, percentiles, prompt_length, noise:sigma=0.3, oracle.",
        metavar="SPEC",
    )
    failures: str | None = option(
        "Workers that fail and are repaired: mtbf=3600,mttr=120 (seconds).", metavar="SPEC"
    )
    autoscale: str | None = option(
        "Start and drain workers by load: min=1,max=8,target=0.7,startup=40 (seconds).",
        metavar="SPEC",
    )
    concurrency: int | None = option(
        "Requests (conversations) in flight at most: the next is sent when one ends.", metavar="N"
    )
    config: Path | None = option(
        "Settings of [policy], [workers], [arrivals], [predictions], [failures], [autoscale], "
        "and concurrency; options may not repeat them.",
        metavar="FILE.toml",
    )
    seed: int | None = option("Seed of arrivals, predictions and random choices (default: 0).")

    def read(self, instance: str) -> list[str | Path]:
        """Return the files that are read, for an instance of this name."""
        return [instance] if self.config is None else [instance, self.config]

    def scenario(self, policy: str | None = None, parameters: tuple[str, ...] = ()) -> Settings:
        """Return the settings given by options; raises ``InputError`` for what is wrong."""
        from orsched.common.columns import whole_number
        from orsched.data.autoscaling import read_autoscaling
        from orsched.instances.arrivals import read_arrivals
        from orsched.instances.failures import read_failures
        from orsched.instances.predictions import read_predictor
        from orsched.planning.study.plan import Settings, read_concurrency
        from orsched.solving.scenario import read_workers, worker_files

        remedy = "give a whole number of at least 0"
        return Settings(
            policy,
            None,
            read_pairs(parameters, "--param"),
            None if self.workers is None else read_workers(self.workers),
            None if self.arrivals is None else read_arrivals(self.arrivals),
            None if self.predictions is None else read_predictor(self.predictions),
            None if self.seed is None else whole_number(self.seed, "seed", remedy=remedy),
            None if self.workers is None else worker_files(self.workers),
            None if self.failures is None else read_failures(self.failures),
            None if self.autoscale is None else read_autoscaling(self.autoscale),
            None if self.concurrency is None else read_concurrency(self.concurrency),
        )


def merged(given: Settings, config: Path, allow_code: bool = False) -> Settings:
    """Return the settings of the options and of a configuration file together.

    ``InputError``: the file is wrong, both give something, or the file's code is not allowed.
    """
    from orsched.common.own_code import code_in, is_own, require_consent
    from orsched.planning.study.plan import Settings, read_settings

    found = read_settings(config)
    named = [] if found.policy is None or not is_own(found.policy) else [found.policy]
    named += code_in({**found.parameters, **parameters_in(found.policy)})
    if named:
        working_folder_last(named)
        try:
            require_consent(named, "policy.name", allow_code)
        except InputError as error:
            raise error.located(file=str(config)) from None
    axes = ("policy", "workers", "arrivals", "predictions", "seed", "failures", "autoscale",
            "concurrency")  # fmt: skip
    twice = [
        f"--{axis}" for axis in axes if None not in (getattr(given, axis), getattr(found, axis))
    ]
    twice += [f"--param {name}" for name in given.parameters if name in found.parameters]
    if twice:
        raise InputError(f"{config} already says this", field=twice[0], remedy="say it once")
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
    rest = (run.failures, run.autoscale, run.concurrency)
    return scenario(problem, *axes, number, *rest)
