"""Lower bounds on mean JCT and mean TTFT: what each relaxation proves, beside a few policies.

python -m benchmarks.mean_bounds [--seeds N] [--seconds S] [--methods NAME ...]
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import TYPE_CHECKING, Any

import orsched
from orsched.certificates.context import Context
from orsched.checker.certificates import bound_violations
from orsched.common.units import NS_PER_S
from orsched.instances import catalog
from orsched.models.bounds.bounds import bound, bound_for
from orsched.models.bounds.latency_bounds import OBJECTIVES, candidates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

METHODS = ("fcfs", "sjf", "latency_search")


def table(seeds: int, methods: Sequence[str], seconds: float) -> Iterator[str]:
    """Yield the lines of a table: instances, bounds by name, the best schedule and the gap.

    The gap is over the bound that holds for what that schedule does (mixed steps, chunks).
    """
    yield "| instance | mean | bound of each relaxation, s | best, s | in | schedule, s | gap |"
    yield "| --- | --- | --- | ---: | ---: | --- | ---: |"
    for name, instance in _instances(seeds):
        for objective in OBJECTIVES:
            yield _line(name, instance, objective, methods, seconds)


def _instances(seeds: int) -> Iterator[tuple[str, Instance]]:
    yield "`gsm8k-llama65b`", orsched.load("gsm8k-llama65b")
    yield "`pang-100x20`", orsched.load("pang-100x20")
    for seed in range(1, seeds + 1):
        made = catalog.generate("gsm8k", seed=seed, requests=100, clients=20)
        yield f"100 x 20, seed {seed}", made


def _best(
    instance: Instance, objective: str, methods: Sequence[str], seconds: float
) -> tuple[float, str, Schedule]:
    """Return the least mean in seconds, whose it is, and the schedule."""
    found = []
    for method in methods:
        schedule = orsched.solve(instance, method, objective=objective, time_limit=seconds).schedule
        mean_ns = schedule.results[objective.removeprefix("mean_") + "_ns"]["mean"]
        found.append((mean_ns / NS_PER_S, method, schedule))
    return min(found, key=lambda each: each[0])


def _line(
    name: str, instance: Instance, objective: str, methods: Sequence[str], seconds: float
) -> str:
    best: dict[str, float] = {}
    for found in candidates(Context(instance), objective, lambda: False):
        best[found["bound"]] = max(best.get(found["bound"], 0.0), found["value_ns"] / NS_PER_S)
    started = perf_counter()
    proven = bound(instance, objective)
    took = perf_counter() - started
    violations = bound_violations(instance, proven.to_dict(), objective)
    if violations:
        raise SystemExit(f"{name}, {objective}: {violations[0]}")
    values = ", ".join(f"{kind} {value:.2f}" for kind, value in best.items())
    value, method, schedule = _best(instance, objective, methods, seconds)
    holding = bound_for(instance, schedule, proven, objective=objective) or proven
    does = ", ".join(sorted(holding.allows)) or "plain"
    mean = objective.removeprefix("mean_").upper()
    return (
        f"| {name} | {mean} | {values} | {proven.value_s:.3f} | {took:.2f} s | "
        f"{method} {value:.3f} ({does}) | {value / holding.value_s - 1:.2%} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    given: Any = parser.parse_args(arguments)
    for line in table(given.seeds, given.methods, given.seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
