"""How far ``latency_search`` gets: value, bound and gap by seed, and what policies leave.

python -m benchmarks.latency_search [--seconds S] [--seeds N] [--objectives NAME ...]
    [--instances NAME ...] [--steps stages mixed chunks]
python -m benchmarks.latency_search --workloads [--loads X ...] [--seconds S] [--cost contexts]

The first needs no data: all requests at 0, known lengths, in each of the classes of schedules that
bounds tell apart. The second needs ORSCHED_DATA: the four workloads of the page *Four real
workloads*, seed 0, beside ``gittins`` with known lengths, with its defaults and at the best of four
token budgets.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import orsched
from benchmarks.arguments import count
from orsched.common.units import NS_PER_S
from orsched.data.schedule_classes import allowances_of
from orsched.metrics.objective_values import objective_value
from orsched.models.bounds.bounds import bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.solving.result import Result

INSTANCES = ("pang-100x20", "gsm8k-llama65b")
CLASSES = {"stages": "mixed=false+chunks=false", "mixed": "chunks=false", "chunks": ""}
BUDGETS = (512, 1024, 4096)
OBJECTIVES = ("jct_mean", "ttft_mean")


def at_once(
    instances: Sequence[str],
    objectives: Sequence[str],
    classes: Sequence[str],
    seeds: int,
    seconds: float,
) -> Iterator[str]:
    """Yield the lines of the table with all requests at 0."""
    yield "| instance | objective | steps | seed | sum ns | value s | bound s | gap |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for name in instances:
        instance = orsched.load(name)
        for objective in objectives:
            for kind in classes:
                for seed in range(seeds):
                    method = f"latency_search+{CLASSES[kind]}".removesuffix("+")
                    found = orsched.solve(
                        instance, method, objective, time_limit=seconds, seed=seed
                    )
                    yield _line(name, instance, objective, seed, found)


def _line(name: str, instance: Instance, objective: str, seed: int, found: Result) -> str:
    exact = objective_value(instance, found.schedule, objective)
    assert exact is not None
    allows = allowances_of(instance, found.schedule)
    proven = bound(instance, objective, None, sorted(allows))
    value, steps = float(exact) / NS_PER_S, " and ".join(sorted(allows)) or "stages, rounds"
    return (
        f"| `{name}` | {objective} | {steps} | {seed} | {int(exact * len(instance))} | "
        f"{value:.4f} | {proven.value_s:.4f} | {value / proven.value_s - 1:.2%} |"
    )


def with_arrivals(loads: Sequence[float], seconds: float, cost: str) -> Iterator[str]:
    """Yield the lines of the table of the four workloads."""
    from benchmarks.reproductions.four_workloads_setting import WORKLOADS, workload

    yield (
        "| workload | load | gittins s | best budget s | search s | less than gittins | "
        "than best | bound s | ratio |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name in WORKLOADS:
        for load in loads:
            yield _workload_line(name, load, workload(name, load, 0, 1, cost), seconds)


def _workload_line(name: str, load: float, instance: Instance, seconds: float) -> str:
    usual, *others = [
        orsched.solve(instance, f"gittins@clairvoyant{more}").jct_mean_s or 0.0
        for more in ("", *(f"+max_num_batched_tokens={budget}" for budget in BUDGETS))
    ]
    best = min(usual, *others)
    found = orsched.solve(instance, "latency_search", "jct_mean", time_limit=seconds)
    value = found.jct_mean_s
    assert value is not None
    allows = sorted(allowances_of(instance, found.schedule))
    proven = bound(instance, "mean_jct", None, allows).value_s
    return (
        f"| {name} | {load} | {usual:.2f} | {best:.2f} | {value:.2f} | {1 - value / usual:.1%} | "
        f"{1 - value / best:.1%} | {proven:.2f} | {value / proven:.2f} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=count, default=5)
    parser.add_argument("--objectives", nargs="+", default=["jct_mean"], choices=OBJECTIVES)
    parser.add_argument("--instances", nargs="+", default=list(INSTANCES))
    parser.add_argument("--steps", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--workloads", action="store_true")
    parser.add_argument("--loads", nargs="+", type=float, default=[0.5, 0.7, 0.9])
    parser.add_argument("--cost", choices=["means", "contexts"], default="means")
    given: Any = parser.parse_args(arguments)
    if given.workloads:
        lines = with_arrivals(given.loads, given.seconds, given.cost)
    else:
        lines = at_once(given.instances, given.objectives, given.steps, given.seeds, given.seconds)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
