"""Ten thousand requests, whole process, beside the peers on the same requests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orsched
from orsched.costs import BilinearCost
from orsched.instances.synthetic import peers_workload
from tests.benchmarks import peers
from tests.benchmarks.processes import Program, measure, orsched_command
from tests.benchmarks.section import Options, Section, Target

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.instance import Instance

NAME = "ten_thousand"
OURS = "orsched fcfs"
RICHER = "orsched fcfs, bilinear cost, KV blocks"

NOTES = [
    "orsched: start-up, load from JSON, simulate, bound, check, print. Peers: start-up, load, "
    "simulate, print (DynoSim also writes its report). Same requests, one replica, in turn.",
    "NOT the same engine model: orsched alternates prefill stages and decode rounds under an "
    "affine cost (LLaMA-65B, 128 clients; its queue grows), without mixed steps, chunked prefill "
    "or preemption. It advances from event to event, which peers that form every step cannot.",
    "sched-sim forms every step in Python: mixed steps, blocks of 16, a roofline model of an "
    "A100, at most 32 sequences. DynoSim mimics vLLM's engine in Rust: chunked prefill, blocks, "
    "prefix cache, preemption; its own timing model.",
    "So speed and memory alone are compared; the simulated seconds differ by design.",
    "The bilinear row reads contexts and counts 8,192 blocks of 16, reserved to the output limit; "
    "its constants are made up and serve to time the richer model only.",
]


def run(options: Options) -> Section:
    """Measure both workloads."""
    requests = 200 if options.tiny else 10_000
    section = Section(NAME, f"{requests:,} requests of the peers' workload, whole process")
    ours: list[dict[str, Any]] = []
    for burst in (False, True):
        rows = _workload(requests, burst, options)
        section.rows += rows
        ours += [row for row in rows if row["program"] == OURS]
    section.rows += _start_up(options)
    for row in ours:
        name = row["workload"]
        section.targets += [
            Target(f"{name}, wall (median)", row.get("wall_median_s"), 1.0, "s"),
            Target(f"{name}, peak memory", row.get("peak_mib"), 100.0, "MiB"),
        ]
    section.notes = NOTES
    return section


def richer(instance: Instance) -> Instance:
    """Return the instance under a cost that reads contexts, with a memory model."""
    cost = BilinearCost.from_ms((0.1, 0.0, 0.03, 25.0), (0.0001, 0.2, 0.001, 29.0))
    memory = orsched.BlockMemory(blocks=8192, block_tokens=16)
    worker = replace(instance.worker, cost=cost, memory=memory)
    return instance.replace(workers=(worker,))


def _workload(requests: int, burst: bool, options: Options) -> list[dict[str, Any]]:
    """Measure one workload: orsched twice, then the peers; return a row each."""
    name = "burst" if burst else "Poisson"
    folder = options.folder / name
    folder.mkdir(exist_ok=True)
    instance = peers_workload(requests, seed=7, burst=burst)
    programs = [
        _orsched(OURS, instance, folder / "instance.json"),
        _orsched(RICHER, richer(instance), folder / "richer.json"),
    ]
    report = folder / "report.json"
    if options.peers:
        trace, mooncake = folder / "trace.json", folder / "mooncake.jsonl"
        peers.write_sched_sim(instance, trace)
        peers.write_mooncake(instance, mooncake)
        programs += [
            peers.dynosim([str(mooncake), "--report-json", str(report)], limited=burst),
            peers.sched_sim(["trace", str(trace), "-s", "fcfs", "-h", "a100", "--no-gantt"]),
        ]
    measure(programs, options.repeats, folder)
    return [{"workload": name, **p.figures(), **_outcome(p, report)} for p in programs]


def _orsched(name: str, instance: Instance, path: Path) -> Program:
    orsched.save_instance(instance, path)
    command = orsched_command("solve", str(path), "--method", "fcfs", "--format", "json")
    return Program(name, command)


def _outcome(program: Program, report: Path) -> dict[str, Any]:
    """Return completed requests and simulated time: proof that the work was done."""
    if not program.name.startswith("orsched"):
        return peers.outcome(program, report)
    if program.error is not None:
        return {}
    row = json.loads(program.stdout)
    return {"simulated_s": row["makespan_s"], "checked": row["checked"]}


def _start_up(options: Options) -> list[dict[str, Any]]:
    """Measure what each program costs before it does anything."""
    programs = [Program(OURS, orsched_command("--version"))]
    if options.peers:
        programs += [peers.dynosim(["--help"]), peers.sched_sim(["--help"])]
    measure(programs, options.repeats, options.folder)
    return [{"workload": "(start-up alone)", **p.figures()} for p in programs]
