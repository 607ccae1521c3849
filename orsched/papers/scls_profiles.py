"""Figs. 8 to 10 of SCLS on a worker at hand: stages, rounds, their fit, and a slice against it.

The times are those of the machine that runs them, with a small transformer; none is the paper's.
"""

from __future__ import annotations

import math
import random
from functools import cache
from statistics import mean
from typing import TYPE_CHECKING, Any

from orsched.calibration.fit import fit
from orsched.calibration.measurements import DECODE, PREFILL, Measurements
from orsched.papers.reruns import pick
from orsched.papers.scls_setting import SLICE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.papers.reruns import Row, Values
    from orsched.runner.devices.device import Device

COLUMNS = ("tokens", "longest", "context_sum", "context_max", "duration_ns")


def _of(kind: str, settings: Mapping[str, Any]) -> list[Row]:
    given = {name: settings[name] for name in ("model", "threads", "repeats")}
    return [
        {"kind": kind, "size": size, "length": length, **given}
        for size in settings["sizes"]
        for length in settings["lengths"]
    ]


def stage_jobs(settings: Mapping[str, Any]) -> list[Row]:
    """Return a prefill stage for each batch size and input length (Fig. 8)."""
    return _of("prefill", settings)


def round_jobs(settings: Mapping[str, Any]) -> list[Row]:
    """Return a round for each batch size and cached length (Fig. 9)."""
    return _of("round", settings)


def jobs(settings: Mapping[str, Any]) -> list[Row]:
    """Return both, and a slice for each batch size and input length (Fig. 10)."""
    return [job for kind in ("prefill", "round", "slice") for job in _of(kind, settings)]


@cache
def _device(model: str, threads: int, slots: int, length: int) -> Device:
    """Return a worker that has run once."""
    from orsched.runner.measuring import WorkerOptions, make_device

    found = make_device(WorkerOptions(model, slots=slots, length=length, threads=threads))[0]
    _serve(found, slots, 16, random.Random(0))
    return found


def run(job: Row) -> Row:
    """Measure a stage, a round or a slice: the median of some repeats after one more."""
    from orsched.runner.profiling import Point, profile

    size, length = job["size"], job["length"]
    device = _device(job["model"], job["threads"], max(8, size), max(384, length + SLICE + 1))
    if job["kind"] == "slice":
        rng = random.Random(0)
        times = sorted(_serve(device, size, length, rng) for _ in range(job["repeats"]))
        return {"taken_ms": times[(len(times) - 1) // 2] / 1e6}
    is_stage = job["kind"] == "prefill"
    point = Point(PREFILL, size, length, 0) if is_stage else Point(DECODE, size, 0, length)
    found = profile(device, [point], job["repeats"])
    row = {name: int(found.column(name)[0]) for name in COLUMNS}
    return {"taken_ms": row["duration_ns"] / 1e6, **row}


def _serve(device: Device, size: int, length: int, rng: random.Random) -> int:
    """Return the time that a batch of equal prompts takes for a slice, in nanoseconds."""
    from orsched.runner.worker.layout import Chunk

    vocabulary = device.vocabulary
    prompts = [
        Chunk(slot, 0, [rng.randrange(vocabulary) for _ in range(length)], True)
        for slot in range(size)
    ]
    total = 0
    for chunks, active, rounds in ((prompts, [], 1), ([], list(range(size)), SLICE)):
        device.start()
        device.begin(chunks, active, rounds, 0)
        times = device.end()
        total += times.end_ns - times.start_ns
    return total


def measurements(rows: Sequence[Row]) -> Measurements:
    """Return stages and rounds as rows that a cost model can be fitted to."""
    phases = [PREFILL if row["kind"] == "prefill" else DECODE for row in rows]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    return Measurements(phase=phases, count=[row["size"] for row in rows], **columns)


def rows(done: Sequence[tuple[Row, Row]], settings: Mapping[str, Any]) -> list[Row]:
    """Return each stage, round and slice with what eq. (3) and (4), fitted to the first two, say
    of it."""
    found = [job | figures for job, figures in done]
    steps = [row for row in found if row["kind"] != "slice"]
    cost: Any = fit("bilinear", measurements(steps), weighting="seconds", holdout=0.0).cost
    for row in found:
        size, length = row["size"], row["length"]
        if row["kind"] == "round":
            expected = cost.round_ns(size, row["context_sum"], row["context_max"])
        else:
            expected = cost.prefill_ns([length] * size)
        if row["kind"] == "slice":
            expected += cost.rounds_ns(SLICE, size, size * (length + 1), length + 1)
        row["expected_ms"] = expected / 1e6
    names = ("kind", "size", "length", "taken_ms", "expected_ms")
    return [{name: row[name] for name in names} for row in found]


def values(rows: list[Row]) -> Values:
    """Return root-mean-square errors in milliseconds, and in per cent of the mean."""
    found: Values = {}
    for kind in ("prefill", "round", "slice"):
        own = pick(rows, kind=kind)
        errors = [row["expected_ms"] - row["taken_ms"] for row in own]
        whole = mean(row["taken_ms"] for row in own)
        found[f"{kind}_rmse_ms"] = math.sqrt(mean(error**2 for error in errors))
        found[f"{kind}_rmse_%"] = 100 * found[f"{kind}_rmse_ms"] / whole
        found[f"{kind}_mean_error_%"] = 100 * mean(abs(error) for error in errors) / whole
    return found


def straightness(rows: list[Row]) -> Values:
    """Return the least correlation of times with length, and with size, the other one fixed."""
    import numpy as np

    found: Values = {}
    for along, fixed in (("length", "size"), ("size", "length")):
        least = 1.0
        for value in {row[fixed] for row in rows}:
            own = pick(rows, **{fixed: value})
            pairs = [[row[along] for row in own], [row["taken_ms"] for row in own]]
            least = min(least, float(np.corrcoef(pairs)[0, 1])) if len(own) > 1 else least
        found[f"least_correlation_{along}"] = least
    return found
