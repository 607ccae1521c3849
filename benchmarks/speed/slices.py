"""SCLS at scale: batching and distribution of one interval, by the requests in the pool."""

from __future__ import annotations

from statistics import median
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any

from benchmarks.speed.batcher import lengths
from benchmarks.speed.section import Options, Section, Target
from orsched.costs import BilinearCost
from orsched.data.memory import BlockMemory
from orsched.data.workers import Worker
from orsched.heuristics.scls.offloading import Batcher, Offloader, SliceMemory

NAME = "slices"
SLICE, LIMIT, WORKERS = 128, 1024, 8
COST = BilinearCost.from_ms((0.167, 0, 0, 25), (0.0034, 0, 0, 25))
WORKER = Worker(1024, COST, None, BlockMemory(67_837, 1, "paged"), padding=True)


def run(options: Options) -> Section:
    """Measure pools from one interval's at a usual rate to a hundred thousand requests."""
    sizes = (20, 60) if options.tiny else (100, 1_000, 10_000, 100_000)
    section = Section(NAME, f"batching and distribution of one interval on {WORKERS} workers")
    section.rows = [_row(count, options.repeats) for count in sizes]
    section.targets = [
        Target(f"{row['requests']:,} requests, a request", row["us_a_request"], 10, "us")
        for row in section.rows
    ]
    section.notes = [
        "The DP batcher under eq. (9) and max-min offloading, on lengths that are log-normal "
        "(median 245, at most 1,920 tokens); a slice of 128. Medians after one run to warm up.",
    ]
    return section


def _row(count: int, repeats: int) -> dict[str, Any]:
    column, rows = lengths(count, 1920).tolist(), list(range(count))
    view = SimpleNamespace(worker=WORKER)
    walls, times = [], []
    for _ in range(repeats + 1):
        batcher = Batcher(COST, SliceMemory([WORKER], SLICE, LIMIT, share=0.9), None, adaptive=True)
        offloader = Offloader([view] * WORKERS, [COST] * WORKERS, SLICE, max_min=True)
        wall, time = perf_counter(), process_time()
        batches = batcher.cut(rows, column)
        placed = list(offloader.offload(batches))
        walls.append(perf_counter() - wall)
        times.append(process_time() - time)
    wall = median(walls[1:])
    return {
        "requests": count,
        "batches": len(placed),
        "wall_ms": wall * 1e3,
        "cpu_ms": median(times[1:]) * 1e3,
        "us_a_request": wall / count * 1e6,
    }
