"""Fewest worker hours for a rate that swings like a sine from 1 to 24 requests a second.

python -m benchmarks.sine_fleet [--period SECONDS] prints a row for a constant fleet, for rules of
autoscaling with several targets, and for schedules: the peak of workers that keeps the limits,
their mean, and the hours that workers are on. A rule sees the open requests; a schedule is found
from the trace itself. Prompts and answers have log-normal lengths with medians of 330 and 150
tokens. The machine is Llama 3 70B on four A100 by data sheet, the policy vllm, the seed 0.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

import orsched
from benchmarks.speed.section import table
from orsched.calibration.catalogue import read_machine
from orsched.common.errors import InputError
from orsched.common.units import NS_PER_S
from orsched.instances.streams import stream

if TYPE_CHECKING:
    from collections.abc import Sequence

LOW, HIGH = 1.0, 24.0
MACHINE = "a100x4-llama3-70b-sheet"
RULE = "min=1,target={target},startup={startup},interval=5,cooldown=15"
LIMITS = {"slo_ttft": 2.0, "slo_tpot": 0.08, "attainment": 0.95}


def sine(period_s: float, clients: int) -> orsched.Instance:
    """Return requests of two periods, drawn by thinning, on a worker."""
    draws = stream("sine-fleet", 0)
    times = np.cumsum(draws.standard_exponential(int(2 * period_s * HIGH * 1.2))) / HIGH
    times = times[times < 2 * period_s]
    rate = (LOW + HIGH) / 2 - (HIGH - LOW) / 2 * np.cos(2 * np.pi * times / period_s)
    times = times[draws.random(len(times)) * HIGH < rate]
    prompts = np.maximum(1, np.exp(draws.normal(5.8, 0.9, len(times)))).astype(int)
    outputs = np.maximum(1, np.exp(draws.normal(5.0, 0.8, len(times)))).astype(int)
    requests = orsched.Requests(
        np.minimum(prompts, 4000), np.minimum(outputs, 1000),
        arrival_ns=(times * NS_PER_S).astype(np.int64),
    )  # fmt: skip
    cost, memory = read_machine(MACHINE)
    return orsched.Instance(requests, orsched.Worker(clients, cost, memory=memory))


def row(case: orsched.Instance, name: str, jobs: int, **given: str) -> dict[str, Any]:
    """Return the fewest workers under a rule or a schedule, and the hours that they are on."""
    try:
        found = orsched.capacity(case, "vllm", max_workers=32, jobs=jobs, **given, **LIMITS)
    except InputError:
        return {"fleet": name, "peak": None, "mean": None, "worker hours": None, "kept": None}
    best = found.estimate if found.schedule is None else found.schedule.estimate
    assert best is not None
    last_s = float(case.requests.arrival_ns.max()) / NS_PER_S
    return {
        "fleet": name,
        "peak": best.workers,
        "mean": round(best.worker_hours * 3600 / last_s, 2),
        "worker hours": round(best.worker_hours, 3),
        "kept": f"{best.attainment:.3f} ({best.low:.3f} to {best.high:.3f})",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--period", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args(arguments)
    case = sine(given.period, given.clients)
    rows = [row(case, "constant", given.jobs)]
    for startup in (0, 20):
        for target in (0.2, 0.4, 0.7):
            rule = RULE.format(target=target, startup=startup)
            name = f"target {target:g}, startup {startup} s"
            rows.append(row(case, name, given.jobs, autoscale=rule))
        for every in (30, 15):
            name = f"schedule by {every} s, startup {startup} s"
            rows.append(row(case, name, given.jobs, schedule=f"every={every},startup={startup}"))
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
