"""The tail of the JCT: what ``boost_s`` and ``crowd`` of gittins give p99, and cost in the mean.

ORSCHED_DATA=... python -m benchmarks.reproductions.tail [--seeds 10] [--loads 0.9]

Machine and requests of ``four_workloads_setting``; the bursty workloads are those with the arrivals
of a trace, the fourth is as bursty by a gamma law. ``tail`` is one setting for all of them, chosen
on seeds 0 to 4 of the three at load 0.9; seeds 5 to 9 judge. The references know all lengths:
``sjf`` of SSJF, vLLM's policy with the shortest first, and ``gittins`` without aging, which is
shortest processing time first with the same placing and gate. Differences are those of
each seed's own pair of runs, with 95 % intervals (Student). The checker accepts each schedule.
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.arguments import count, share
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.findings import Findings
from benchmarks.reproductions.four_workloads_runs import Figures, Scheduler, run
from benchmarks.speed.section import table
from orsched.calibration.intervals import mean_interval
from orsched.instances import with_arrivals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance

TUNED, FIRST_JUDGED = 5, 5
"""Seeds that the setting was chosen on, and the first of those that it was not."""

TAIL = (("boost_s", 22.0), ("crowd", 12.0))
BURSTY = "ShareGPT, gamma"
GAMMA_CV = 3.0
WORKLOADS = ("Azure conv", "Azure code", "Mooncake", BURSTY)

SHORTEST = (("policy", "priority"), ("priority", "length"))
SCHEDULERS = {
    "sjf": Scheduler("sjf", "clairvoyant", (("dispatch", "least_work"),)),
    "vllm, shortest first": Scheduler("vllm", "clairvoyant", SHORTEST),
    "gittins, no aging": Scheduler("gittins", "clairvoyant", (("aging", 1e9),)),
    "gittins": Scheduler("gittins", "none"),
    "gittins, boost_s": Scheduler("gittins", "none", TAIL[:1]),
    "gittins, crowd": Scheduler("gittins", "none", TAIL[1:]),
    "gittins, tail": Scheduler("gittins", "none", TAIL),
}


def workload(name: str, load: float, seed: int) -> Instance:
    """Return the requests of a seed."""
    if name != BURSTY:
        return setting.workload(name, load, seed)
    instance = setting.workload("ShareGPT", load, seed)
    law: dict[str, Any] = {"law": "gamma", "cv": GAMMA_CV}
    rate = load * setting.saturation_per_s("ShareGPT")
    return with_arrivals(instance, {**law, "rate": rate}, seed)


@cache
def figures(name: str, load: float, seed: int, label: str) -> Figures:
    """Run a scheduler on a seed."""
    return run(workload(name, load, seed), SCHEDULERS[label])


def percent(values: Sequence[float], base: Sequence[float]) -> tuple[str, float]:
    """Return the mean relative difference with its interval as text, and as a number."""
    found = mean_interval([100 * (a / b - 1) for a, b in zip(values, base, strict=True)])
    if found.low is None or found.high is None:
        return f"{found.mean:+.1f}", found.mean
    return f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]", found.mean


def compare(report: Findings, seeds: range, loads: Sequence[float]) -> None:
    """Print a row for each workload, load and scheduler; say whether the goals are met."""
    rows = []
    for name in WORKLOADS:
        for load in loads:
            found = {
                label: [figures(name, load, seed, label) for seed in seeds] for label in SCHEDULERS
            }
            mean = {label: [each.mean_s for each in runs] for label, runs in found.items()}
            p99 = {label: [each.p99_s for each in runs] for label, runs in found.items()}
            for label, each in SCHEDULERS.items():
                rows.append({
                    "workload": name, "load": f"{load:g}", "policy": label,
                    "information": each.information,
                    "mean s": f"{np.mean(mean[label]):.2f}", "p99 s": f"{np.mean(p99[label]):.1f}",
                    "mean over gittins, %": percent(mean[label], mean["gittins"])[0],
                    "p99 over gittins, %": percent(p99[label], p99["gittins"])[0],
                    "p99 over sjf, %": percent(p99[label], p99["sjf"])[0],
                })  # fmt: skip
            cost = percent(mean["gittins, tail"], mean["gittins"])[1]
            gain = percent(p99["gittins, tail"], p99["sjf"])[1]
            report.claim(f"{name}, load {load:g}: mean at most 3 % more ({cost:+.1f} %)", cost <= 3)
            report.claim(f"{name}, load {load:g}: p99 20 % below sjf ({gain:+.1f} %)", gain <= -20)
    print("\n" + "\n".join(table(rows)), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the seeds that judge, then all; the number of claims that fail is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=count, default=10)
    parser.add_argument("--loads", type=share, nargs="+", default=[0.9])
    options = parser.parse_args(arguments)
    report = Findings()
    if options.seeds > FIRST_JUDGED:
        report.head(f"seeds {FIRST_JUDGED} to {options.seeds - 1}, which nothing was chosen on")
        compare(report, range(FIRST_JUDGED, options.seeds), options.loads)
    report.head(f"seeds 0 to {options.seeds - 1}; the setting was chosen on 0 to {TUNED - 1}")
    compare(report, range(options.seeds), options.loads)
    print(f"\n{report.misses} claims do not hold")
    return min(99, report.misses)


if __name__ == "__main__":
    raise SystemExit(main())
