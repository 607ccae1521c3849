"""The workloads on which peers were timed, whole process, beside the peers on the same requests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orsched
from benchmarks.speed import peers
from benchmarks.speed.processes import Program, measure, orsched_command
from benchmarks.speed.section import Options, Section, Target
from orsched.costs import BilinearCost
from orsched.instances.synthetic import peers_workload

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.data.instance import Instance

NAME = "ten_thousand"
OURS = "orsched fcfs"
RICHER = "orsched fcfs, bilinear cost, KV blocks"
LIKE_VLLM = "orsched vllm"

NOTES = [
    "orsched: start-up, load from JSON, simulate, bound, check, print. Peers: start-up, load, "
    "simulate, print (DynoSim also writes its report). Same requests, one replica, in turn.",
    "orsched vllm has the peers' engine model: mixed steps with chunked prefill under a budget of "
    "2,048 tokens, 128 sequences, 8,192 paged KV blocks of 16, preemption by recompute (vLLM V1). "
    "orsched fcfs alternates prefill stages and decode rounds. Both have the affine cost of "
    "LLaMA-65B, which 8 requests a second overload. Rounds alike are one step to orsched, which "
    "peers that form every step cannot know.",
    "sched-sim forms every step in Python: mixed steps, blocks of 16, a roofline model of an "
    "A100, at most 32 sequences. DynoSim mimics vLLM's engine in Rust: chunked prefill, blocks, "
    "prefix cache, preemption; its own timing model.",
    "So speed and memory alone are compared; the simulated seconds differ by design.",
    "The bilinear row reads contexts and counts 8,192 blocks of 16, reserved to the output limit; "
    "its constants are made up and serve to time the richer model only.",
]


def run(options: Options) -> Section:
    """Measure both workloads."""
    few, many = (100, 200) if options.tiny else (1_000, 10_000)
    section = Section(NAME, f"{many:,} requests of the peers' workload, whole process")
    for requests, burst in ((few, False), (many, False), (many, True)):
        section.rows += _workload(requests, burst, options)
        if requests == many:
            section.targets += _targets(section.rows, section.rows[-1]["workload"])
    section.rows += _start_up(options)
    section.notes = NOTES
    return section


def _targets(rows: list[dict[str, Any]], workload: str) -> list[Target]:
    """Return the limits on time and memory, those of ``vllm`` from the fastest peer's figures."""
    limits = {OURS: (1.0, 100.0), LIKE_VLLM: (1.69, 107.0)}
    found = []
    for row in [r for r in rows if r["workload"] == workload and r["program"] in limits]:
        name = f"{workload}, {row['program']}"
        wall, peak = limits[row["program"]]
        found.append(Target(f"{name}, wall (median)", row.get("wall_median_s"), wall, "s"))
        found.append(Target(f"{name}, peak memory", row.get("peak_mib"), peak, "MiB"))
    return found


def like_vllm(instance: Instance) -> Instance:
    """Return the instance on an engine with paged blocks: no cap on prefills but the budget."""
    memory = orsched.BlockMemory(blocks=8192, block_tokens=16, allocation="paged")
    worker = replace(instance.worker, memory=memory, prefill_cap_tokens=None)
    return instance.replace(workers=(worker,))


def richer(instance: Instance) -> Instance:
    """Return the instance under a cost that reads contexts, with a memory model."""
    cost = BilinearCost.from_ms((0.1, 0.0, 0.03, 25.0), (0.0001, 0.2, 0.001, 29.0))
    memory = orsched.BlockMemory(blocks=8192, block_tokens=16, allocation="whole")
    worker = replace(instance.worker, cost=cost, memory=memory)
    return instance.replace(workers=(worker,))


def _workload(requests: int, burst: bool, options: Options) -> list[dict[str, Any]]:
    """Measure one workload: orsched's engines, then the peers; return a row each."""
    name = f"{requests:,} {'burst' if burst else 'Poisson'}"
    folder = options.folder / name.replace(" ", "-")
    folder.mkdir(exist_ok=True)
    instance = peers_workload(requests, seed=7, burst=burst)
    programs = [
        _orsched(OURS, instance, folder / "instance.json"),
        _orsched(RICHER, richer(instance), folder / "richer.json"),
        _orsched(LIKE_VLLM, like_vllm(instance), folder / "vllm.json", "vllm"),
    ]
    report = folder / "report.json"
    if options.peers:
        programs += peers.programs(instance, folder, report, limited=burst)
    measure(programs, options.repeats, folder)
    return [{"workload": name, **p.figures(), **_outcome(p, report)} for p in programs]


def _orsched(name: str, instance: Instance, path: Path, method: str = "fcfs") -> Program:
    orsched.save_instance(instance, path)
    command = orsched_command("solve", str(path), "--method", method, "--format", "json")
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
