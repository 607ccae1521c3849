"""The settings that the comparison on six workloads chooses from."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from benchmarks.reproductions.four_workloads_runs import Scheduler

BUDGETS = (512, 1024, 2048, 4096, 8192)
"""Token budgets of ``vllm``: most tokens of a step."""

DISPATCHING = (
    {"dispatch": "round_robin", "steal": False},
    {"dispatch": "round_robin", "steal": True},
    {"dispatch": "fewest_requests", "steal": False},
    {"dispatch": "fewest_requests", "steal": True},
    {"dispatch": "least_work", "steal": False},
)
"""Dispatchers for equal workers without prefix caches; ``least_work`` is not stolen from."""

SOONEST = (
    {"dispatch": "soonest", "steal": False},
    {"dispatch": "soonest", "steal": True},
)
"""The default dispatcher, which is younger than the others: for ``vllm`` alone."""

GATES = (3.0, 1e9)
LIMITED_BUDGETS = (1024, 2048)
LIMITS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0)
"""Values of ``ttft_s`` to choose from."""

SHORTEST = {"policy": "priority", "priority": "length"}


class Family(NamedTuple):
    """Settings of which one is chosen for each workload and load.

    Attributes:
        information: what all of them know of lengths.
        settings: where there is but one, nothing is chosen.
    """

    information: str
    settings: tuple[Scheduler, ...]


def scheduler(method: str, information: str = "none", **options: object) -> Scheduler:
    """Return a method with parameters."""
    return Scheduler(method, information, tuple(options.items()))


def spec(each: Scheduler) -> str:
    """Return a setting as text, without what all of its method have."""
    shown = [f"{name}={_shown(value)}" for name, value in each.options if value is not False]
    return "+".join([each.method, *shown]) + ("" if each.information == "none" else "@predicted")


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _vllm() -> tuple[Scheduler, ...]:
    return tuple(
        scheduler("vllm", max_num_batched_tokens=budget, **dispatch)
        for budget, dispatch in product(BUDGETS, (*DISPATCHING, *SOONEST))
    )


def _vllm_predicted() -> tuple[Scheduler, ...]:
    """Return fewer settings: where all are admitted the order matters little."""
    return tuple(
        scheduler("vllm", "predicted", max_num_batched_tokens=budget, dispatch=dispatch, **SHORTEST)
        for budget, dispatch in product(BUDGETS[::2], ("fewest_requests", "least_work"))
    )


def _papers() -> tuple[Scheduler, ...]:
    """Return the papers' policies for several workers that are nearest without predictions."""
    under = [(method, each) for method in ("ils", "fcfs_batched") for each in DISPATCHING[::2]]
    found = [scheduler(method, dispatch=each["dispatch"]) for method, each in under]
    return (*found, scheduler("scls_continuous"), scheduler("mico"))


def _papers_predicted() -> tuple[Scheduler, ...]:
    found = [scheduler("ssjf", "predicted", dispatch=each["dispatch"]) for each in DISPATCHING[::2]]
    return (*found, scheduler("mico", "predicted"))


def _gittins(**grid: tuple[float, ...]) -> tuple[Scheduler, ...]:
    rows = product(*grid.values())
    return tuple(scheduler("gittins", **dict(zip(grid, row, strict=True))) for row in rows)


PAGE = scheduler("vllm", max_num_batched_tokens=2048, **DISPATCHING[4])
"""``vllm`` with 2,048 tokens and ``least_work``."""

FAMILIES = {
    "vllm": Family("none", _vllm()),
    "papers": Family("none", _papers()),
    "gittins, tuned": Family("none", _gittins(max_num_batched_tokens=BUDGETS, gate=GATES)),
    "gittins, TTFT": Family(
        "none", _gittins(max_num_batched_tokens=LIMITED_BUDGETS, ttft_s=LIMITS_S)
    ),
    "vllm, shortest first": Family("predicted", _vllm_predicted()),
    "papers, predicted": Family("predicted", _papers_predicted()),
}

OURS = scheduler("gittins")
OURS_PREDICTED = scheduler("gittins", "predicted")
