"""Peers: other projects' simulators, run beside orsched on the same requests.

They live in an environment of their own (`make bench-peers`), never in orsched's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.speed.processes import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.instance import Instance

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-peers"
SCHED_SIM = "sched-sim 0.2.1"
DYNOSIM = "DynoSim 1.4.2"
MOONCAKE_BLOCK_TOKENS = 512
LIMITED_ENGINE = {"num_gpu_blocks": 8192, "block_size": 16, "max_num_seqs": 128}

MISSING = "not installed: make bench-peers"


def _requests(instance: Instance) -> Iterator[tuple[int, int, int]]:
    """Yield arrival in nanoseconds, prompt and output tokens."""
    req = instance.requests
    columns = (req.arrival_ns, req.prompt_tokens, req.output_tokens)
    return zip(*(c.tolist() for c in columns), strict=True)


def write_sched_sim(instance: Instance, path: Path) -> None:
    """Write the JSON list that ``sched-sim trace`` reads."""
    rows = [
        {
            "id": f"r{i}",
            "timestamp": arrival / 1e9,
            "prompt_tokens": prompt,
            "output_tokens": output,
        }
        for i, (arrival, prompt, output) in enumerate(_requests(instance))
    ]
    path.write_text(json.dumps(rows))


def write_mooncake(instance: Instance, path: Path) -> None:
    """Write Mooncake JSONL with block hashes that never repeat: no prefix is shared."""
    lines, used = [], 0
    for arrival, prompt, output in _requests(instance):
        blocks = -(-prompt // MOONCAKE_BLOCK_TOKENS)
        row = {
            "timestamp": arrival / 1e6,
            "input_length": prompt,
            "output_length": output,
            "hash_ids": list(range(used, used + blocks)),
        }
        used += blocks
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")


def sched_sim(arguments: list[str]) -> Program:
    """Return sched-sim with some arguments, marked if it is not installed."""
    script = ENVIRONMENT / "bin" / "sched-sim"
    error = None if script.is_file() else MISSING
    return Program(SCHED_SIM, [str(script), *arguments], error=error)


def dynosim(arguments: list[str], limited: bool = False) -> Program:
    """Return DynoSim with some arguments, marked if it is not installed."""
    found = any(ENVIRONMENT.glob("lib/python3*/site-packages/dynamo/_core*.so"))
    if limited:
        arguments = [*arguments, "--extra-engine-args", json.dumps(LIMITED_ENGINE)]
    return Program(
        DYNOSIM,
        [str(ENVIRONMENT / "bin" / "python"), "-m", "dynamo.replay", *arguments],
        {"TRANSFORMERS_VERBOSITY": "error"},
        error=None if found else MISSING,
    )


def programs(
    instance: Instance, folder: Path, report: Path, limited: bool = False
) -> list[Program]:
    """Write an instance in the peers' formats and return their programs; ``dynosim`` reports."""
    trace, mooncake = folder / "trace.json", folder / "mooncake.jsonl"
    write_sched_sim(instance, trace)
    write_mooncake(instance, mooncake)
    return [
        dynosim([str(mooncake), "--report-json", str(report)], limited=limited),
        sched_sim(["trace", str(trace), "-s", "fcfs", "-h", "a100", "--no-gantt"]),
    ]


def outcome(program: Program, report: Path) -> dict[str, Any]:
    """Return how many requests a peer completed, and in which simulated time."""
    if program.error is not None:
        return {}
    if program.name == SCHED_SIM:
        done = re.search(r"Completed / Total\D*(\d+) / \d+", program.stdout)
        span = re.search(r"Simulated Duration\D*([\d.]+) s", program.stdout)
        return {
            "completed": int(done[1]) if done else None,
            "simulated_s": float(span[1]) if span else None,
        }
    figures = json.loads(report.read_text())
    return {"completed": figures["completed_requests"], "simulated_s": figures["duration_ms"] / 1e3}
