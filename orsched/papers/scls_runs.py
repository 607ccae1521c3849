"""One run of a scheduler in SCLS's setting, with the figures that the paper reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker import check
from orsched.common.units import NS_PER_S
from orsched.heuristics.scls.continuous import ILS
from orsched.heuristics.scls.sliced import ABLATION, SCLS
from orsched.metrics.summary import summarise
from orsched.papers import scls_setting as setting
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.papers.reruns import Row

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
