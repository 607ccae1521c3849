"""One run of a scheduler in SCLS's setting, with the figures that the paper reports."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.reproductions import scls_setting as setting
from orsched.checker import check
from orsched.common.units import NS_PER_S
from orsched.heuristics.scls.continuous import ILS, SCLS_CONTINUOUS
from orsched.heuristics.scls.sliced import ABLATION, SCLS
from orsched.metrics.summary import summarise
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.reproductions.scls_setting import Constants
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

Figures = dict[str, Any]

SLICE_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Numbers of slices whose shares of the requests are counted; what is beyond is ``more``."""


def static(
    engine: str,
    strategy: str = "SCLS",
    rate: float = setting.RATE,
    workers: int = setting.WORKERS,
    slice_tokens: int = setting.SLICE,
    constants: Constants | None = None,
    seeds: Sequence[int] = (0,),
    answers: float = 1.0,
    **changes: Any,
) -> Figures:
    """Return the figures of SLS, SO, PM, AB, LB or SCLS on an engine, means over seeds.

    ``answers``: what the output tokens are multiplied by; ``changes``: of the policy's parameters.
    """
    values = setting.slice_params(engine, slice_tokens=slice_tokens) | ABLATION[strategy] | changes
    if values["batch_size"] is not None:
        values["batch_size"] = setting.BATCH_SIZE[engine]
    worker = setting.static_worker(constants or setting.ENGINES[engine])
    return _averaged(
        [_run(SCLS, values, _instance(rate, seed, worker, workers, answers)) for seed in seeds],
        engine,
        strategy,
    )


def continuous(
    strategy: str = "ILS",
    rate: float = setting.RATE,
    workers: int = setting.WORKERS,
    parallel: int | None = setting.PARALLEL,
    slice_tokens: int = setting.SLICE,
    renew: str = "fits",
    constants: Constants | None = None,
    seeds: Sequence[int] = (0,),
) -> Figures:
    """Return the figures of ILS, or of slices on continuous batching, on DeepSpeed's constants."""
    worker = setting.continuous_worker(constants or setting.DS)
    method, values = ILS, {"parallel": parallel}
    if strategy != "ILS":
        method, values = SCLS_CONTINUOUS, {"slice_tokens": slice_tokens, "renew": renew}
    if strategy == "ILS" and parallel is not None:
        strategy = f"ILS {parallel}"
    return _averaged(
        [_run(method, values, _instance(rate, seed, worker, workers)) for seed in seeds],
        "DS",
        strategy,
    )


def _instance(rate: float, seed: int, worker: Any, workers: int, answers: float = 1.0) -> Instance:
    requests, _ = setting.workload(rate, seed, answers=answers)
    return setting.instance(requests, worker, workers)


def _run(method: Any, values: dict[str, Any], instance: Instance) -> Figures:
    policy, _ = method.build(instance, Information.NONE, values, 0)
    schedule = simulate_policy(instance, policy).schedule
    wrong = check(instance, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    found, n = summarise(instance, schedule), len(instance)
    padding = instance.workers[0].padding
    batches = getattr(policy, "batches", 0)
    return {
        "requests_per_s": n * NS_PER_S / found["makespan_ns"],
        "mean_s": found["jct_ns"]["mean"] / NS_PER_S,
        "p95_s": found["jct_ns"]["p95"] / NS_PER_S,
        "invalid": found["invalid_tokens"] / n,
        "batch": found["batch_size"]["prefill" if padding else "decode"],
        "pads": found["pad_tokens"] / n,
        "reschedules": found["restarts"] / n,
        "below_3_%": 100 * float((reschedules(schedule) < 3).mean()),
        **slice_shares(reschedules(schedule) + 1),
        "early_%": 100 * policy.early_returns / batches if batches else None,
        "end_std_s": found["worker_end_ns"]["std"] / NS_PER_S,
    }


def reschedules(schedule: Schedule) -> NDArray[np.int64]:
    """Return how often each request was served again after its first slice."""
    found = np.zeros(int(schedule.work.request.max()) + 1, np.int64)
    np.maximum.at(found, schedule.work.request, schedule.work.stay)
    return found


def slice_shares(slices: NDArray[np.int64]) -> dict[str, float]:
    """Return the per cent of the requests that are served in each number of slices."""
    shares = {f"{k} %": 100 * float((slices == k).mean()) for k in SLICE_COUNTS}
    return {**shares, "more %": 100 * float((slices > SLICE_COUNTS[-1]).mean())}


def _averaged(runs: Sequence[Figures], engine: str, strategy: str) -> Figures:
    row: Figures = {"engine": engine, "strategy": strategy}
    for name in runs[0]:
        values = [run[name] for run in runs]
        row[name] = None if None in values else mean(values)
    return row
