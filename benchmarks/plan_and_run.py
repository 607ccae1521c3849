"""Plan against run in CPU time: policies on one worker, repeats in turn, the machine's drift told.

python -m benchmarks.plan_and_run [--worker torch|vllm] [--model tiny] [--requests 64] [--slots 8]
    [--policies fcfs vllm gittins online hybrid] [--repeats 5] [--busy] [--seed 0]

The worker is calibrated, each policy is planned with that cost model, and all are run in turn,
``--repeats`` times. ``run s`` is the mean, ``spread`` the largest run over the smallest, less 1;
``plan error`` is plan over run, less 1, and ``without drift`` the same with each run divided by the
drift of the machine since its calibration. ``--busy``: another process keeps one core busy.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.speed.runner import PREFILL_CAP, longest, planned, workload
from benchmarks.speed.section import table
from orsched.calibration.candidates import calibrate
from orsched.checker import check
from orsched.runner.loop.live import execute_policy
from orsched.runner.measuring import WorkerOptions, make_device, measure_worker
from orsched.runner.speed import Reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.runner.devices.device import Device
    from orsched.runner.speed import Speed

POLICIES = ("fcfs", "vllm", "gittins", "online", "hybrid")


@contextmanager
def _beside(busy: bool) -> Iterator[None]:
    """Keep one core busy by another process."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try:
        yield
    finally:
        if other is not None:
            other.kill()
            other.wait()


def one_run(device: Device, instance: Instance, name: str, usual: Speed) -> tuple[int, int, float]:
    """Return makespans of plan and run, and how often as long the reference took as usual."""
    source, reference = planned(instance, name, 20), Reference(device, device.slots - 1, usual)
    reference.look()
    done = execute_policy(
        instance,
        source.policy,
        device,
        vocabulary=device.vocabulary,
        observer=lambda view, step: reference.due_in_run(),
    )
    reference.look()
    trace = done.schedule.replace(run={"device": device.name, "clock": device.clock})
    faults = check(instance, trace, times="measured")
    if faults:
        raise RuntimeError(f"the trace of {name} is not valid: {faults[0]}")
    drift = usual.beside(reference.speed())["drift"]
    return source.plan.makespan_ns, trace.makespan_ns, drift


def concordant(plans: Sequence[float], runs: Sequence[float]) -> float:
    """Return the share of pairs of policies that plan and run put in the same order."""
    pairs = [(i, j) for j in range(len(plans)) for i in range(j)]
    same = sum((plans[i] - plans[j]) * (runs[i] - runs[j]) > 0 for i, j in pairs)
    return same / len(pairs) if pairs else 1.0


def measured(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each policy, and one for all."""
    options = WorkerOptions(
        given.model, "cpu" if given.worker == "torch" else "auto", slots=given.slots + 1,
        length=longest(), threads=1, worker=given.worker,
    )  # fmt: skip
    device, _ = make_device(options)
    like = workload(1319, 1, seed=given.seed + 1).requests
    device.slots = given.slots  # one more is left for the looks
    found = measure_worker(device, PREFILL_CAP, given.walks, given.seed, None, like)
    device.slots = given.slots + 1
    best = calibrate(found.steps).candidate()
    print(f"calibrated: {best.model}, the machine moved by {found.speed.moved:.1%}", flush=True)
    instance = workload(given.requests, given.slots, best.cost, given.seed)
    runs: dict[str, list[tuple[int, int, float]]] = {name: [] for name in given.policies}
    for repeat in range(given.repeats):
        for name in given.policies:
            runs[name].append(one_run(device, instance, name, found.speed))
            plan, took, drift = runs[name][-1]
            print(f"{repeat + 1} {name}: {plan / 1e9:.3f} {took / 1e9:.3f} {drift:.3f}", flush=True)
    device.close()
    return [row_of(name, each) for name, each in runs.items()]


def row_of(name: str, runs: Sequence[tuple[int, int, float]]) -> dict[str, Any]:
    """Return the figures of a policy."""
    plan, took = fmean(p for p, _, _ in runs) / 1e9, fmean(t for _, t, _ in runs) / 1e9
    steady = fmean(t / d for _, t, d in runs) / 1e9
    return {
        "policy": name,
        "plan s": round(plan, 3),
        "run s": round(took, 3),
        "spread": f"{max(t for _, t, _ in runs) / min(t for _, t, _ in runs) - 1:.1%}",
        "drift": f"{took / steady - 1:+.1%}",
        "plan error": f"{plan / took - 1:+.1%}",
        "without drift": f"{plan / steady - 1:+.1%}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--worker", default="torch", choices=["torch", "vllm"])
    parser.add_argument("--model", default="tiny")
    numbers = {"--requests": 64, "--slots": 8, "--repeats": 5, "--walks": 5, "--seed": 0}
    for name, value in numbers.items():
        parser.add_argument(name, type=int, default=value)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--busy", action="store_true")
    given = parser.parse_args(arguments)
    with _beside(given.busy):
        rows = measured(given)
    print("\n".join(table(rows)))
    same = concordant([row["plan s"] for row in rows], [row["run s"] for row in rows])
    print(f"{same:.0%} of the pairs of policies are in the plan's order")


if __name__ == "__main__":
    main()
