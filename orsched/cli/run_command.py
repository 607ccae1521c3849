"""``orsched run``: a schedule or a policy on a real worker, and plan against run."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import (
    OneSchedule,
    check_paths,
    given_files,
    require_packages,
    write_artefacts,
    write_comparison,
    write_plan_and_run,
)
from orsched.cli.declaring import Options, argument, command, option
from orsched.cli.ending import EXIT_INTERRUPTED, EXIT_INVALID
from orsched.cli.options import ALLOW_PICKLE, ENGINE_ARGUMENTS, PARAMETERS, Printed, Search, seconds
from orsched.cli.output import ProgressPrinter, print_rows, printable, remark, say, table
from orsched.cli.policies import own_code, require_named, require_search
from orsched.cli.request_options import load_instance
from orsched.common.errors import InputError, ResourceError
from orsched.common.parameters import read_pairs
from orsched.common.units import NS_PER_MS, NS_PER_S
from orsched.metrics.flat_figures import flat_figures

if TYPE_CHECKING:
    from orsched.calibration.plan_errors import PlanAgainstRun
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.execution import RunResult
    from orsched.runner.speed import Speed
    from orsched.runner.worker_pool import RunSettings


class _Worker(Options):
    """The worker that executes."""

    worker: str = option(
        "What executes: torch, vllm, virtual (the cost model's times), or module:Class.",
        default="torch",
        metavar="NAME",
    )
    arguments: tuple[str, ...] = ENGINE_ARGUMENTS
    model: str = option(
        "A preset (tiny, 1b, 8b, 13b, ...) with random weights, or a model's folder.",
        default="tiny",
    )
    allow_pickle: bool = ALLOW_PICKLE
    device: str = option("auto, cpu, cuda, or as torch says.", default="auto")
    dtype: str | None = option(
        "Type of weights and caches (default: float32 on the CPU, bfloat16 on a GPU).",
        choices=["float64", "float32", "bfloat16", "float16"],
    )
    slots: int | None = option("Slots of the worker (default: its clients).")
    length: int | None = option(
        "Tokens of a slot (default: the longest request).", metavar="TOKENS"
    )
    threads: int | None = option("Threads of torch on the CPU (default: torch's choice).")
    place: str | None = option(
        "Where torch workers live (default: one here, several as processes).",
        "--workers-as",
        choices=["here", "process", "ray"],
    )
    worker_timeout: float | None = seconds(
        "A worker whose step takes longer is killed and restarted (default: 120, "
        "or many times its slowest step)."
    )
    graph_sizes: int = option(
        "Most sizes of steps captured as graphs before time 0, on a GPU (0: none).",
        "--graphs",
        default=512,
        metavar="NUMBER",
    )
    graph_memory: str = option(
        "Most memory for these graphs; a step without a graph runs as it is.",
        default="2GiB",
        metavar="BYTES",
    )
    peaks: bool = option("Measure the device's peaks first, and the run's use of them.")
    calibration: Path | None = option(
        "The file of calibrate: how much of the plan's error is drift of the machine."
    )

    def run_settings(self) -> RunSettings:
        from orsched.runner.capacity import read_bytes
        from orsched.runner.worker_pool import RunSettings

        said = {name: getattr(self, name) for name in _Worker.declared()}
        said["graph_bytes"] = read_bytes(said.pop("graph_memory"), "--graph-memory")
        said["calibrated"] = _speed(said.pop("calibration"))
        said["arguments"] = tuple(read_pairs(self.arguments, "--engine-arg").items())
        return RunSettings(**said)


def _speed(path: Path | None) -> Speed | None:
    """Return how fast a machine was when its cost model was measured."""
    if path is None:
        return None
    from orsched.files.native import load_fitted_cost
    from orsched.files.text import locating
    from orsched.runner.speed import Speed

    report = load_fitted_cost(path)[1]
    with locating(path):
        return Speed.read(report or {})


@command(
    "run",
    usual="instance_source policy worker model device resume output report gantt style",
)
class RunCommand(Search, _Worker, OneSchedule, Printed):
    """Execute SCHEDULE, or run a policy on INSTANCE, and compare plan and run.

    Methods that are policies decide live; for the others (hybrid, windows) a schedule is made
    first. The trace that -o writes is a schedule with measured times: check and report read it.
    After Ctrl-C it holds the work done, and --resume continues it.

    Examples: orsched run plan.json --instance case.json --model tiny -o run.json;
    orsched run pang-100x20 --policy hybrid --worker virtual
    """

    source: str = argument("SCHEDULE|INSTANCE")
    instance_source: str | None = option(
        "Instance of SCHEDULE (default: the shipped one that it names).",
        "--instance",
        metavar="INSTANCE",
    )
    policy: str | None = option(
        "For INSTANCE: a method's name, or module:Class of your own (default: the engine's, "
        "else fcfs)."
    )
    seed: int | None = option("Seed of the method, of prompts and random weights (default: 0).")
    errors: Path | None = option("Write plan and run of each stage (.csv or .json).")
    resume: Path | None = option(
        "Resume a stopped run of SCHEDULE or INSTANCE (default policy: the run's).",
        metavar="TRACE",
    )
    ends: tuple[int, ...] = option(
        "A token that ends a request (several times: several); lengths turn out in the run.",
        "--end-of-sequence",
        metavar="TOKEN",
    )
    instance_output: Path | None = option(
        "Write the instance with the lengths that turned out (.json or .parquet)."
    )
    time_limit: float | None = seconds("Time limit of a method that plans.")
    parameters: tuple[str, ...] = PARAMETERS

    def _run(self) -> int:
        from orsched.calibration.plan_errors import plan_against_run
        from orsched.common.stop import require_gap
        from orsched.files import save_instance
        from orsched.runner.loop.live_loop import finishing

        if self.gap is not None:
            require_gap(self.gap, "--gap")
        paths, settings, output = given_files(self), self.run_settings(), self.instance_output
        inputs = [path for path in (self.source, self.instance_source, self.resume) if path]
        check_paths({**paths, "errors": self.errors, "instance-output": output}, inputs)
        require_packages(paths)
        if self.ends and self.output is not None and output is None:
            raise InputError(
                "the lengths turn out in the run: the trace needs an instance of its own",
                field="--instance-output",
                remedy="say where to write it",
            )
        parameters, policy = read_pairs(self.parameters, "--param"), self.policy
        with ProgressPrinter("loading") as progress:
            before = None if self.resume is None else _stopped_run(self.resume)
            if before is not None and policy is None and not is_schedule(self.source):
                policy = _policy_of(before)
                parameters = parameters or dict(before.parameters)
            problem, what = _sources(self, policy, parameters)
            done = _run(problem, what, settings, self, parameters, before, progress)
            with finishing(done.stopped):
                progress.say("holding plan against run")
                against = plan_against_run(done.instance, done.plan, done.trace)
                progress.say("writing")
                if output is not None:
                    save_instance(done.instance, output)
                    remark(f"instance written to {output}")
                _write_run(done, against, paths, self.errors)
        _print_run(done, against, self.style)
        return _exit_code(done)


def _run(
    problem: Instance,
    what: Schedule | str,
    settings: RunSettings,
    given: RunCommand,
    parameters: dict[str, Any],
    before: Schedule | None,
    progress: ProgressPrinter,
) -> RunResult:
    from orsched.runner.execution import run

    with own_code([settings.worker, *([what] if isinstance(what, str) else [])], parameters):
        return run(
            problem,
            what,
            settings,
            callback=progress.callback,
            say=progress.say,
            seed=given.seed or 0,
            parameters=parameters,
            resume=before,
            end_of_sequence=given.ends,
            iterations=given.iterations,
            gap=given.gap,
            time_limit=given.time_limit,
        )


def _exit_code(done: RunResult) -> int:
    if done.violations:
        return EXIT_INVALID
    if done.stopped == "interrupted":
        return EXIT_INTERRUPTED
    if done.stopped:
        raise ResourceError(f"the run was stopped: {done.stopped} (--resume continues it)")
    return 0


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
    given: RunCommand, policy: str | None, parameters: dict[str, Any]
) -> tuple[Instance, Schedule | str]:
    """Return the instance, and the schedule or the policy to run on it."""
    from orsched.files import load_schedule
    from orsched.solving.solver import own_policy

    source, ends = given.source, {**given.ends_of_search, "--time-limit": given.time_limit}
    if not is_schedule(source):
        if given.instance_source is not None:
            raise InputError(f"{source} is an instance", field="--instance", remedy="leave it out")
        if policy is not None:
            require_named(policy, None, parameters)
        problem = load_instance(source).admitted()
        name = own_policy(problem) if policy is None else policy
        require_named(name, None, parameters)
        require_search([name], ends)
        return problem, name
    for field, value in {"--policy": policy, "--param": parameters or None, **ends}.items():
        if value is not None:
            raise InputError(
                f"{source} is a schedule: it is followed", field=field, remedy="leave it out"
            )
    schedule = load_schedule(source)
    return _instance_of(schedule, source, given.instance_source), schedule


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


def _print_run(done: RunResult, against: PlanAgainstRun, style: str) -> None:
    """Print the run's row, then plan against run (in JSON: within the row), then the use."""
    from orsched.runner.utilization import use_rows

    row = _run_row(done, against)
    if style != "table":
        row |= {
            name: value
            for name, value in flat_figures(done.trace.results).items()
            if name not in row
        }
    if style == "json":
        row["plan_against_run"] = against.to_dict()
    print_rows([row], style, single=True)
    if style == "table":
        click.echo(f"\n{table(_phase_rows(against))}")
        if against.terms:
            click.echo(f"\n{table(_term_rows(against))}")
        lines = [*_verdict(against), *_clock(against, done.trace.run)]
        click.echo("\n" + "\n".join(printable(line) for line in lines))
        use = use_rows(done.trace.run)
        if use:
            click.echo(f"\n{table(use)}")
    if done.stopped:
        say(f"{done.stopped}: the trace is of a part of the run")
    for violation in done.violations[:3]:
        say(f"{violation.kind}: {violation.message}")


