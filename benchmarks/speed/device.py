"""One table of a worker on one device: calibration, runs at 200 slots and at the most that fit.

python -m benchmarks.speed.device [--quick] [--device cuda] [--model 8b] [--slots 200] [--out FILE]
    [--save FOLDER]

Needs torch, transformers and numpy; no solver, no test tool. It ends within ``--minutes``: what
does not fit any more is left out, and said. On a GPU the goals of the project are for 8b in bf16.
``--save`` writes what others can use: measured rows, steps of each run, and the machine's file.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.speed import machine
from benchmarks.speed.device_files import PHASES, write_machine, write_rows, write_steps
from benchmarks.speed.device_roofline import roofline_s
from benchmarks.speed.runner import PREFILL_CAP, Run, calibrated, longest, run_live, workload
from benchmarks.speed.section import Section, Target
from orsched.calibration.observed import step_contents
from orsched.calibration.step_files import RunStep, judge
from orsched.files.document import write_text
from orsched.runner.capacity import Footprint, largest_steps, size_of, within_memory
from orsched.runner.measuring import WorkerOptions, make_device
from orsched.runner.utilization import ModelSize, Peaks, measure_peaks, peak_bytes, utilization

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration.candidates import Calibration
    from orsched.calibration.measurements import Measurements
    from orsched.calibration.observed import StepContents
    from orsched.runner.devices.device import Device

REQUESTS = 800
"""Of GSM8K's test set, in the runs at the smaller number of slots: four to a slot."""

METHODS = ("fcfs", "online", "hybrid", "vllm", "gittins", "hybrid", "fcfs", "hybrid")
"""At the smaller number of slots; what stands again is run again on the same calibration."""

METHODS_AT_MOST = ("hybrid", "online", "fcfs")
"""At the most slots that fit."""

A_SLOT = 5
"""Generated requests a slot in the runs with most slots."""

SPARE = 0.92
"""Share of the slots that fit by bytes alone which is tried first; the rest is for activations."""


class Plan(NamedTuple):
    """What is measured on one worker.

    Attributes:
        slots: J.
        requests: of each run.
        rehearsal: requests of the calibration's rehearsal.
        repeats: of each point of its grid.
        factor: from one number of requests of the grid to the next.
        methods: in the order in which they are run.
    """

    slots: int
    requests: int
    rehearsal: int
    repeats: int
    factor: int
    methods: tuple[str, ...]


class Part(NamedTuple):
    """What a worker yields: a calibration, what it is made from, and its runs with a row each."""

    calibration: Calibration
    steps: Measurements
    runs: list[Run]
    rows: list[dict[str, Any]]


def device_row(
    plan: Plan, done: Run, again: int, peaks: Peaks, device: Device, found: Calibration
) -> dict[str, Any]:
    """Return what a run made of its device, as a row of the table.

    ``again`` counts the runs of the same policy before. Beside the plan's error stands that of
    every other cost model over the steps that the run took.
    """
    size, trace = ModelSize(**device.facts["model_size"]), done.trace
    use = utilization(done.instance, trace, size, peaks)
    tokens = int(done.instance.requests.output_tokens.sum())
    steps = step_contents(done.instance, trace)
    took_s = float((steps.end_ns - steps.start_ns).sum()) / 1e9
    terms = roofline_s(size, steps, peaks)
    row = {
        "slots": plan.slots,
        "policy": trace.method,
        "again": again,
        "requests": len(done.instance),
        "plan_s": done.plan_ns / 1e9,
        "run_s": trace.makespan_ns / 1e9,
        "plan_error_%": 100 * abs(done.error),
        "tokens/s": tokens * 1e9 / trace.makespan_ns,
        "slots_%": 100 * use["slot_utilization"],
        "busy_%": 100 * use["device_busy_share"],
        "gaps_%": 100 * use["gaps"]["share"],
        "roofline_%": 100 * sum(terms.values()) / took_s,
        **{f"{name}_s": value for name, value in terms.items()},
        "prefill_mfu_%": 100 * (use["prefill"]["mfu"] or 0.0),
        "decode_bandwidth_%": 100 * (use["decode"]["bandwidth_utilization"] or 0.0),
        "memory_gib": peak_bytes(device.facts["device"]) / 2**30,
        **step_errors(found, steps),
    }
    if done.nvml is not None:
        row["nvml_busy_%"], row["power_w"] = done.nvml["busy_%"], done.nvml["power_w"]
        row["tokens/J"] = row["tokens/s"] / done.nvml["power_w"]
    return row


