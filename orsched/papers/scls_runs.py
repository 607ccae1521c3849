"""One run in SCLS's setting: a scheduler with the paper's figures, or a step's measured time."""

from __future__ import annotations

import math
import random
from functools import cache
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.calibration.fit import fit
from orsched.calibration.measurements import DECODE, PREFILL, Measurements
from orsched.checker import check
from orsched.common.units import NS_PER_S
from orsched.heuristics.scls.continuous import ILS
from orsched.heuristics.scls.sliced import ABLATION, SCLS
from orsched.metrics.summary import summarise
from orsched.papers import scls_setting as setting
from orsched.papers.reruns import pick
from orsched.papers.scls_setting import SLICE
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
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


def measured(job: Row) -> Row:
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


MOST = 8
"""Numbers of slices up to this are counted one by one; what is beyond is ``more``."""


def run(job: Row) -> Row:
    """Return the figures of SLS, SO, PM, AB, LB, SCLS or ILS on an engine; all are checked."""
    engine, strategy = job["engine"], job["strategy"]
    requests = setting.workload(
        job["rate"], job["seed"], job["seconds"], job["answers"], job["prompts"]
    )
    constants = setting.ENGINES[engine]
    if strategy == "ILS":
        worker, method = setting.continuous_worker(constants), ILS
        values: dict[str, Any] = {"parallel": job["parallel"]}
    else:
        worker, method = setting.static_worker(constants), SCLS
        values = setting.slice_params(engine, job["memory_share"])
        values |= {"slice_tokens": job["slice"]} | ABLATION[strategy]
        if values["batch_size"] is not None:
            values["batch_size"] = setting.BATCH_SIZE[engine]
    return figures(method, values, setting.instance(requests, worker, job["workers"]))


def figures(method: Any, values: dict[str, Any], instance: Instance) -> Row:
    """Return what a method with parameters does on an instance."""
    policy, _ = method.build(instance, Information.NONE, values, 0)
    schedule = simulate_policy(instance, policy).schedule
    if wrong := check(instance, schedule, limit=1):
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    found, n = summarise(instance, schedule), len(instance)
    padding = instance.workers[0].padding
    batches, again = getattr(policy, "batches", 0), reschedules(schedule)
    return {
        "requests_per_s": n * NS_PER_S / found["makespan_ns"],
        "mean_s": found["jct_ns"]["mean"] / NS_PER_S,
        "p95_s": found["jct_ns"]["p95"] / NS_PER_S,
        "invalid": found["invalid_tokens"] / n,
        "batch": found["batch_size"]["prefill" if padding else "decode"],
        "pads": found["pad_tokens"] / n,
        "end_std_s": found["worker_end_ns"]["std"] / NS_PER_S,
        "reschedules": found["restarts"] / n,
        "below_3_%": 100 * float((again < 3).mean()),
        "early_%": 100 * policy.early_returns / batches if batches else None,
        **slice_shares(again + 1),
    }


def reschedules(schedule: Schedule) -> NDArray[np.int64]:
    """Return how often each request was served again after its first slice."""
    found = np.zeros(int(schedule.work.request.max()) + 1, np.int64)
    np.maximum.at(found, schedule.work.request, schedule.work.stay)
    return found


def slice_shares(slices: NDArray[np.int64]) -> dict[str, float]:
    """Return the per cent of the requests that are served in each number of slices."""
    shares = {f"{k} %": 100 * float((slices == k).mean()) for k in range(1, MOST + 1)}
    return {**shares, "more %": 100 * float((slices > MOST).mean())}
