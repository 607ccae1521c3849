"""One run of a scheduler in SSJF's setting, with the figures that the paper reports."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.reproductions import ssjf_setting as setting
from orsched.calibration.intervals import Interval, mean_interval
from orsched.checker import check
from orsched.common import registry
from orsched.instances import predict
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.reproductions.ssjf_setting import Case

Options = tuple[tuple[str, Any], ...]
LATENCY: Options = (("predictor_latency_s", setting.LATENCY_S),)


class Scheduler(NamedTuple):
    """A registered method, what predicts for it (None: the classes that the workload has)."""

    method: str
    predictor: str | None = None
    options: Options = ()


FCFS = Scheduler("fcfs_batched")
SSJF = Scheduler("ssjf", None, LATENCY)
REGRESSION = Scheduler("ssjf", f"noise:sigma={setting.SIGMA}", LATENCY)
ORACLE = Scheduler("sjf")
KNOWN = {"fcfs_batched": "none", "ssjf": "predicted", "sjf": "clairvoyant"}


class Figures(NamedTuple):
    """Figures of one run.

    Attributes:
        jct_s: mean JCT of all requests, the last of which are served after the window.
        p99_s, max_s: of the same.
        done: requests that are done by the end of the window.
        done_jct_s: their mean JCT.
        makespan_s: when the last one is done.
    """

    jct_s: float
    p99_s: float
    max_s: float
    done: int
    done_jct_s: float
    makespan_s: float


@cache
def run(case: Case, scheduler: Scheduler, seed: int) -> Figures:
    """Run a scheduler; the checker accepts its schedule."""
    instance = setting.workload(case, seed)
    if scheduler.predictor is not None:
        instance = predict(instance, scheduler.predictor, seed)
    values = {"batching": case.batching, "batch_wait_timeout_s": case.timeout_s}
    method = registry.resolve("methods", scheduler.method)
    policy, _ = method.build(
        instance, Information(KNOWN[scheduler.method]), values | dict(scheduler.options), 0
    )
    schedule = simulate_policy(instance, policy).schedule
    wrong = check(instance, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    finish = schedule.request_times(instance)["finish_ns"]
    jct = np.sort(finish - instance.requests.arrival_ns) / 1e9
    early = finish <= setting.WINDOW_S * 10**9
    early_jct = (finish - instance.requests.arrival_ns)[early] / 1e9
    return Figures(
        float(jct.mean()),
        float(jct[-(-99 * len(jct) // 100) - 1]),
        float(jct[-1]),
        int(early.sum()),
        float(early_jct.mean()),
        schedule.makespan_ns / 1e9,
    )


def change(case: Case, ours: Scheduler, name: str, seeds: Sequence[int]) -> Interval:
    """Return the change of a figure against first come first served, in per cent, over seeds."""
    return mean_interval([100 * (each - 1) for each in _ratios(case, ours, name, seeds)])


def ratio(case: Case, ours: Scheduler, name: str, seeds: Sequence[int]) -> Interval:
    """Return a figure over that of first come first served, over seeds."""
    return mean_interval(_ratios(case, ours, name, seeds))


def _ratios(case: Case, ours: Scheduler, name: str, seeds: Sequence[int]) -> list[float]:
    """Return the ratios seed by seed: both schedulers serve the same workload."""
    return [
        getattr(run(case, ours, seed), name) / getattr(run(case, FCFS, seed), name)
        for seed in seeds
    ]


def mean_of(case: Case, scheduler: Scheduler, name: str, seeds: Sequence[int]) -> float:
    """Return the mean of a figure over seeds."""
    return mean_interval([getattr(run(case, scheduler, seed), name) for seed in seeds]).mean


def shown(interval: Interval, digits: int = 1) -> str:
    """Return a mean with half the width of its 95 % confidence interval."""
    half = "" if interval.high is None else f" ±{interval.high - interval.mean:.{digits}f}"
    return f"{interval.mean:.{digits}f}{half}"
