"""Options that several commands share, in the classes that commands' own options build on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.declaring import Options, argument, option
from orsched.cli.output import say
from orsched.cli.policies import parameters_in, working_folder_last
from orsched.common.errors import InputError, known_names
from orsched.common.parameters import read_pairs

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.data.instance import Instance
    from orsched.metrics.summary import SLO
    from orsched.planning.study.plan import Settings
    from orsched.solving.objectives import Objective

CONCURRENCY = option(
    "Requests (conversations) in flight at most: the next is sent when one ends.", metavar="N"
)


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
    concurrency: int | None = CONCURRENCY
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


class _Seconds(click.types.FloatParamType):
    """A number of seconds; one with a unit is refused with the number to write."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return float(value)
        except ValueError:
            found = _WITH_UNIT.fullmatch(value.strip())
        remedy = "e.g. 0.5"
        if found:
            remedy = f"write {float(found[1]) * _UNITS[found[2].lower()]:g}"
        raise click.BadParameter(f"{value!r} is not a number of seconds: {remedy}", ctx, param)


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) *(us|ms|s|sec|m|min|h)", re.IGNORECASE)


def seconds(help: str, *flags: str, **settings: Any) -> Any:
    """Declare an option that is a time in seconds."""
    return option(help, *flags, **{"type": _Seconds(), "metavar": "SECONDS", **settings})


INSTANCE = argument("INSTANCE")
SEED = option("Seed of the method's random choices.", default=0)
PARAMETERS = option(
    "A parameter of the method or policy; may be given several times.",
    "--param",
    metavar="NAME=VALUE",
)
SETTINGS = option(
    "An argument of the generator; may be given several times.", "--set", metavar="NAME=VALUE"
)
INFORMATION = option(
    "What the method may know of output lengths (default: its own).",
    choices=["none", "predicted", "clairvoyant"],
)
TIME_LIMIT = seconds(
    "End after this time: loading, bounding and checking count, writing files does not."
)
CPU_LIMIT = seconds("End after this time of the CPU, all threads together, instead.")
ITERATIONS = option(
    "Iterations of a method that searches: reproducible, unlike a time limit. exact counts none.",
    metavar="N",
)
GAP = option(
    "End a search once the makespan is proven to be so close to the least: 0.01 is 1 %.",
    metavar="SHARE",
)
ALLOW_CODE = option(
    "Import and run the policies that the file names as module:Class: read them first."
)
ALLOW_PICKLE = option("Load pickled weights of a model's folder (default: safetensors only).")
ENGINE_ARGUMENTS = option(
    "Argument of vLLM's EngineArgs, or of your engine (several times: several).",
    "--engine-arg",
    metavar="NAME=VALUE",
)
JOBS = option("Processes at once (default: the CPUs).", metavar="N")
RAY_ADDRESS = option("A running Ray cluster, e.g. auto.", metavar="ADDRESS")


class Printed(Options):
    """The format of what is printed."""

    style: str = option(
        "How results are printed on stdout.",
        "--format",
        choices=["table", "json", "csv"],
        default="table",
    )


class Limits(Options):
    """Latency limits."""

    slo_ttft: float | None = seconds("Limit on TTFT.")
    slo_tpot: float | None = seconds("Limit on TPOT.")
    slo_text: str | None = option(
        "Limits on figures of the run: [CLASS:]LATENCY_FIGURE<=SECONDS, ...; latencies ttft, tpot, "
        "itl, stall, e2e; figures mean, max, p99, ...",
        "--slo",
        metavar="'ttft_p99<=2,itl_p95<=0.05'",
    )

    @property
    def slo(self) -> SLO | None:
        """The service-level objective, or None where no limit is given."""
        from orsched.common.units import seconds_to_ns
        from orsched.metrics.summary import SLO

        if (self.slo_ttft, self.slo_tpot, self.slo_text) == (None, None, None):
            return None
        self.note_milliseconds()
        return SLO(
            self.slo_text or (),
            ttft_ns=None if self.slo_ttft is None else seconds_to_ns(self.slo_ttft, "--slo-ttft"),
            tpot_ns=None if self.slo_tpot is None else seconds_to_ns(self.slo_tpot, "--slo-tpot"),
        )

    def note_milliseconds(self) -> None:
        """Say where a limit looks like milliseconds: all times here are in seconds."""
        for flag, value, least in (
            ("--slo-ttft", self.slo_ttft, 100),
            ("--slo-tpot", self.slo_tpot, 2),
        ):
            if value is not None and least <= value < 10**9:
                say(
                    f"{flag} {value:g} is {value:g} seconds; if milliseconds were meant, "
                    f"write {value / 1000:g}",
                    "note",
                )


_BOUNDS = ("makespan", "mean_jct", "mean_ttft")


def _bounds(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    """Return the names of bounds; refuses, before anything is loaded, one that does not exist."""
    if not text:
        return ()
    from orsched.solving.objectives import other_name

    names = tuple(other_name(name.strip()) for name in text.split(",") if name.strip())
    for name in names:
        if name not in _BOUNDS:
            raise InputError(
                f"no bound on {name!r} is available",
                field="--bounds",
                remedy=known_names(name, _BOUNDS),
            )
    return names


def _objective(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> Objective | None:
    if text is None:
        return None
    from orsched.solving.objectives import minimised

    return minimised(text)


class Judged(Limits):
    """By what schedules are judged."""

    objective: Objective | None = option(
        "What to minimise: makespan, jct_mean, ttft_mean, weighted_jct_mean, a weighted sum such "
        "as 0.3*makespan+0.7*jct_mean, weighted_tardiness_mean, lateness_max; or slo_attainment "
        "(maximised).  [default: makespan]",
        metavar="NAME",
        callback=_objective,
    )
    bounds: tuple[str, ...] = option(
        "Bounds on means beside those on the makespan: mean_jct, mean_ttft.",
        type=click.UNPROCESSED,
        default=(),
        show_default=False,
        multiple=False,
        metavar="A,B",
        callback=_bounds,
    )


class Timed(Options):
    """A time limit, which counts from the command's start."""

    time_limit: float | None = TIME_LIMIT

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        from orsched.common.stop import Clock

        self._clock = Clock(self.time_limit)

    def require_ends(self) -> None:
        """Refuse, before anything is loaded, what cannot end a search."""
        from orsched.common.stop import require_gap

        gap = self.__dict__.get("gap")
        if gap is not None:
            require_gap(gap, "--gap")

    @property
    def time_left(self) -> float | None:
        """What is left of the limit, in seconds."""
        return max(1e-3, self._clock.left()) if self._clock.limited else None


class CpuTimed(Timed):
    """A time limit of the clock or of the CPU."""

    cpu_limit: float | None = CPU_LIMIT

    def __init__(self, values: dict[str, Any]) -> None:
        if values["cpu_limit"] is not None:
            from orsched.common.scalars import require_seconds
            from orsched.common.stop import CpuSeconds

            if values["time_limit"] is not None:
                raise InputError(
                    "two time limits", field="--cpu-limit", remedy="leave --time-limit out"
                )
            seconds = require_seconds(values["cpu_limit"], "--cpu-limit")
            values = {**values, "time_limit": CpuSeconds(seconds)}
        super().__init__(values)


class Search(CpuTimed):
    """What ends a search."""

    iterations: int | None = ITERATIONS
    gap: float | None = GAP

    @property
    def ends_of_search(self) -> dict[str, object]:
        """The ends that only a search has, by their options."""
        return {"--iterations": self.iterations, "--gap": self.gap}
