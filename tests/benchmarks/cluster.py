"""Every registered policy on 8 workers: time, memory, and the time of a decision."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from orsched import registry
from orsched.heuristics.policy_method import PolicyMethod
from tests.benchmarks.processes import Program, measure
from tests.benchmarks.section import Options, Section, Target

NAME = "cluster"
ROOT = Path(__file__).parents[2]
MILLION = 1_000_000
LIMIT_S, LIMIT_US = 60.0, 100.0
PAGED = {
    "vllm": 3072,
    "vllm@clairvoyant+policy=priority+priority=length": 3072,
    "vllm+long_prefill_token_threshold=64": 3072,
}
"""Further rows with KV blocks of 16 tokens, few enough that requests are preempted."""


def policies() -> list[str]:
    """Return the registered policies, each with no information on lengths if it runs without."""
    found = []
    for name in registry.names("methods"):
        method = registry.resolve("methods", name)
        if isinstance(method, PolicyMethod):
            known = [str(each) for each in method.information]
            found.append(name if known[0] == "none" else f"{name}@{_least(known)}")
    return found


def _least(known: list[str]) -> str:
    """Return the information to run with on a workload without predictions."""
    return "none" if "none" in known else "clairvoyant"


def run(options: Options) -> Section:
    """Run every policy once, in a process of its own."""
    requests = 400 if options.tiny else MILLION if options.full else 100_000
    section = Section(NAME, f"{requests:,} requests on 8 workers of 128 clients, whole process")
    rows = [(name, 0) for name in policies()] + list(PAGED.items())
    for name, blocks in rows:
        row = _measure(name, requests, blocks, options)
        section.rows.append(row)
        label = f"{name}{f', {blocks} blocks' if blocks else ''}"
        limit = LIMIT_S * requests / MILLION
        if not options.tiny:
            section.targets += [
                Target(f"{label}, wall", row.get("wall_s"), limit, "s"),
                Target(f"{label}, decide p99", row.get("p99_us"), LIMIT_US, "us"),
            ]
    section.notes = [
        "The peers' workload at 8 requests a second and worker, which overloads a little (and "
        "static batching and no batching a lot). One run each: start-up, generation, simulation, "
        "check; the bound is not in it.",
        "p50_first_half and p50: the median decision of either half of the run. p99: of all.",
        f"The wall limit is {LIMIT_S:.0f} s for a million requests, in proportion for fewer.",
    ]
    return section


def _measure(name: str, requests: int, blocks: int, options: Options) -> dict[str, Any]:
    """Return one row of the table."""
    command = [sys.executable, "-m", "tests.benchmarks.cluster_run", name]
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
