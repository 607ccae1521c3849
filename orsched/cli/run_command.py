"""``orsched run``: a schedule or a policy on a real worker, and plan against run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import SINGLE, check_paths, require_packages
from orsched.cli.exit_codes import EXIT_INTERRUPTED, EXIT_INVALID
from orsched.cli.options import (
    ALLOW_PICKLE,
    FORMAT,
    GAP,
    GRAPH_OPTIONS,
    ITERATIONS,
    PARAMETERS,
    load_instance,
    with_options,
)
from orsched.cli.output import remark
from orsched.cli.policies import own_code, require_named, require_search
from orsched.cli.progress import ProgressPrinter
from orsched.cli.run_output import print_run, write_run
from orsched.cli.seconds import SECONDS
from orsched.common.errors import InputError, ResourceError
from orsched.common.pairs import read_pairs

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.execution import RunResult
    from orsched.runner.worker_pool import RunSettings

WORKER_OPTIONS = (
    click.option(
        "--worker",
        type=click.Choice(["torch", "virtual"]),
        default="torch",
        show_default=True,
        help="What executes the steps; virtual: steps take the time of the cost model.",
    ),
    click.option(
        "--model",
        default="tiny",
        show_default=True,
        help="A preset (tiny, 1b, 8b, 13b, ...) with random weights, or a model's folder.",
    ),
    ALLOW_PICKLE,
    click.option(
        "--device", default="auto", show_default=True, help="auto, cpu, cuda, or as torch says."
    ),
    click.option(
        "--dtype",
        type=click.Choice(["float64", "float32", "bfloat16", "float16"]),
        help="Type of weights and caches (default: float32 on the CPU, bfloat16 on a GPU).",
    ),
    click.option("--slots", type=int, help="Slots of the worker (default: its clients)."),
    click.option(
        "--length",
        type=int,
        metavar="TOKENS",
        help="Tokens of a slot (default: the longest request).",
    ),
    click.option(
        "--threads", type=int, help="Threads of torch on the CPU (default: torch's choice)."
    ),
    click.option(
        "--workers-as",
        "place",
        type=click.Choice(["here", "process", "ray"]),
        help="Where torch workers live (default: one here, several as processes).",
    ),
    click.option(
        "--worker-timeout",
        type=SECONDS,
        metavar="SECONDS",
        help="A worker whose step takes longer is killed and restarted (default: 120, "
        "or many times its slowest step).",
    ),
    *GRAPH_OPTIONS,
    click.option(
        "--peaks", is_flag=True, help="Measure the device's peaks first, and the run's use of them."
    ),
)


@click.command("run", short_help="Execute a schedule or a policy; hold plan against run.")
@click.argument("source", metavar="SCHEDULE|INSTANCE")
@click.option(
    "--instance",
    "instance_source",
    metavar="INSTANCE",
    help="Instance of SCHEDULE (default: the shipped one that it names).",
)
@click.option(
    "--policy", help="For INSTANCE: a method's name, or module:Class of your own (default: fcfs)."
)
@click.option(
    "--seed", type=int, help="Seed of the method, of prompts and random weights (default: 0)."
)
@click.option(
    "--errors",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write plan and run of each stage (.csv or .json).",
)
@click.option(
    "--resume",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="TRACE",
    help="Resume a stopped run of SCHEDULE or INSTANCE (default policy: the run's).",
)
@click.option(
    "--end-of-sequence",
    "ends",
    type=int,
    multiple=True,
    metavar="TOKEN",
    help="A token that ends a request (several times: several); lengths turn out in the run.",
)
@click.option(
    "--instance-output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the instance with the lengths that turned out (.json or .parquet).",
)
@click.option(
    "--time-limit", type=SECONDS, metavar="SECONDS", help="Time limit of a method that plans."
)
@with_options(PARAMETERS, ITERATIONS, GAP, *WORKER_OPTIONS, FORMAT, *SINGLE)
def run_command(
    source: str,
    instance_source: str | None,
    policy: str | None,
    seed: int | None,
    parameters: tuple[str, ...],
    style: str,
    errors: Path | None,
    resume: Path | None,
    ends: tuple[int, ...],
    iterations: int | None,
    gap: float | None,
    time_limit: float | None,
    instance_output: Path | None,
    **options: Any,
) -> int:
    """Execute SCHEDULE, or run a policy on INSTANCE, and compare plan and run.

    Methods that are policies decide live; for the others (hybrid, windows) a schedule is made
    first. The trace that -o writes is a schedule with measured times: check and report read it.
    After Ctrl-C it holds the work done, and --resume continues it.

    Examples: orsched run plan.json --instance case.json --model tiny -o run.json;
    orsched run pang-100x20 --policy hybrid --worker virtual
    """
    from orsched.calibration.plan_errors import plan_against_run
    from orsched.common.stop import require_gap
    from orsched.files import save_instance
    from orsched.runner.calibration.memory_profile import read_bytes
    from orsched.runner.loop.interrupts import finishing
    from orsched.runner.worker_pool import RunSettings

    if gap is not None:
        require_gap(gap, "--gap")
    paths = {name: options.pop(name) for name in _ARTEFACTS}
    graph_bytes = read_bytes(options.pop("graph_memory"), "--graph-memory")
    settings = RunSettings(**options, graph_bytes=graph_bytes)
    inputs = [str(path) for path in (source, instance_source, resume) if path]
    check_paths({**paths, "errors": errors, "instance-output": instance_output}, inputs)
    require_packages(paths)
    if ends and paths["output"] is not None and instance_output is None:
        raise InputError(
            "the lengths turn out in the run: the trace needs an instance of its own",
            field="--instance-output",
            remedy="say where to write it",
        )
    given = read_pairs(parameters, "--param")
    with ProgressPrinter("loading") as progress:
        before = None if resume is None else _stopped_run(resume)
        if before is not None and policy is None and not is_schedule(source):
            policy = _policy_of(before)
            given = given or dict(before.parameters)
        ends_search: dict[str, object] = {
            "--iterations": iterations,
            "--gap": gap,
            "--time-limit": time_limit,
        }
        problem, what = _sources(source, instance_source, policy, given, ends_search)
        chosen = {
            "seed": seed or 0,
            "parameters": given,
            "resume": before,
            "end_of_sequence": ends,
            "iterations": iterations,
            "gap": gap,
            "time_limit": time_limit,
        }
        done = _run(problem, what, settings, chosen, progress)
        with finishing(done.stopped):
            progress.say("holding plan against run")
            against = plan_against_run(done.instance, done.plan, done.trace)
            progress.say("writing")
            if instance_output is not None:
                save_instance(done.instance, instance_output)
                remark(f"instance written to {instance_output}")
            write_run(done, against, {**paths, "errors": errors})
    print_run(done, against, style)
    return _exit_code(done)


_ARTEFACTS = (
    "output", "report", "gantt", "usage", "latency", "timeline", "classes", "trace", "records",
)  # fmt: skip


def _exit_code(done: RunResult) -> int:
    if done.violations:
        return EXIT_INVALID
    if done.stopped == "interrupted":
        return EXIT_INTERRUPTED
    if done.stopped:
        raise ResourceError(f"the run was stopped: {done.stopped} (--resume continues it)")
    return 0


def _run(
    problem: Instance,
    what: Schedule | str,
    settings: RunSettings,
    options: dict[str, Any],
    progress: ProgressPrinter,
) -> RunResult:
    from orsched.runner.execution import run

    with own_code([what] if isinstance(what, str) else []):
        return run(problem, what, settings, callback=progress.callback, say=progress.say, **options)


def _stopped_run(path: Path) -> Schedule:
    from orsched.files import load_schedule

    trace = load_schedule(path)
    if not trace.is_partial:
        raise InputError(
            "this run was not stopped", file=str(path), field="--resume", remedy="leave it out"
        )
    return trace


def _policy_of(trace: Schedule) -> str:
    """Return the policy that a run had, as far as its name says it."""
    from orsched.common.registry import names

    if trace.method not in names("methods"):
        raise InputError(
            f"the run used a policy that has no registered name, {trace.method!r}",
            field="--policy",
            remedy="name the policy to continue with",
        )
    return f"{trace.method}@{trace.information}"


def _sources(
    source: str,
    instance_source: str | None,
    policy: str | None,
    parameters: dict[str, Any],
    ends_search: dict[str, object],
) -> tuple[Instance, Schedule | str]:
    """Return the instance, and the schedule or the policy to run on it."""
    if not is_schedule(source):
        if instance_source is not None:
            raise InputError(f"{source} is an instance", field="--instance", remedy="leave it out")
        name = "fcfs" if policy is None else policy
        require_named(name, None, parameters)
        require_search([name], ends_search)
        return load_instance(source).admitted(), name
    from orsched.files import load_schedule

    for field, value in {"--policy": policy, "--param": parameters or None, **ends_search}.items():
        if value is not None:
            raise InputError(
                f"{source} is a schedule: it is followed", field=field, remedy="leave it out"
            )
    schedule = load_schedule(source)
    return _instance_of(schedule, source, instance_source), schedule


def is_schedule(source: str) -> bool:
    """Whether a source is the file of a schedule or of a trace."""
    path, head = Path(source), b""
    if path.suffix not in (".json", ".parquet") or not path.is_file():
        return False
    with path.open("rb") as stream:
        if path.suffix == ".json":
            head = stream.read(4096)
        else:  # the metadata stand at the end
            stream.seek(max(0, path.stat().st_size - 2**20))
            head = stream.read()
    return any(b'"orsched/%s"' % kind in head for kind in (b"schedule", b"trace"))


def _instance_of(schedule: Schedule, source: str, given: str | None) -> Instance:
    from orsched.data.schedule import require_same_instance
    from orsched.instances.catalog import names

    if given is None and schedule.instance_name not in names():
        raise InputError(
            f"the schedule is for the instance {schedule.instance_name!r}",
            file=source,
            field="--instance",
            remedy="give its file",
        )
    instance = load_instance(given or schedule.instance_name).admitted()
    require_same_instance(instance, schedule, source, "--instance")
    return instance