def step_errors(found: Calibration, steps: StepContents) -> dict[str, float]:
    """Return by how many per cent each cost model is off over the steps of a run, signed."""
    names = [name for name in RunStep._fields if name != "phase"]
    columns = [getattr(steps, name).tolist() for name in names]
    run = [
        RunStep(PHASES[phase], **dict(zip(names, rest, strict=True)))
        for phase, *rest in zip(steps.phase.tolist(), *columns, strict=True)
    ]
    return {
        f"{each.model}_error_%": 100 * judge(each.cost, "run", run).error
        for each in found.candidates
        if each.cost is not None
    }


def measure(device: Device, plan: Plan, peaks: Peaks, clock: Clock) -> Part:
    """Calibrate a worker, then run the methods on it while there is time."""
    begin = perf_counter()
    found, measured = calibrated(device, plan.repeats, plan.rehearsal, plan.factor)
    best, part = found.candidate(), Part(found, measured.steps, [], [])
    print(f"{clock} calibrated in {perf_counter() - begin:.0f} s: {best.model}", flush=True)
    for warning in measured.speed.warnings():
        print(f"{clock} {warning}", flush=True)
    assert best.cost is not None
    problem, last = workload(plan.requests, plan.slots, best.cost), 0.0
    for at, name in enumerate(plan.methods):
        if clock.left_s < 1.3 * last + 5:
            print(f"{clock} no time is left for {name} at {plan.slots} slots", flush=True)
            continue
        begin = perf_counter()
        done, again = run_live(device, problem, name), plan.methods[:at].count(name)
        part.runs.append(done)
        part.rows.append(device_row(plan, done, again, peaks, device, found))
        last = perf_counter() - begin
        print(f"{clock} {name} at {plan.slots} slots took {last:.0f} s", flush=True)
    return part


class Clock:
    """The time since the start, and what is left."""

    def __init__(self, minutes: float) -> None:
        self.begin, self.limit_s = perf_counter(), 60 * minutes

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.limit_s - (perf_counter() - self.begin)

    def __str__(self) -> str:
        return f"[{perf_counter() - self.begin:4.0f} s]"


def most_slots(options: WorkerOptions, limit: int | None) -> tuple[Device, int]:
    """Return a worker with as many slots as fit: by bytes first, then 5 % fewer at a time.

    ``limit`` is how many slots are enough, on a CPU, where the machine's memory is not the limit.
    """
    import torch

    wanted = options.resolved()
    assert wanted.dtype is not None
    if limit is None:
        size = size_of(wanted.model, wanted.dtype)
        room = torch.cuda.mem_get_info(wanted.device)[0]
        by_bytes = Footprint.of(size.weight_bytes, size.token_bytes).slots(wanted.length, room)
        limit = round(SPARE * by_bytes)
    while limit > 0:
        found = within_memory(lambda slots=limit: filled(wanted._replace(slots=slots)))
        if found is not None:
            return found, limit
        limit = limit * 19 // 20
        clear()
    raise MemoryError("not one slot fits")


def filled(options: WorkerOptions) -> Device:
    """Return a worker that has taken the largest steps that can come up in a run."""
    device, _ = make_device(options)
    largest_steps(device, PREFILL_CAP)
    return device


def clear() -> None:
    """Give back the memory of workers that are gone."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def section(given: argparse.Namespace) -> Section:
    """Measure everything, in two parts: at ``--slots``, and at as many as fit."""
    import torch

    clock = Clock(given.minutes)
    options = WorkerOptions(given.model, given.device, given.dtype, threads=1).resolved()
    on_gpu = options.device != "cpu"
    length = longest()
    options = options._replace(slots=given.slots, length=length)
    assert options.dtype is not None
    peaks = measure_peaks(options.device, options.dtype)
    print(
        f"{clock} peaks: {peaks.flops_per_s / 1e12:.3g} TFLOP/s in {options.dtype}, "
        f"copy {peaks.bytes_per_s / 1e9:.4g} GB/s",
        flush=True,
    )
    device, about = make_device(options)
    title = f"{about['model']}, {about['dtype']}, on {about['device']}, {length} tokens a slot"
    quick = given.quick
    rehearsal = (2 if quick else 3) * given.slots
    requests = A_SLOT * given.slots if quick else max(REQUESTS, 4 * given.slots)
    plan = Plan(given.slots, requests, rehearsal, 3, 4 if quick else 2, METHODS)
    first = measure(device, plan, peaks, clock)
    del device
    clear()
    device, slots = most_slots(options, None if on_gpu else 2 * given.slots)
    plan = Plan(slots, A_SLOT * slots, slots, 2, 4, METHODS_AT_MOST)
    second = measure(device, plan, peaks, clock)
    if given.save is not None:
        save(given.save, first, about)
    found = Section("device", title, first.rows + second.rows)
    found.targets = targets([first, second])
    found.notes = [
        f"torch {torch.__version__}; peaks: {peaks.flops_per_s / 1e12:.4g} TFLOP/s, "
        f"{peaks.bytes_per_s / 1e9:.4g} GB/s copied.",
        "Plans are made with the cost model fitted before, by steps measured on the same worker; "
        "hybrid is a schedule that is followed, the others decide live.",
        "busy: share of the wall time in which a step ran; gaps: between steps while requests were "
        "there. Bandwidth: weights once and caches of the active requests once a round, by the "
        "rate of a copy. roofline: seconds at the peaks by term (passes bound by reading weights, "
        "passes bound by their tokens, reading caches, what prompts attend to), their sum by "
        "what the steps took. MODEL_error: of the cost models of the same calibration over the "
        "steps of the run, signed.",
        *(calibration_note(part) for part in (first, second)),
    ]
    return found


def save(folder: Path, part: Part, about: dict[str, Any]) -> None:
    """Write the measured rows, the steps of each policy's first run, and the machine's file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(part.steps, folder / "calibration.csv")
    paths = {}
    for done, row in zip(part.runs, part.rows, strict=True):
        path = paths.setdefault(row["policy"], folder / f"{row['policy']}_steps.csv")
        if not row["again"]:
            write_steps(done.instance, done.trace, path)
    slots = part.rows[0]["slots"] if part.rows else about["slots"]
    facts = {
        "title": f"{about['model']} on {about['device']}",
        "source": "orsched's own worker, python -m benchmarks.speed.device",
        "device": about["device"],
        "software": f"torch {about['torch']}, {about['dtype']}",
        "measured_with": f"{slots} slots of {about['length']} tokens",
    }
    write_machine(part.calibration, facts, list(paths.values()), folder / "machine.json")


