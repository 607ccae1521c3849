"""The DP batcher: a million requests under a limit, 100,000 without, and the published loop."""

from __future__ import annotations

from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.speed.section import Options, Section, Target
from orsched.costs import BilinearCost
from orsched.models.batch import DEEPSPEED, PaddedMemory, batch

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "batcher"
SLICE = 128
COST = BilinearCost.from_ms((0.12, 1.7, 0.4, 31.5), (0.00061, 0.09, 0.0021, 29.3))
PADDED = PaddedMemory(80 * 2**30, 819_200, 26 * 2**30, zeta_ppm=900_000)
LOOP = 20_000
"""Requests on which the published loop is run: it takes seconds there, minutes at a million."""


def run(options: Options) -> Section:
    """Measure every method where it can answer in reasonable time."""
    many, some, few = (600, 300, 200) if options.tiny else (1_000_000, 100_000, LOOP)
    limit = 16 if options.tiny else 512
    cases: Sequence[tuple[str, np.ndarray, dict, tuple[str, ...]]] = [
        (f"N_max {limit}", lengths(few, 4096), {"max_batch": limit}, ("reference", "fast", "auto")),
        (f"N_max {limit}", lengths(many, 4096), {"max_batch": limit}, ("fast", "auto")),
        (f"N_max {limit}", spread(many, 131_072), {"max_batch": limit}, ("auto",)),
        ("no limit", lengths(some, 4096), {}, ("auto",)),
        ("no limit", spread(some, 131_072), {}, ("auto",)),
        ("eq. (9)", lengths(many, 4096), {"memory": PADDED}, ("fast", "auto")),
        ("Algorithm 2", lengths(many, 1920), {"memory": DEEPSPEED}, ("fast", "auto")),
    ]
    section = Section(NAME, "DP batcher (SCLS), least total serving time, slice of 128")
    for rule, column, limits, methods in cases:
        rows = [_row(rule, column, limits, method, options.repeats) for method in methods]
        if len({row["total_ns"] for row in rows}) > 1:
            section.notes.append(f"the methods differ on {len(column)} requests, {rule}")
        section.rows += rows
    ours = [row for row in section.rows if row["method"].startswith("auto")]
    main = [next(row for row in ours if row["requests"] == count) for count in (many, some)]
    section.targets = [
        Target(
            f"{row['requests']:,} requests, {row['limit']}, auto (median)", row["wall_s"], 1, "s"
        )
        for row in main
    ]
    section.notes += [
        "In one process, after one run to warm up: validation, sorting, DP and pricing. CPU time "
        "is shown because it does not grow with other load on the machine.",
        "Lengths are log-normal (median 245, clipped); where there are over 10,000 distinct ones, "
        "uniform up to 131,072.",
        "reference is SCLS Algorithm 1 as printed; no other project offers this batching.",
    ]
    return section


def lengths(count: int, most: int) -> np.ndarray:
    """Return prompt lengths as an array: log-normal, clipped to 1..most."""
    drawn = np.random.default_rng(0).lognormal(5.5, 1.1, count)
    return np.clip(np.rint(drawn), 1, most).astype(np.int64)


def spread(count: int, most: int) -> np.ndarray:
    """Return prompt lengths as an array, uniform in 1..most: as many distinct ones as can be."""
    return np.random.default_rng(0).integers(1, most + 1, count)


def _row(rule: str, column: np.ndarray, limits: dict, method: str, repeats: int) -> dict:
    walls, times = [], []
    slow = method == "reference"
    for _ in range(1 if slow else repeats + 1):
        wall, time = perf_counter(), process_time()
        result = batch(column, COST, SLICE, method=method, **limits)
        walls.append(perf_counter() - wall)
        times.append(process_time() - time)
    measured = slice(0 if slow else 1, None)
    return {
        "limit": rule,
        "requests": len(column),
        "distinct": len(np.unique(column)),
        "method": method if method == result.method else f"{method}: {result.method}",
        "wall_s": median(walls[measured]),
        "cpu_s": median(times[measured]),
        "batches": len(result),
        "total_ns": result.total_ns,
    }