def _run_row(done: RunResult, against: PlanAgainstRun) -> dict[str, Any]:
    trace, block = done.trace, done.trace.run
    return {
        "method": trace.method,
        "information": trace.information,
        "device": block["device"],
        "model": block.get("model", "-"),
        "plan_s": against.plan_makespan_ns / NS_PER_S,
        "makespan_s": trace.makespan_ns / NS_PER_S,
        "plan_error": against.makespan_error,
        "slot_utilization": trace.results.get("slot_utilization"),
        "busy_share": block["busy_share"],
        "gap_share": block["gap_share"],
        "tokens_per_s": trace.results.get("tokens_per_s"),
        "checked": not done.violations,
    }


def _phase_rows(against: PlanAgainstRun) -> list[dict[str, Any]]:
    return [
        {
            "phase": row.phase,
            "stages": row.stages,
            "rounds": row.rounds,
            "plan s": row.planned_ns / NS_PER_S,
            "run s": row.took_ns / NS_PER_S,
            "gaps s": row.gap_ns / NS_PER_S,
            "error": _percent(row.error, sign=True),
            "a stage: mean": _percent(row.mean),
            "p95": _percent(row.p95),
            "worst": _percent(row.worst),
        }
        for row in against.phases
    ]


def _term_rows(against: PlanAgainstRun) -> list[dict[str, Any]]:
    return [
        {
            "phase": term.phase,
            "term": term.term,
            "plan us": term.planned_ns / 1000,
            "run us": term.measured_ns / 1000,
            "adds ms": term.error_ns / NS_PER_MS,
            "alone us": term.alone_ns / 1000,
            "explains": _percent(term.explains),
        }
        for term in against.terms
    ]


