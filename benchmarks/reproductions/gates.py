"""Gates and robust orders side by side, paired by seed, with confidence intervals.

python -m benchmarks.reproductions.gates [--part gates latency robust] [--seeds N]

All schedules pass the checker. A difference is that of each seed's own pair of runs; its 95 %
confidence interval is Student's.
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.arguments import count
from benchmarks.reproductions.findings import Findings
from benchmarks.speed.section import table
from orsched.calibration.intervals import mean_interval
from orsched.checker import check
from orsched.data.schedule import PREFILL
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.robust import RobustParams, RobustPolicy
from orsched.instances import predict, with_arrivals
from orsched.instances.synthetic import gsm8k
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance

GATES = ("prefill_first", "waited_time", "idle_cost", "shadow_price")
SIZES = {"1319 x 200": (1319, 200), "100 x 20": (100, 20)}
INFORMATION = ("none", "predicted", "clairvoyant")
RATES = (2.0, 5.0, 6.0, 7.0, 8.0)
"""Requests a second at 1319 x 200; about 7.5 are as many as the worker can serve."""
PREDICTORS = (
    "oracle", "noise:sigma=0.1", "noise:sigma=0.2", "noise:sigma=0.3", "noise:sigma=0.5",
    "noise:sigma=0.7", "noise:sigma=1", "classes:classes=3", "classes:classes=5",
    "percentiles:classes=3", "percentiles:classes=5", "reverse",
)  # fmt: skip


class Figures(NamedTuple):
    """Figures of a run, in seconds."""

    makespan_s: float
    jct_s: float
    stages: int


@cache
def problem(size: str, seed: int, rate: float, predictor: str) -> Instance:
    """Return an instance; rate 0: all at 0; ``reverse``: what is long is predicted short."""
    requests, clients = SIZES[size]
    instance = gsm8k(seed=seed, requests=requests, clients=clients)
    if predictor == "reverse":
        guess = np.maximum(1, 520 - instance.requests.output_tokens)
        instance = instance.replace(requests=instance.requests.replace(predicted_tokens=guess))
    elif predictor:
        instance = predict(instance, predictor, seed)
    return with_arrivals(instance, f"poisson:rate={rate:g}", seed) if rate else instance


@cache
def run(
    policy: str, information: str, size: str, seed: int, rate: float = 0, predictor: str = ""
) -> Figures:
    """Run a gate (longest first, one queue) or ``robust``; the checker accepts the schedule."""
    instance = problem(size, seed, rate, predictor)
    chosen: Any = RobustPolicy(RobustParams())
    if policy != "robust":
        chosen = GatedPolicy(GatedParams("shared", gate=policy), Information(information))
    schedule = simulate_policy(instance, chosen).schedule
    wrong = check(instance, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    finish = schedule.request_times(instance)["finish_ns"]
    jct = float((finish - instance.requests.arrival_ns).mean())
    stages = int((schedule.steps.phase == PREFILL).sum())
    return Figures(schedule.makespan_ns / 1e9, jct / 1e9, stages)


def percent(values: Sequence[float], base: Sequence[float]) -> tuple[str, float, float]:
    """Return the mean relative difference with its interval as text, and the interval's ends."""
    found = mean_interval([100 * (a / b - 1) for a, b in zip(values, base, strict=True)])
    low = found.mean if found.low is None else found.low
    high = found.mean if found.high is None else found.high
    return f"{found.mean:+.2f} [{low:+.2f}, {high:+.2f}]", low, high


def compare(report: Findings, seeds: range, rates: Sequence[float], figure: str) -> None:
    """Print a figure of every gate, and what ``shadow_price`` changes."""
    at = Figures._fields.index(figure)
    rows = []
    for size in SIZES if rates == (0.0,) else ("1319 x 200",):
        for rate in rates:
            for information in INFORMATION:
                guess = "noise:sigma=0.3" if information == "predicted" else ""
                values = {
                    gate: [run(gate, information, size, s, rate, guess)[at] for s in seeds]
                    for gate in GATES
                }
                row = {"size": size, "rate": f"{rate:g}", "information": information}
                for gate in GATES:
                    row[gate] = f"{np.mean(values[gate]):.2f}"
                for gate in GATES[:-1]:
                    text, low, high = percent(values["shadow_price"], values[gate])
                    row[f"against {gate}, %"] = text
                    verdict = "less" if high < 0 else "more" if low > 0 else "no difference"
                    report.claim(
                        f"{size}, rate {rate:g}, {information}: {figure} below {gate} ({verdict})",
                        high < 0,
                    )
                rows.append(row)
    print("\n".join(table(rows)), flush=True)


def robust(report: Findings, seeds: range) -> None:
    """Print makespans by prediction error against the same gate without information."""
    size, rows = "1319 x 200", []
    base = [run("shadow_price", "none", size, s).makespan_s for s in seeds]
    for predictor in PREDICTORS:
        row = {"predictions": predictor, "none": f"{np.mean(base):.2f}"}
        for policy in ("idle_cost", "shadow_price", "robust"):
            values = [run(policy, "predicted", size, s, 0, predictor).makespan_s for s in seeds]
            row[policy] = f"{np.mean(values):.2f}"
            row[f"{policy} against none, %"], _, high = percent(values, base)
            if policy == "robust":
                report.claim(f"{predictor}: robust at most 1 % above none", high <= 1)
        rows.append(row)
    print("\n".join(table(rows)), flush=True)


def main() -> int:
    """Print the parts asked for; the number of claims that fail is the exit status, at most 99."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("gates", "latency", "robust")
    parser.add_argument("--part", nargs="+", choices=parts, default=parts)
    parser.add_argument("--seeds", type=count, default=10)
    options = parser.parse_args()
    report, seeds = Findings(), range(options.seeds)
    if "gates" in options.part:
        report.head("Makespan, all requests at 0 (s)")
        compare(report, seeds, (0.0,), "makespan_s")
        report.head("Makespan, Poisson arrivals (s)")
        compare(report, seeds, RATES, "makespan_s")
    if "latency" in options.part:
        report.head("Mean JCT, Poisson arrivals (s)")
        compare(report, seeds, RATES, "jct_s")
    if "robust" in options.part:
        report.head("Makespan by prediction error (s)")
        robust(report, seeds)
    print(f"\n{report.misses} claims do not hold")
    return min(99, report.misses)


if __name__ == "__main__":
    raise SystemExit(main())