def spread(rows: Sequence[dict[str, Any]], policy: str) -> float | None:
    """Return by how many per cent the runs of a policy at the smaller size differ, or None."""
    slots = min((row["slots"] for row in rows), default=0)
    times = [row["run_s"] for row in rows if row["policy"] == policy and row["slots"] == slots]
    return 100 * (max(times) / min(times) - 1) if len(times) > 1 else None


def calibration_note(part: Part) -> str:
    """Return the errors of all cost models on points held out."""
    errors = [
        f"{c.model} {100 * c.errors['all']['mean']:.1f} / {100 * c.errors['all']['worst']:.1f}"
        for c in part.calibration.candidates
        if c.cost is not None
    ]
    slots = part.rows[0]["slots"] if part.rows else "?"
    return f"Errors on steps held out, mean / worst %, {slots} slots: {', '.join(errors)}."


def targets(parts: Sequence[Part]) -> list[Target]:
    """Return the goals: of each figure the worst row counts."""
    rows = [row for part in parts for row in part.rows]
    calibration = max(100 * part.calibration.candidate().errors["all"]["mean"] for part in parts)

    def worst(name: str, pick: Any = max) -> float | None:
        return pick(row[name] for row in rows) if rows else None

    return [
        Target("calibration, mean error on steps held out", calibration, 5, "%"),
        Target("plan error", worst("plan_error_%"), 3, "%"),
        Target("gaps, of the wall time", worst("gaps_%"), 0.1, "%"),
        Target(
            "bandwidth of rounds, fewer slots",
            min(
                (row["decode_bandwidth_%"] for row in parts[0].rows if row["policy"] != "vllm"),
                default=None,
            ),
            *(70, "%", True),
        ),
        Target("runs of hybrid on one calibration, spread", spread(rows, "hybrid"), 3, "%"),
        Target("runs of fcfs on one calibration, spread", spread(rows, "fcfs"), 3, "%"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and measure; a missed goal does not change the exit code."""
    parser = argparse.ArgumentParser(prog="device", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", help="as torch names it; default: a GPU")
    parser.add_argument("--model", help="a preset or a folder (default: 8b; tiny on a CPU)")
    parser.add_argument("--dtype", help="default: bfloat16 on a GPU, float32 on a CPU")
    parser.add_argument("--slots", type=int, help="of the first part (default: 200; CPU: 16)")
    parser.add_argument("--minutes", type=float, default=9.0, help="runs begin while they fit")
    parser.add_argument("--quick", action="store_true", help="5 requests a slot, fewer repeats")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--save", type=Path, help="folder for calibration, steps and machine")
    given = parser.parse_args(arguments)
    on_cpu = WorkerOptions(device=given.device).resolved().device == "cpu"
    given.model = given.model or ("tiny" if on_cpu else "8b")
    given.slots = given.slots or (16 if on_cpu else 200)
    found = section(given)
    print(f"\n{found.text()}")
    if given.out is not None:
        document = {"machine": machine.describe(), "sections": [found.to_dict()]}
        write_text(given.out, json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
