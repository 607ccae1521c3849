"""Regret of every registered policy: mean JCT less the clairvoyant bound on the same requests.

python -m benchmarks.regret [--seeds 20] [--part at_once arrivals] [--methods SPEC ...]
                            [--no-search] [--keep FILE]

GSM8K's prompts with drawn lengths, predictions with a log-normal error of 0.3 and the quantiles of
that error. ``at_once``: 100 requests at 0 on 20 clients; ``arrivals``: 200 of them, Poisson at 90 %
of what the worker serves. Every policy runs with every class of information that it knows, with its
defaults, and the checker accepts each schedule. The bound is the best that is proven for
what a schedule does (``bound_for``), which no policy with whatever information can beat: so regret
holds what the policy loses and what the bound does. Means over the seeds with 95 % confidence
intervals (Student). Methods that search end after a number of iterations, so that a seed gives the
same rows on any machine; those that can are asked to minimise the mean JCT, and those that are made
for the makespan say so. Beside the registry: the gates, lengths unknown, one queue. ``--keep``
keeps the runs in a file, and goes on with what is there.
"""

from __future__ import annotations

import argparse
import json
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

import orsched
from benchmarks.arguments import count
from benchmarks.speed.section import table
from orsched.calibration.intervals import Interval, mean_interval
from orsched.checker import check
from orsched.common.errors import InputError
from orsched.common.stop import MaxIterations
from orsched.instances import predict, with_arrivals
from orsched.instances.synthetic import gsm8k
from orsched.models.bounds.bounds import Bound, bound, bound_for
from orsched.solving.method_choice import choose
from orsched.solving.methods import Run, objectives_of
from orsched.solving.objectives import objective_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.data.instance import Instance

REQUESTS = {"at_once": 100, "arrivals": 200}
CLIENTS = 20
RATE = 1.5
"""Requests a second: nine tenths of the 1.667 that ``fcfs`` ends in the middle of 1,000 at 0."""
SIGMA = 0.3
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
ITERATIONS = 18
BESIDE = tuple(
    f"online@none+assignment=shared+gate={gate}"
    for gate in ("waited_time", "idle_cost", "shadow_price")
)
"""Gates with the same information: that of the time waited (Pang), and the derived ones."""
SEARCHES = ("latency_search", "windows")
"""Those that take seconds a run, which ``--no-search`` leaves out."""
LEFT_OUT = {"exact": "its end is one of time", "auto": "one of the others by size"}
MAKESPAN = ("offline", "hybrid", "online", "robust", "windows")
"""Those that are made for the makespan."""


@lru_cache(maxsize=4)
def problem(part: str, seed: int) -> Instance:
    """Return the requests of a seed, with predicted lengths and their quantiles."""
    instance = gsm8k(seed=seed, requests=REQUESTS[part], clients=CLIENTS)
    instance = predict(instance, f"noise:sigma={SIGMA}", seed)
    guess = np.asarray(instance.requests.predicted_tokens, dtype=np.float64)
    factors = [np.exp(SIGMA * NormalDist().inv_cdf(level)) for level in LEVELS]
    quantiles = np.maximum(1, np.rint(np.outer(guess, factors))).astype(np.int64)
    requests = instance.requests.replace(
        predicted_tokens=None, predicted_quantiles=quantiles, quantile_levels=LEVELS
    )
    instance = instance.replace(requests=requests)
    return instance if part == "at_once" else with_arrivals(instance, f"poisson:rate={RATE}", seed)


@lru_cache(maxsize=4)
def lower(part: str, seed: int) -> Bound:
    """Return the bound on the mean JCT of a seed."""
    return bound(problem(part, seed), "mean_jct")


def specs() -> list[str]:
    """Return each registered method with each information class that it knows."""
    return [*BESIDE] + [
        f"{each.name}@{known}"
        for each in orsched.methods()
        for known in each.information
        if each.name not in LEFT_OUT
    ]


