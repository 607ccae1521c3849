"""Simulate one policy on some workers and check its schedule; print figures as JSON.

A process of its own for each policy, so that peaks of memory are its own.

python -m benchmarks.speed.cluster_run METHOD REQUESTS BLOCKS [--workers N] [--cpu]
"""

from __future__ import annotations

import argparse
import json
import sys
from time import perf_counter, process_time, thread_time_ns
from typing import TYPE_CHECKING

import numpy as np

import orsched
from orsched.common import registry
from orsched.data.memory import BlockMemory
from orsched.data.workers import Worker
from orsched.instances.predictions import predict
from orsched.instances.synthetic import peers_workload
from orsched.metrics.summary import distribution
from orsched.simulator import loop, simulate_policy
from orsched.simulator.policy import Information
from orsched.solving.method_choice import read_spec

if TYPE_CHECKING:
    from orsched.data.instance import Instance

WORKERS = 8
PREDICTOR = "noise:sigma=0.4"
RATE = 8.0


def instance_of(requests: int, blocks: int, count: int = WORKERS) -> Instance:
    """Return the peers' workload at 8 requests a second and worker; KV blocks if not 0."""
    workload = peers_workload(requests, rate=count * RATE)
    memory = BlockMemory(blocks, 16, "paged") if blocks else None
    base = workload.worker
    workers = tuple(
        Worker(base.clients, base.cost, base.prefill_cap_tokens, memory, f"worker-{index}")
        for index in range(count)
    )
    return workload.replace(workers=workers)


def main() -> None:
    """Run the policy that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method")
    parser.add_argument("requests", type=int)
    parser.add_argument("blocks", type=int, help="KV blocks of a worker; 0: no limit")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument(
        "--cpu", action="store_true", help="processor time of decisions, not what a clock shows"
    )
    given = parser.parse_args()
    if given.cpu:
        loop.perf_counter_ns = thread_time_ns
    spec = read_spec(given.method)
    method = registry.resolve("methods", spec.name)
    instance = instance_of(given.requests, given.blocks, given.workers)
    known = Information(spec.information or method.information[0])
    if known is Information.PREDICTED:
        instance = predict(instance, PREDICTOR)
    policy, _ = method.build(instance, known, spec.parameters, 0)
    begin, begin_cpu = perf_counter(), process_time()
    done = simulate_policy(instance, policy)
    simulated, simulated_cpu = perf_counter(), process_time()
    violations = orsched.check(instance, done.schedule)
    checked, checked_cpu = perf_counter(), process_time()
    decision_ns = np.asarray(done.decision_ns)
    halves = [distribution(half.tolist()) for half in np.array_split(decision_ns, 2)]
    figures = {
        "information": str(known),
        "simulate_s": simulated - begin,
        "simulate_cpu_s": simulated_cpu - begin_cpu,
        "check_s": checked - simulated,
        "check_cpu_s": checked_cpu - simulated_cpu,
        "violations": len(violations),
        "decisions": len(decision_ns),
        "steps": len(done.schedule.steps),
        "evictions": int((done.schedule.work.stay > 0).sum()),
        "p50_first_half_us": halves[0]["p50"] / 1e3,
        "p50_us": halves[1]["p50"] / 1e3,
        "p99_us": distribution(decision_ns.tolist())["p99"] / 1e3,
    }
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main()
