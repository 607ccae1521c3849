"""``orsched calibrate``: measure a worker, fit every cost model, write the one to use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from orsched.cli.options import ALLOW_PICKLE, FORMAT, load_instance
from orsched.cli.output import print_json, print_rows, remark, say, table
from orsched.cli.progress import ProgressPrinter
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from orsched.calibration.measurements import Measurements
    from orsched.data.memory import BlockMemory
    from orsched.runner.calibration.fitting import Calibration, Candidate
    from orsched.runner.calibration.judging import Verdict
    from orsched.runner.calibration.memory_profile import Found
    from orsched.runner.calibration.reference import Speed

_OF_WORKER = ("model", "device", "dtype", "slots", "length", "threads")
_FILE = click.Path(dir_okay=False, path_type=Path)


class _Measured(NamedTuple):
    """What is known of a worker, or of steps in a file."""

    measurements: Measurements
    worker: dict[str, Any] | None
    batches: list[Found]
    speed: Speed | None


@click.command("calibrate", short_help="Measure a worker and fit cost models to it.")
@click.option("--model", default="tiny", show_default=True, help="A preset or a model's folder.")
@ALLOW_PICKLE
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1.")
@click.option("--dtype", help="Type of weights and caches (default: float32; bfloat16 on a GPU).")
@click.option("--slots", type=int, default=8, show_default=True, help="Slots of the worker, J.")
@click.option(
    "--length", type=int, default=1024, show_default=True, help="Tokens that a slot holds."
)
@click.option(
    "--prefill-cap",
    type=int,
    default=2048,
    show_default=True,
    metavar="TOKENS",
    help="Most tokens of a prefill stage.",
)
@click.option("--threads", type=int, help="Threads of torch on the CPU (default: torch's choice).")
@click.option(
    "--repeats", type=int, default=5, show_default=True, help="Measurements of each point."
)
@click.option(
    "--requests", type=int, help="Requests in the rehearsal (default: 6 a slot; 0: none)."
)
@click.option("--like", metavar="INSTANCE", help="Instance whose lengths the rehearsal uses.")
@click.option(
    "--memory",
    metavar="BYTES|auto",
    help="Find the largest batch of each length: within this many bytes (2GiB), or what a GPU has.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of order and prompts.")
@click.option("--from", "source", type=_FILE, help="Fit to measurements in a file (.csv).")
@click.option(
    "--judge",
    "runs",
    type=_FILE,
    multiple=True,
    help="Steps of a run (.csv): how far off the model is on its whole; several times for several.",
)
@click.option("--template", is_flag=True, help="Print a CSV of measurements to fill in, and stop.")
@click.option(
    "--cost-model",
    "chosen",
    default="best",
    show_default=True,
    metavar="NAME",
    help="Which one to write: affine, levels, bilinear, pooling, profiled, linear, roofline, or "
    "the best.",
)
@click.option(
    "--weighting",
    type=click.Choice(["relative", "seconds"]),
    default="relative",
    show_default=True,
    help="What fits make small: relative errors of steps, or seconds, for steps of runs.",
)
@click.option("-o", "--output", type=_FILE, help="Write the cost model (.json).")
@click.option("--measurements", type=_FILE, help="Write what was measured (.csv).")
@click.option("--worker-file", type=_FILE, help="Write a worker: slots, cost and memory (.json).")
@FORMAT
def calibrate_command(
    source: Path | None,
    runs: tuple[Path, ...],
    template: bool,
    chosen: str,
    weighting: str,
    output: Path | None,
    measurements: Path | None,
    worker_file: Path | None,
    style: str,
    **options: Any,
) -> None:
    """Measure a worker's steps, fit every cost model, and report errors on steps not fitted.

    Examples: orsched calibrate --model tiny --slots 16 --length 512 -o cost.json;
    orsched calibrate --template > rows.csv, fill it in, and
    orsched calibrate --from rows.csv --judge steps.csv -o cost.json
    """
    from orsched.runner.calibration.fitting import MODELS, calibrate
    from orsched.runner.calibration.judging import judge, read_steps
    from orsched.runner.calibration.measurements_csv import TEMPLATE

    if template:
        click.echo(TEMPLATE, nl=False)
        return
    if chosen not in ("best", *MODELS):
        raise InputError(
            f"no fit for {chosen!r}", field="--cost-model", remedy=f"best, {', '.join(MODELS)}"
        )
    _check_files(output, measurements, worker_file, source)
    steps = [(str(path), read_steps(path)) for path in runs]
    measured = _measure(options) if source is None else _read(source, worker_file)
    if measurements is not None:
        from orsched.runner.calibration.measurements_csv import write_measurements

        write_measurements(measured.measurements, measurements)
        _said("measurements", measurements)
    done = calibrate(measured.measurements, weighting=weighting)
    best = done.candidate(chosen)
    assert best.cost is not None
    verdicts = [judge(best.cost, name, found) for name, found in steps]
    _write(done, best, measured, verdicts, output, worker_file, options)
    _print(done, best, measured, verdicts, style)


def _check_files(
    output: Path | None, measurements: Path | None, worker_file: Path | None, source: Path | None
) -> None:
    """Refuse, before anything is measured, files that could not be written."""
    taken = {} if source is None else {source.resolve(): "the command reads it"}
    for option, path, suffix in (
        ("--output", output, ".json"),
        ("--measurements", measurements, ".csv"),
        ("--worker-file", worker_file, ".json"),
    ):
        if path is None:
            continue
        problem = None
        if path.suffix.lower() != suffix:
            problem, remedy = "the wrong suffix", f"a file that ends in {suffix}"
        elif not path.parent.is_dir():
            problem, remedy = "there is no such folder", "choose a folder that exists"
        elif path.resolve() in taken:
            problem, remedy = taken[path.resolve()], "choose another name"
        if problem is not None:
            raise InputError(problem, file=str(path), field=option, remedy=remedy)
        taken[path.resolve()] = f"{option} writes it, too"


def _read(source: Path, worker_file: Path | None) -> _Measured:
    from orsched.runner.calibration.measurements_csv import read_measurements

    context = click.get_current_context()
    names = ("model", "device", "dtype", "slots", "length", "prefill_cap", "threads", "repeats")
    for name in (*names, "requests", "like", "memory", "seed", "allow_pickle"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(
                "does not apply to measurements of a file",
                field="--" + name.replace("_", "-"),
                remedy="leave it out",
            )
    if worker_file is not None:
        raise InputError("measurements name no worker", field="--worker-file", remedy="use -o")
    return _Measured(read_measurements(source), None, [], None)


def _measure(options: dict[str, Any]) -> _Measured:
    from orsched.common.columns import whole_number
    from orsched.runner.calibration.measuring import (
        WorkerOptions,
        largest_batches,
        make_device,
        measure_worker,
    )
    from orsched.runner.calibration.memory_profile import read_bytes
    from orsched.runner.capacity import require_room, size_of
    from orsched.runner.devices.load import contention

    wanted = WorkerOptions(*(options[name] for name in (*_OF_WORKER, "allow_pickle")))
    most, memory = options["prefill_cap"], options["memory"]
    limit = None if memory in (None, "auto") else read_bytes(memory)
    for name, least in (("repeats", 1), ("requests", 0), ("seed", 0), ("prefill_cap", 1)):
        if options[name] is not None:
            whole_number(options[name], name, minimum=least)
    like = None if options["like"] is None else load_instance(options["like"]).requests
    with ProgressPrinter("loading the model") as progress:
        found = wanted.settings()
        size = size_of(found.model, found.dtype, found.allow_pickle)
        require_room(size, found.slots, found.length, found.device)
        for warning in contention(found):
            say(f"warning: {warning}")
        batches = []
        if memory is not None:
            batches = largest_batches(wanted, most, limit, progress.say)
        device, about = make_device(wanted, options["seed"])
        measured = measure_worker(
            device,
            most,
            options["repeats"],
            options["seed"],
            options["requests"],
            like,
            progress.say,
        )
    for warning in measured.speed.warnings():
        say(f"warning: {warning}")
    return _Measured(measured.steps, about, batches, measured.speed)


def _write(
    done: Calibration,
    best: Candidate,
    measured: _Measured,
    verdicts: list[Verdict],
    output: Path | None,
    worker_file: Path | None,
    options: dict[str, Any],
) -> None:
    from orsched.data.workers import Worker
    from orsched.files import save_cost
    from orsched.files.atomic import write_text

    report = done.report(best.model)
    if verdicts:
        report["runs"] = [verdict.to_dict() for verdict in verdicts]
    if measured.worker is not None:
        report["worker"] = measured.worker
    if measured.speed is not None:
        report["speed"] = measured.speed.to_dict()
        report["warnings"] += measured.speed.warnings()
    assert best.cost is not None
    if output is not None:
        save_cost(best.cost, output, report)
        _said("cost model", output)
    if worker_file is not None:
        worker = Worker(
            options["slots"],
            best.cost,
            options["prefill_cap"],
            _memory(measured),
            name=Path(options["model"]).name,
        )
        write_text(worker_file, json.dumps(worker.to_dict(), indent=1) + "\n")
        _said("worker", worker_file)


def _memory(measured: _Measured) -> BlockMemory | None:
    from orsched.runner.calibration.memory_profile import block_memory

    return block_memory(measured.batches) if measured.batches else None


def _said(what: str, path: Path) -> None:
    remark(f"{what} written to {path}")


def _print(
    done: Calibration,
    best: Candidate,
    measured: _Measured,
    verdicts: list[Verdict],
    style: str,
) -> None:
    from orsched.calibration.confidence import NOT_DETERMINED

    rows = [_row(candidate, candidate is best) for candidate in done.candidates]
    memory = _memory(measured)
    batches = [found._asdict() for found in measured.batches]
    if style == "json":
        blocks = None if memory is None else memory.to_dict()
        facts = {"models": rows, "chosen": best.model, "batches": batches, "memory": blocks}
        facts["constants"] = best.constants
        print_json(facts | {"runs": [verdict.to_dict() for verdict in verdicts]})
    else:
        print_rows(rows, style)
        if batches and style == "table":
            click.echo(f"\n{table(batches)}")
        if verdicts and style == "table":
            click.echo(f"\n{table([_run_row(verdict) for verdict in verdicts])}")
    held, every = len(done.held), len(done.held) + len(done.fitted)
    say(
        f"absolute relative errors on {held} of {every} steps, to which nothing was fitted; "
        f"the best by its score, half the error of a run's sums, is {done.candidate().model}"
    )
    for name, found in best.constants.items():
        low, high = found["interval_95"]
        text = f"95 %: {low:,.6g} to {high:,.6g}" if found["determined"] else NOT_DETERMINED
        say(f"{best.model}: {name} {found['value']:,.6g}, {text}")
    for candidate in done.candidates:
        for note in candidate.notes:
            say(f"{candidate.model}: {note}", "note")
    if memory is not None:
        say(f"{memory.tokens:,} tokens: {memory.words}, as slots do not page")


def _row(candidate: Candidate, chosen: bool) -> dict[str, Any]:
    """Return a line of the table: errors in percent, those of all phases and the phases' means."""
    errors = candidate.errors
    every = errors.get("all", {})
    row: dict[str, Any] = {"model": candidate.model, "chosen": chosen}
    row["points"] = every.get("points")
    row["score_%"] = _percent(errors.get("run", {}).get("score"))
    for name in ("mean", "p95", "worst"):
        row[f"{name}_%"] = _percent(every.get(name))
    for phase in ("prefill", "decode", "mixed"):
        row[f"{phase}_%"] = _percent(errors.get(phase, {}).get("mean"))
    return row


def _run_row(verdict: Verdict) -> dict[str, Any]:
    """Return a line of the table of runs: seconds, and errors in per cent by phase."""
    found = verdict.to_dict()
    phases = found["phases"]
    row = {"run": Path(verdict.file).name, "steps_s": found["measured_s"]}
    row |= {"predicted_s": found["predicted_s"], "error_%": _percent(found["error"])}
    for phase in ("prefill", "decode", "mixed"):
        row[f"{phase}_%"] = _percent(phases[phase]["error"]) if phase in phases else None
    return row


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 3)
