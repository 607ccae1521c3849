"""One table of a worker on one device: calibration, runs at 200 slots and at the most that fit.

python -m benchmarks.speed.device [--quick] [--device cuda] [--model 8b] [--slots 200] [--out FILE]

Needs torch, transformers and numpy; no solver, no test tool. It ends within ``--minutes``: what
does not fit any more is left out, and said. On a GPU the goals of the project are for 8b in bf16.
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
from benchmarks.speed.runner import PREFILL_CAP, Run, calibrated, longest, run_live, workload
from benchmarks.speed.section import Section, Target
from orsched.files.atomic import write_text
from orsched.runner.calibration.measuring import WorkerOptions, make_device
from orsched.runner.calibration.memory_profile import Footprint, largest_steps, within_memory
from orsched.runner.capacity import size_of
from orsched.runner.measured.nvml import peak_bytes
from orsched.runner.measured.peaks import Peaks, measure_peaks
from orsched.runner.measured.utilization import model_size, utilization

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.runner.calibration.fitting import Calibration
    from orsched.runner.devices.device import TorchDevice

REQUESTS = 1_319
"""GSM8K's test set, on which the runs at the smaller number of slots are."""

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


class Measured(NamedTuple):
    """What a worker yields: a calibration and a row a run."""

    calibration: Calibration
    rows: list[dict[str, Any]]


def device_row(slots: int, done: Run, peaks: Peaks, device: TorchDevice) -> dict[str, Any]:
    """Return what a run made of its device, as a row of the table."""
    use = utilization(done.instance, done.trace, model_size(device.worker), peaks)
    tokens = int(done.instance.requests.output_tokens.sum())
    row = {
        "slots": slots,
        "policy": done.trace.method,
        "requests": len(done.instance),
        "plan_s": done.plan_ns / 1e9,
        "run_s": done.trace.makespan_ns / 1e9,
        "plan_error_%": 100 * abs(done.error),
        "tokens/s": tokens * 1e9 / done.trace.makespan_ns,
        "slots_%": 100 * use["slot_utilization"],
        "busy_%": 100 * use["device_busy_share"],
        "gaps_%": 100 * use["gaps"]["share"],
        "prefill_mfu_%": 100 * (use["prefill"]["mfu"] or 0.0),
        "decode_bandwidth_%": 100 * (use["decode"]["bandwidth_utilization"] or 0.0),
        "memory_gib": peak_bytes(str(device.worker.device)) / 2**30,
    }
    if done.nvml is not None:
        row["nvml_busy_%"], row["power_w"] = done.nvml["busy_%"], done.nvml["power_w"]
    return row


def measure(device: TorchDevice, plan: Plan, peaks: Peaks, clock: Clock) -> Measured:
    """Calibrate a worker, then run the methods on it while there is time."""
    begin = perf_counter()
    found, speed = calibrated(device, plan.repeats, plan.rehearsal, plan.factor)
    best, rows = found.candidate(), []
    print(f"{clock} calibrated in {perf_counter() - begin:.0f} s: {best.model}", flush=True)
    for warning in speed.warnings():
        print(f"{clock} {warning}", flush=True)
    assert best.cost is not None
    problem, last = workload(plan.requests, plan.slots, best.cost), 0.0
    for name in plan.methods:
        if clock.left_s < 1.3 * last + 5:
            print(f"{clock} no time is left for {name} at {plan.slots} slots", flush=True)
            continue
        begin = perf_counter()
        rows.append(device_row(plan.slots, run_live(device, problem, name), peaks, device))
        last = perf_counter() - begin
        print(f"{clock} {name} at {plan.slots} slots took {last:.0f} s", flush=True)
    return Measured(found, rows)


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


def most_slots(options: WorkerOptions, limit: int | None) -> tuple[TorchDevice, int]:
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


def filled(options: WorkerOptions) -> TorchDevice:
    """Return a worker that has taken the largest steps that can come up in a run."""
    device, _ = make_device(options)
    largest_steps(device.worker, PREFILL_CAP)
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
    requests = A_SLOT * given.slots if quick else max(REQUESTS, A_SLOT * given.slots)
    methods = ("online", "hybrid", "fcfs")
    plan = Plan(given.slots, requests, rehearsal, 3, 4 if quick else 2, methods)
    first = measure(device, plan, peaks, clock)
    del device
    clear()
    device, slots = most_slots(options, None if on_gpu else 2 * given.slots)
    plan = Plan(slots, A_SLOT * slots, slots, 2, 4, methods)
    second = measure(device, plan, peaks, clock)
    found = Section("device", title, first.rows + second.rows)
    found.targets = targets([first, second])
    found.notes = [
        f"torch {torch.__version__}; peaks: {peaks.flops_per_s / 1e12:.4g} TFLOP/s, "
        f"{peaks.bytes_per_s / 1e9:.4g} GB/s copied.",
        "Plans are made with the cost model fitted before, by steps measured on the same worker; "
        "hybrid is a schedule that is followed, the others decide live.",
        "busy: share of the wall time in which a step ran; gaps: between steps while requests were "
        "there. Bandwidth: weights once and caches of the active requests once a round, by the "
        "rate of a copy.",
        *(calibration_note(part) for part in (first, second)),
    ]
    return found


def calibration_note(part: Measured) -> str:
    """Return the errors of all cost models on points held out."""
    errors = [
        f"{c.model} {100 * c.errors['all']['mean']:.1f} / {100 * c.errors['all']['worst']:.1f}"
        for c in part.calibration.candidates
        if c.cost is not None
    ]
    slots = part.rows[0]["slots"] if part.rows else "?"
    return f"Errors on steps held out, mean / worst %, {slots} slots: {', '.join(errors)}."


def targets(parts: Sequence[Measured]) -> list[Target]:
    """Return the goals: of each figure the worst row counts."""
    rows = [row for part in parts for row in part.rows]
    calibration = max(100 * part.calibration.candidate().errors["all"]["mean"] for part in parts)

    def worst(name: str, pick: Any = max) -> float | None:
        return pick(row[name] for row in rows) if rows else None

    return [
        Target("calibration, mean error on steps held out", calibration, 5, "%"),
        Target("plan error", worst("plan_error_%"), 3, "%"),
        Target("gaps, of the wall time", worst("gaps_%"), 1, "%"),
        Target("bandwidth of rounds", worst("decode_bandwidth_%", min), 70, "%", at_least=True),
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
