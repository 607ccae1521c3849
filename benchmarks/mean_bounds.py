"""Lower bounds on mean JCT and mean TTFT: what each relaxation proves, beside a few policies.

python -m benchmarks.mean_bounds [--seeds N] [--methods NAME ...]
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import TYPE_CHECKING, Any

import orsched
from orsched.certificates.scope import PLAIN
from orsched.checker.latency_certificates import bound_violations
from orsched.instances import catalog
from orsched.models.bounds import bound
from orsched.models.latency_bounds import OBJECTIVES, latency_certificates
from orsched.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.instance import Instance

METHODS = ("fcfs", "sjf")


def table(seeds: int, methods: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table: instances, bounds by name, the best schedule and the gap."""
    yield "| instance | mean | bound of each relaxation, s | best, s | in | schedule, s | gap |"
    yield "| --- | --- | --- | ---: | ---: | --- | ---: |"
    for name, instance in _instances(seeds):
        reached = _reached(instance, methods)
        for objective in OBJECTIVES:
            yield _line(name, instance, objective, reached[objective])


def _instances(seeds: int) -> Iterator[tuple[str, Instance]]:
    yield "`gsm8k-llama65b`", orsched.load("gsm8k-llama65b")
    yield "`pang-100x20`", orsched.load("pang-100x20")
    for seed in range(1, seeds + 1):
        made = catalog.generate("gsm8k", seed=seed, requests=100, clients=20)
        yield f"100 x 20, seed {seed}", made


def _reached(instance: Instance, methods: Sequence[str]) -> dict[str, tuple[float, str]]:
    """Return the least mean in seconds by objective, and whose it is."""
    found: dict[str, list[tuple[float, str]]] = {objective: [] for objective in OBJECTIVES}
    for method in methods:
        results = orsched.solve(instance, method, time_limit=60).schedule.results
        for objective, rows in found.items():
            mean_ns = results[objective.removeprefix("mean_") + "_ns"]["mean"]
            rows.append((mean_ns / NS_PER_S, method))
    return {objective: min(rows) for objective, rows in found.items()}


def _line(name: str, instance: Instance, objective: str, reached: tuple[float, str]) -> str:
    best: dict[str, float] = {}
    for found in latency_certificates(instance, objective, lambda: False, scope=PLAIN):
        best[found["bound"]] = max(best.get(found["bound"], 0.0), found["value_ns"] / NS_PER_S)
    started = perf_counter()
    proven = bound(instance, objective)
    seconds = perf_counter() - started
    violations = bound_violations(instance, proven.to_dict(), objective)
    if violations:
        raise SystemExit(f"{name}, {objective}: {violations[0]}")
    values = ", ".join(f"{kind} {value:.2f}" for kind, value in best.items())
    value, method = reached
    gap = value / proven.value_s - 1
    mean = objective.removeprefix("mean_").upper()
    return (
        f"| {name} | {mean} | {values} | {proven.value_s:.3f} | {seconds:.2f} s | "
        f"{method.split('+')[0]} {value:.3f} | {gap:.2%} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    given: Any = parser.parse_args(arguments)
    for line in table(given.seeds, given.methods):
        print(line, flush=True)


if __name__ == "__main__":
    main()