def _verdict(against: PlanAgainstRun) -> list[str]:
    """Return in a few lines how the run compares with the plan."""
    plan, run = (ns / NS_PER_S for ns in (against.plan_makespan_ns, against.run_makespan_ns))
    parts = ", ".join(f"{k} {v / NS_PER_S:+.3f} s" for k, v in against.parts.items() if v)
    said = "planned were" if against.has_plan else "the cost model says"
    lines = [
        f"The run took {run:.3f} s, {said} {plan:.3f} s"
        f" ({_percent(against.makespan_error, sign=True)}){': ' + parts if parts else ''}.",
    ]
    if against.has_plan:
        count = len(against.stages.worker)
        lines.append(f"{against.followed:,} of {count:,} stages are the plan's.")
    worst = against.worst_term
    if worst is not None:
        lines.append(
            f"The error is mostly of {worst.phase}; its term '{worst.term}' alone, with "
            f"{worst.alone_ns / 1000:,.3f} us instead of {worst.planned_ns / 1000:,.3f} us, "
            f"explains {_percent(worst.explains)} of it (of the squares)."
        )
    if against.refit_error is not None:
        error = _percent(against.refit_error, sign=True)
        lines.append(f"With the {against.cost['model']} model fitted to this run: {error}.")
    return lines


def _clock(against: PlanAgainstRun, run: dict[str, Any]) -> list[str]:
    """Return what the times are of, and how much of the error is the machine's."""
    lines = []
    if run["clock"].startswith("CPU"):
        lines.append("Times are CPU time of the worker: what others take of its core is left out.")
    if "speed" in run:
        drift, plan = run["speed"]["drift"], against.plan_makespan_ns
        error = against.run_makespan_ns / drift / plan - 1 if plan else None
        lines.append(
            f"Drift of the machine since its calibration, by {run['speed']['reference']}: "
            f"{_percent(drift - 1, sign=True)}; without it the run is off by "
            f"{_percent(error, sign=True)}."
        )
    return lines


def _percent(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{100 * value:+.2f} %" if sign else f"{100 * value:.2f} %"


def _write_run(
    done: RunResult, against: PlanAgainstRun, paths: dict[str, Path | None], errors: Path | None
) -> None:
    own = dict(paths)
    if done.plan is not None:
        write_artefacts(done.instance, done.trace, {"output": own.pop("output")})
        write_comparison(done.instance, [done.plan, done.trace], own.pop("report"), None)
        write_plan_and_run(done.instance, done.plan, done.trace, own.pop("gantt"))
    write_artefacts(done.instance, done.trace, own)
    if errors is not None:
        _write_errors(against, errors)
        remark(f"errors written to {errors}")


def _write_errors(against: PlanAgainstRun, path: Path) -> None:
    from orsched.files.document import write_text

    rows = against.stage_rows()
    if path.suffix.lower() == ".json":
        document = {**against.to_dict(), "stage_rows": rows}
        write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
        return
    text = io.StringIO()
    names = list(rows[0]) if rows else ["worker", "phase"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
