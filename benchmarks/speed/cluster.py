"""Every registered policy on 8 workers: time and memory, and how both grow with the requests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.speed.processes import Program, measure
from benchmarks.speed.section import Options, Section, Target
from orsched.common import registry
from orsched.heuristics.policy_method import PolicyMethod

NAME = "cluster"
ROOT = Path(__file__).parents[2]
MILLION = 1_000_000
LIMIT_S, LIMIT_US, LIMIT_GROWTH = 60.0, 100.0, 1.5
FEWER = 4
FURTHER = [
    ("vllm", 3072),
    ("vllm@clairvoyant+policy=priority+priority=length", 3072),
    ("vllm+long_prefill_token_threshold=64", 3072),
    ("scls", 3072),
    ("scls_continuous", 3072),
    ("gittins", 3072),
    ("vllm+dispatch=fewest_requests", 0),
    ("vllm+dispatch=least_work+steal=true", 0),
    ("mico@clairvoyant", 0),
]
"""Further rows; KV blocks of 16 tokens are few enough that requests are preempted."""


def policies() -> list[str]:
    """Return the registered policies, each with the least information that it runs with."""
    found = []
    for name in registry.names("methods"):
        method = registry.resolve("methods", name)
        if type(method) is PolicyMethod:  # others search beside their policy
            known = [str(each) for each in method.information]
            found.append(name if known[0] == "none" else f"{name}@{_least(known)}")
    return found


def _least(known: list[str]) -> str:
    """Return the least information that a policy runs with."""
    return next(each for each in ("none", "predicted", "clairvoyant") if each in known)


def run(options: Options) -> Section:
    """Run every policy at two sizes, each run in a process of its own."""
    requests = 400 if options.tiny else MILLION if options.full else 100_000
    section = Section(NAME, f"{requests:,} requests on 8 workers of 128 clients, whole process")
    start_mib = _measure("fcfs", 100, 0, options).get("peak_mib", 0)
    for name, blocks in [(name, 0) for name in policies()] + FURTHER:
        less = _measure(name, requests // FEWER, blocks, options)
        row = _measure(name, requests, blocks, options)
        if "remark" not in row and "remark" not in less:
            row |= _growth(less, row, start_mib)
        section.rows.append(row)
        label = f"{name}{f', {blocks} blocks' if blocks else ''}"
        section.targets.append(Target(f"{label}, violations", row.get("violations"), 0, ""))
        limit = LIMIT_S * requests / MILLION
        if not options.tiny:
            section.targets += [
                Target(f"{label}, wall", row.get("wall_s"), limit, "s"),
                Target(f"{label}, decide p99", row.get("p99_us"), LIMIT_US, "us"),
                Target(f"{label}, time growth", row.get("time_growth"), LIMIT_GROWTH, "times"),
                Target(f"{label}, memory growth", row.get("memory_growth"), LIMIT_GROWTH, "times"),
            ]
    section.notes = [
        "The peers' workload at 8 requests a second and worker, which overloads a little (and "
        "static batching and no batching a lot). One run each: start-up, generation, simulation, "
        "check; the bound is not in it.",
        "p50_first_half and p50: the median decision of either half of the run. p99: of all.",
        f"time_growth: simulation (CPU) a decision, as a multiple of that with a {FEWER}th of "
        "the requests; 1 is linear. memory_growth: the peak a request in the same way, less what "
        "the process takes to start.",
        f"The wall limit is {LIMIT_S:.0f} s for a million requests, in proportion for fewer.",
    ]
    return section


def _growth(less: dict[str, Any], row: dict[str, Any], start_mib: float) -> dict[str, Any]:
    """Return time a decision and memory a request as multiples of those with fewer requests."""
    time = row["simulate_cpu_s"] * less["decisions"] / (less["simulate_cpu_s"] * row["decisions"])
    more, few = row["peak_mib"] - start_mib, FEWER * max(less["peak_mib"] - start_mib, 1)
    return {"time_growth": time, "memory_growth": more / few}


def _measure(name: str, requests: int, blocks: int, options: Options) -> dict[str, Any]:
    """Return one row of the table."""
    command = [sys.executable, "-m", "benchmarks.speed.cluster_run", name]
    program = Program(name, [*command, str(requests), str(blocks)], {"PYTHONPATH": str(ROOT)})
    measure([program], 1, options.folder, warm_up=0)
    row: dict[str, Any] = {"method": name, "blocks": blocks or None}
    if program.error is not None:
        return row | {"remark": program.error}
    used = program.samples[0]
    return (
        row
        | {key: used[key] for key in ("wall_s", "cpu_s", "peak_mib")}
        | json.loads(program.stdout)
    )
