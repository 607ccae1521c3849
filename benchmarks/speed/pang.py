"""Quality: the four methods over ten generator seeds, beside the rows of Pang et al."""

from __future__ import annotations

from statistics import mean
from time import perf_counter
from typing import Any

import orsched
from benchmarks.speed.section import Options, Section, Target
from orsched.instances.synthetic import gsm8k

NAME = "pang"
METHODS = (
    "fcfs",
    "offline",
    "online",
    "hybrid",
    "offline@predicted",
    "online@predicted",
    "hybrid@predicted",
)
CAPS = (2048, 5000)

PRINTED = {
    "fcfs": (201.0, 80.2),
    "offline": (197.08, 85.5),
    "online": (193.33, 86.19),
    "hybrid": (190.58, 89.06),
}
"""Makespan in seconds and utilization in percent, Pang (arXiv 2502.15763, section V)."""


def run(options: Options) -> Section:
    """Solve all cases; means over the seeds."""
    seeds = range(2 if options.tiny else 10)
    size = {"requests": 60, "clients": 10} if options.tiny else {}
    section = Section(NAME, f"means over {len(seeds)} generator seeds of GSM8K on LLaMA-65B")
    for cap in CAPS:
        cells: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
        for seed in seeds:
            instance = gsm8k(seed, prefill_cap_tokens=cap, **size)
            for method in METHODS:
                begin = perf_counter()
                (result,) = orsched.compare(instance, [method])
                cells[method].append(result.to_row() | {"solve_s": perf_counter() - begin})
        section.rows += [_row(cap, method, rows) for method, rows in cells.items()]
    section.targets = _targets(section.rows)
    section.notes = [
        "Every schedule is bounded and checked (checked: how many). used: slot utilization. "
        "information: what the method knew of output "
        "lengths; predictions have a log-normal error of sigma 0.3.",
        "Pang's output lengths are not public: ours are drawn to their stated mean and deviation. "
        "The printed pairs of their other methods need more busy client-time than that workload "
        "has; see the page that compares with the paper.",
    ]
    return section


def _row(cap: int, method: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    printed = PRINTED.get(method, (None, None))
    return {
        "cap": cap,
        "method": method.partition("@")[0],
        "information": rows[0]["information"],
        "makespan_s": mean(r["makespan_s"] for r in rows),
        "pang_s": printed[0],
        "used_%": 100 * mean(r["slot_utilization"] for r in rows),
        "pang_%": printed[1],
        "stages": mean(r["prefill_stages"] for r in rows),
        "rounds": mean(r["decode_rounds"] for r in rows),
        "gap_%": 100 * mean(r["gap"] for r in rows),
        "gap_max_%": 100 * max(r["gap"] for r in rows),
        "checked": sum(r["checked"] for r in rows),
        "solve_s": mean(r["solve_s"] for r in rows),
    }


def _targets(rows: list[dict[str, Any]]) -> list[Target]:
    """Return the targets at the main cap."""
    main = {(r["method"], r["information"]): r for r in rows if r["cap"] == CAPS[0]}
    fcfs, hybrid = main["fcfs", "none"], main["hybrid", "clairvoyant"]
    fcfs_s, fcfs_used = PRINTED["fcfs"]
    hybrid_s, hybrid_used = PRINTED["hybrid"]
    late = 100 * abs(fcfs["makespan_s"] - fcfs_s) / fcfs_s
    return [
        Target(f"fcfs, makespan away from {fcfs_s} s", late, 2.0, "%"),
        Target(
            f"fcfs, utilization away from {fcfs_used} %",
            abs(fcfs["used_%"] - fcfs_used),
            1.5,
            "points",
        ),
        Target("hybrid, makespan", hybrid["makespan_s"], hybrid_s, "s"),
        Target("hybrid, utilization", hybrid["used_%"], hybrid_used, "%", at_least=True),
        Target("hybrid, mean gap", hybrid["gap_%"], 1.5, "%"),
    ]
