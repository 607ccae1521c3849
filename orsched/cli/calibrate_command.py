"""``orsched calibrate``: measure a worker, fit every cost model, write the one to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from orsched.cli.artefacts import check_paths, write_cost, write_worker
from orsched.cli.declaring import command, option
from orsched.cli.options import ALLOW_PICKLE, ENGINE_ARGUMENTS, Printed
from orsched.cli.output import ProgressPrinter, print_json, print_rows, remark, say, table
from orsched.cli.policies import own_code
from orsched.cli.request_options import load_instance
from orsched.common.errors import InputError
from orsched.common.parameters import read_pairs

if TYPE_CHECKING:
    from orsched.calibration.candidates import Calibration, Candidate
    from orsched.calibration.measurements import Measurements
    from orsched.calibration.step_files import Verdict
    from orsched.data.memory import BlockMemory
    from orsched.runner.capacity import Found
    from orsched.runner.speed import Speed

_OF_WORKER = ("model", "device", "dtype", "slots", "length", "threads", "allow_pickle", "worker")

_SPELLED = {"arguments": "engine-arg"}


class _Measured(NamedTuple):
    """What is known of a worker, or of steps in a file."""

    measurements: Measurements
    worker: dict[str, Any] | None
    batches: list[Found]
    speed: Speed | None


@command(
    "calibrate",
    usual="model device slots length source runs template output worker_file style",
)
class CalibrateCommand(Printed):
    """Measure a worker's steps, fit every cost model, and report errors on steps not fitted.

    Examples: orsched calibrate --model tiny --slots 16 --length 512 -o cost.json;
    orsched calibrate --template > rows.csv, fill it in, and
    orsched calibrate --from rows.csv --judge steps.csv -o cost.json
    """

    model: str = option("A preset or a model's folder.", default="tiny")
    worker: str = option(
        "What is measured: torch, vllm, or module:Class.", default="torch", metavar="NAME"
    )
    arguments: tuple[str, ...] = ENGINE_ARGUMENTS
    allow_pickle: bool = ALLOW_PICKLE
    device: str = option("auto, cpu, cuda, cuda:1.", default="auto")
    dtype: str | None = option("Type of weights and caches (default: float32; bfloat16 on a GPU).")
    slots: int = option("Slots of the worker, J.", default=8)
    length: int = option("Tokens that a slot holds.", default=1024)
    prefill_cap: int = option("Most tokens of a prefill stage.", default=2048, metavar="TOKENS")
    threads: int | None = option("Threads on the CPU (default: torch's choice).")
    repeats: int = option("Measurements of each point.", default=5)
    requests: int | None = option("Requests in the rehearsal (default: 6 a slot; 0: none).")
    like: str | None = option("Instance whose lengths the rehearsal uses.", metavar="INSTANCE")
    memory: str | None = option(
        "Find the largest batch of each length: within this many bytes (2GiB), or what a GPU has.",
        metavar="BYTES|auto",
    )
    seed: int = option("Seed of order and prompts.", default=0)
    source: Path | None = option("Fit to measurements in a file (.csv).", "--from")
    runs: tuple[Path, ...] = option(
        "Steps of a run (.csv): how far off the model is on its whole; several times for several.",
        "--judge",
    )
    template: bool = option("Print a CSV of measurements to fill in, and stop.")
    chosen: str = option(
        "Which one to write: affine, levels, bilinear, pooling, profiled, linear, roofline, or "
        "the best.",
        "--cost-model",
        default="best",
        metavar="NAME",
    )
    weighting: str = option(
        "What fits make small: relative errors of steps, or seconds, for steps of runs.",
        choices=["relative", "seconds"],
        default="relative",
    )
    output: Path | None = option("Write the cost model (.json).", "-o")
    measurements: Path | None = option("Write what was measured (.csv).")
    worker_file: Path | None = option("Write a worker: slots, cost and memory (.json).")

    def _run(self) -> None:
        from orsched.calibration.candidates import MODELS, calibrate
        from orsched.calibration.step_files import TEMPLATE, judge, read_steps

        if self.template:
            click.echo(TEMPLATE, nl=False)
            return
        chosen = self.chosen
        if chosen not in ("best", *MODELS):
            raise InputError(
                f"no fit for {chosen!r}", field="--cost-model", remedy=f"best, {', '.join(MODELS)}"
            )
        written = {"output": self.output, "measurements": self.measurements}
        inputs = [] if self.source is None else [self.source]
        check_paths({**written, "worker-file": self.worker_file}, inputs, (".json",))
        steps = [(str(path), read_steps(path)) for path in self.runs]
        measured = _measure(self) if self.source is None else _read(self.source, self)
        if self.measurements is not None:
            from orsched.calibration.step_files import write_measurements

            write_measurements(measured.measurements, self.measurements)
            remark(f"measurements written to {self.measurements}")
        done = calibrate(measured.measurements, weighting=self.weighting)
        best = done.whole(chosen)
        assert best.cost is not None
        verdicts = [judge(best.cost, name, found) for name, found in steps]
        _print(done, best, measured, verdicts, self.style)
        if self.output is not None or self.worker_file is not None:
            _require_rehearsed(best, given_by_name=chosen != "best")
            _write(done, best, measured, verdicts, self)


def _require_rehearsed(best: Candidate, *, given_by_name: bool) -> None:
    """Refuse to hand out a model that misses its own rehearsal, unless it was asked for by name."""
    from orsched.calibration.candidates import MISSED

    phase, share = best.missed
    if abs(share) <= MISSED:
        return
    problem = f"{best.model} misses the {phase} steps of its own rehearsal by {100 * share:+.1f} %"
    if given_by_name:
        say(f"warning: {problem}: plans can be off by as much")
        return
    raise InputError(
        f"{problem}, above {100 * MISSED:.0f} %: not written",
        field="-o",
        remedy="measure again while the machine has nothing else to do, with more --repeats and "
        f"--requests; --cost-model {best.model} writes it all the same",
    )


def _read(source: Path, given: CalibrateCommand) -> _Measured:
    from orsched.calibration.step_files import read_measurements

    context = click.get_current_context()
    names = ("model", "device", "dtype", "slots", "length", "prefill_cap", "threads", "repeats")
    more = ("requests", "like", "memory", "seed", "allow_pickle", "worker", "arguments")
    for name in (*names, *more):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(
                "does not apply to measurements of a file",
                field="--" + _SPELLED.get(name, name.replace("_", "-")),
                remedy="leave it out",
            )
    if given.worker_file is not None:
        raise InputError("measurements name no worker", field="--worker-file", remedy="use -o")
    return _Measured(read_measurements(source), None, [], None)


def _measure(given: CalibrateCommand) -> _Measured:
    from orsched.common.columns import whole_number
    from orsched.runner.capacity import read_bytes, require_room, size_of
    from orsched.runner.devices.settings import contention
    from orsched.runner.measuring import (
        WorkerOptions,
        largest_batches,
        make_device,
        measure_worker,
    )

    most, memory = given.prefill_cap, given.memory
    wanted = WorkerOptions(
        **{name: getattr(given, name) for name in _OF_WORKER},
        arguments=tuple(read_pairs(given.arguments, "--engine-arg").items()),
    )
    if memory is not None and given.worker != "torch":
        raise InputError("of a torch worker", field="--memory", remedy="leave it out")
    limit = None if memory in (None, "auto") else read_bytes(memory)
    for name, least in (("repeats", 1), ("requests", 0), ("seed", 0), ("prefill_cap", 1)):
        if getattr(given, name) is not None:
            whole_number(getattr(given, name), name, minimum=least)
    like = None if given.like is None else load_instance(given.like).requests
    with own_code([given.worker]), ProgressPrinter("loading the model") as progress:
        found = wanted.settings()
        if found.worker == "torch":
            size = size_of(found.model, found.dtype, found.allow_pickle)
            require_room(size, found.slots, found.length, found.device)
        for warning in contention(found):
            say(f"warning: {warning}")
        batches = []
        if memory is not None:
            batches = largest_batches(wanted, most, limit, progress.say)
        device, about = make_device(wanted, given.seed)
        measured = measure_worker(
            device,
            most,
            given.repeats,
            given.seed,
            given.requests,
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
    given: CalibrateCommand,
) -> None:
    from orsched.data.workers import Worker

    report = done.report(best.model)
    if verdicts:
        report["runs"] = [verdict.to_dict() for verdict in verdicts]
    if measured.worker is not None:
        report["worker"] = measured.worker
    if measured.speed is not None:
        report["speed"] = measured.speed.to_dict()
        report["warnings"] += measured.speed.warnings()
    assert best.cost is not None
    write_cost(best.cost, report, given.output)
    if given.worker_file is not None:
        name, memory = Path(given.model).name, _memory(measured)
        worker = Worker(given.slots, best.cost, given.prefill_cap, memory, name=name)
        write_worker(worker, given.worker_file)


def _memory(measured: _Measured) -> BlockMemory | None:
    from orsched.runner.capacity import block_memory

    return block_memory(measured.batches) if measured.batches else None


def _print(
    done: Calibration,
    best: Candidate,
    measured: _Measured,
    verdicts: list[Verdict],
    style: str,
) -> None:
    from orsched.calibration.least_squares import NOT_DETERMINED

    rows = [_row(candidate, candidate.model == best.model) for candidate in done.candidates]
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