def figures(spec: str, part: str, seed: int) -> tuple[float, float] | str:
    """Return mean JCT and bound in seconds, or why the method does not take the instance."""
    instance, chosen = problem(part, seed), choose(spec)
    stop, parameters = MaxIterations(ITERATIONS), chosen.parameters
    wanted = "jct_mean" if "jct_mean" in objectives_of(chosen.method) else "makespan"
    run = Run(chosen.information, stop, seed, parameters, objective=objective_named(wanted))
    try:
        schedule = chosen.method(instance, run).schedule
    except InputError as error:
        return error.problem
    wrong = check(instance, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule of {spec}: {wrong[0]}")
    finish = schedule.request_times(instance)["finish_ns"]
    jct_ns = float((finish - instance.requests.arrival_ns).mean())
    proven = bound_for(instance, schedule, lower(part, seed), objective="mean_jct")
    assert proven is not None
    if proven.value_ns > jct_ns + 1:
        raise AssertionError(f"{spec} is below the bound {proven.name}")
    return jct_ns / 1e9, proven.value_ns / 1e9


class Kept:
    """Runs that are kept in a file of JSON lines, or in memory only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: dict[str, tuple[float, float] | str] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                key, value = json.loads(line)
                self.found[key] = value if isinstance(value, str) else tuple(value)

    def __call__(self, spec: str, part: str, seed: int) -> tuple[float, float] | str:
        """Return the figures of a run, made now where they are not kept."""
        key = f"{spec} {part} {seed}"
        if key not in self.found:
            self.found[key] = value = figures(spec, part, seed)
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps([key, value]) + "\n")
        return self.found[key]


def shown(interval: Interval, digits: int) -> str:
    """Return a mean with its interval."""
    if interval.low is None or interval.high is None:
        return f"{interval.mean:.{digits}f}"
    return f"{interval.mean:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def rows(part: str, seeds: range, methods: Iterable[str], kept: Kept) -> list[dict[str, str]]:
    """Return a row for each method, the least regret first; equal on every seed: one row."""
    found: dict[str, list[tuple[float, float]]] = {}
    refused: dict[str, str] = {}
    for seed in seeds:  # by seed, so that its bound is made once
        for spec in methods:
            value = kept(spec, part, seed)
            if isinstance(value, str):
                refused[spec] = value
            else:
                found.setdefault(spec, []).append(value)
    for spec, why in refused.items():
        print(f"{spec}: left out, {why}")
    same: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for spec, pairs in found.items():
        same.setdefault(tuple(pairs), []).append(spec)
    made = []
    for pairs, specs_of in same.items():
        names, known = zip(*map(_named, specs_of), strict=True)
        regret = mean_interval([jct - least for jct, least in pairs])
        share = mean_interval([100 * (jct / least - 1) for jct, least in pairs])
        row = {
            "method": ", ".join(dict.fromkeys(names)),
            "information": ", ".join(dict.fromkeys(known)),
            "mean JCT s": f"{np.mean([jct for jct, _ in pairs]):.2f}",
            "regret s": shown(regret, 2),
            "regret %": shown(share, 1),
        }
        made.append((regret.mean, row))
    return [row for _, row in sorted(made, key=lambda each: each[0])]


def _named(spec: str) -> tuple[str, str]:
    """Return the name of a row and its information."""
    name, _, rest = spec.partition("@")
    information, _, more = rest.partition("+")
    gate = more.partition("gate=")[2]
    name += f" {gate}" if gate else ""
    return name + (" (makespan)" if name.split()[0] in MAKESPAN else ""), information


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="+", choices=list(REQUESTS), default=list(REQUESTS))
    parser.add_argument("--seeds", type=count, default=20)
    parser.add_argument("--methods", nargs="+", help="specifications; default: the whole registry")
    parser.add_argument("--no-search", action="store_true", help="leave out what takes seconds")
    parser.add_argument("--keep", type=Path, help="a file that keeps the runs")
    options = parser.parse_args(arguments)
    kept, methods = Kept(options.keep), options.methods or specs()
    if options.no_search:
        methods = [spec for spec in methods if spec.partition("@")[0] not in SEARCHES]
    for part in options.part:
        print(f"\n== {part}, seeds 0 to {options.seeds - 1}\n", flush=True)
        print("\n".join(table(rows(part, range(options.seeds), methods, kept))), flush=True)
    if not options.methods:
        for name, why in LEFT_OUT.items():
            print(f"{name}: left out, {why}")


if __name__ == "__main__":
    main()
