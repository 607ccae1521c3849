"""``rolling`` between ``hybrid`` and ``windows``, and against ``online`` under arrivals.

python -m benchmarks.reproductions.rolling [--part offline arrivals decide] [--seeds N]
    [--sizes ...]

Runs are paired by seed; 95 % confidence intervals of the differences are Student's. Everything but
the decision times and ``windows`` under its time limit is reproducible.
"""

from __future__ import annotations

import argparse
from concurrent.futures import wait
from functools import cache
from time import perf_counter, perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import orsched
from benchmarks.arguments import count
from benchmarks.reproductions.findings import Findings
from benchmarks.speed.section import table
from orsched.heuristics.rolling.params import RollingParams
from orsched.heuristics.rolling.policy import RollingPolicy
from orsched.instances import with_arrivals
from orsched.instances.gsm8k import gsm8k
from orsched.policy import Information, Policy
from orsched.simulator import simulate_policy
from orsched.study.confidence import mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance

SIZES = {"1319 x 200": (1319, 200), "100 x 20": (100, 20)}
ONLINE = "online@predicted"
LIMIT_US = 100.0


class Figures(NamedTuple):
    """Figures of a run, in seconds; the gap in percent."""

    makespan_s: float
    jct_s: float
    gap: float


@cache
def problem(size: str, seed: int, rate: float) -> Instance:
    """Return an instance whose predictions have an error of sigma 0.3; rate 0: all at 0."""
    requests, clients = SIZES[size]
    instance = gsm8k(seed=seed, requests=requests, clients=clients)
    return with_arrivals(instance, f"poisson:rate={rate:g}", seed) if rate else instance


@cache
def run(
    method: str, size: str, seed: int, rate: float = 0, seconds: float | None = None
) -> Figures:
    """Solve; what leaves ``solve`` has passed the checker."""
    result = orsched.solve(problem(size, seed, rate), method, time_limit=seconds)
    jct = result.schedule.results["jct_ns"]["mean"] / 1e9
    return Figures(result.makespan, jct, 100 * (result.gap or 0.0))


def change(values: Sequence[Figures], base: Sequence[Figures], figure: int) -> tuple[str, float]:
    """Return the mean relative difference in percent with its interval, and the upper end."""
    found = mean_interval(
        [100 * (a[figure] / b[figure] - 1) for a, b in zip(values, base, strict=True)]
    )
    low = found.mean if found.low is None else found.low
    high = found.mean if found.high is None else found.high
    return f"{found.mean:+.2f} [{low:+.2f}, {high:+.2f}]", high


def offline(report: Findings, seeds: range, seconds: float, sizes: Sequence[str]) -> None:
    """All requests at 0, clairvoyant."""
    report.head(f"All at 0, clairvoyant: makespan s (gap %); windows has {seconds:g} s")
    rows = []
    for size in sizes:
        found = {
            "hybrid": [run("hybrid", size, s) for s in seeds],
            "rolling": [run("rolling@clairvoyant", size, s) for s in seeds],
            "windows": [run("windows", size, s, 0, seconds) for s in seeds],
        }
        row = {"size": size, "seeds": str(len(seeds))}
        for name, values in found.items():
            makespan, gap = (np.mean([v[k] for v in values]) for k in (0, 2))
            row[name] = f"{makespan:.2f} ({gap:.2f})"
        row["against hybrid, %"], high = change(found["rolling"], found["hybrid"], 0)
        row["against windows, %"], _ = change(found["rolling"], found["windows"], 0)
        rows.append(row)
        report.claim(f"{size}: rolling is shorter than hybrid", high < 0)
    print("\n".join(table(rows)), flush=True)


def arrivals(report: Findings, seeds: range, rates: Sequence[float]) -> None:
    """Poisson arrivals near saturation, at equal information."""
    report.head("Poisson arrivals, 1319 x 200: makespan s, mean JCT s")
    size, rows = "1319 x 200", []
    for rate in rates:
        for method, base in (
            ("rolling@predicted", ONLINE),
            ("rolling@predicted", "online@predicted+assignment=shared+gate=shadow_price"),
        ):
            ours = [run(method, size, s, rate) for s in seeds]
            theirs = [run(base, size, s, rate) for s in seeds]
            row = {"rate": f"{rate:g}", "method": method, "against": base}
            for at, name in enumerate(("makespan", "jct")):
                row[name] = f"{np.mean([v[at] for v in ours]):.2f}"
                row[f"{name} of the other"] = f"{np.mean([v[at] for v in theirs]):.2f}"
                row[f"{name}, %"], high = change(ours, theirs, at)
                if base == ONLINE:
                    report.claim(f"rate {rate:g}: {name} below {base}", high < 0)
            rows.append(row)
    print("\n".join(table(rows)), flush=True)


class Unjoined(Policy):
    """Times a rolling policy's decisions, without what they wait for plans."""

    def __init__(self, inner: RollingPolicy) -> None:
        self.inner, self.name, self.information = inner, inner.name, inner.information
        self.start = inner.start  # type: ignore[method-assign]
        self.wall_ns: list[int] = []
        self.own_ns: list[int] = []

    def on_arrival(self, view: Any, request: int) -> None:
        """Pass it on."""
        self.inner.on_arrival(view, request)

    def on_finish(self, view: Any, request: int, client: int) -> None:
        """Pass it on."""
        self.inner.on_finish(view, request, client)

    def decide(self, view: Any) -> Any:
        """Time the decision: wall clock and processor time, once the plan is there."""
        future = self.inner.future
        if future is not None and view.now_ns >= self.inner.ready_ns:
            wait([future])
        wall, own = perf_counter_ns(), thread_time_ns()
        step = self.inner.decide(view)
        own, wall = thread_time_ns() - own, perf_counter_ns() - wall
        self.wall_ns.append(wall)
        self.own_ns.append(own)
        return step


def decide(report: Findings) -> None:
    """Latency of decisions at 200 clients, up to 10,000 waiting."""
    report.head("Time of a decision at 200 clients (us; own: processor time), once plans are there")
    rows = []
    for waiting, interval in ((1319, 8.0), (10_000, 100.0)):
        for name in ("process", "thread"):
            params = RollingParams(background=name, iterations=1, horizon=1000, interval=interval)
            policy = RollingPolicy(params, Information.CLAIRVOYANT)
            timed = Unjoined(policy)
            instance = gsm8k(seed=0, requests=waiting, clients=200)
            simulate_policy(instance, timed)
            policy.close()
            row = {"waiting": f"{waiting:,}", "background": name, "plans": str(policy.followed)}
            row["decisions"] = f"{len(timed.own_ns):,}"
            for kind, spent in (("own", timed.own_ns), ("wall", timed.wall_ns)):
                p50, p99, most = np.percentile(np.asarray(spent) / 1e3, [50, 99, 100])
                row[f"{kind}: p50, p99, max"] = f"{p50:.0f}, {p99:.0f}, {most:.0f}"
            rows.append(row)
            p99 = float(np.percentile(timed.own_ns, 99)) / 1e3
            if name == "process":
                report.claim(
                    f"{waiting:,} waiting: p99 at most {LIMIT_US:g} us of its own", p99 <= LIMIT_US
                )
    print("\n".join(table(rows)), flush=True)


def main() -> int:
    """Print the parts asked for; the number of claims that fail is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("offline", "arrivals", "decide")
    parser.add_argument("--part", nargs="+", choices=parts, default=parts)
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=tuple(SIZES))
    parser.add_argument("--seeds", type=count, default=10)
    parser.add_argument("--seconds", type=float, default=30.0, help="time of windows")
    parser.add_argument("--rates", type=float, nargs="+", default=(7.0, 7.5, 8.0))
    options = parser.parse_args()
    report, seeds = Findings(), range(options.seeds)
    runs = {
        "offline": lambda: offline(report, seeds, options.seconds, options.sizes),
        "arrivals": lambda: arrivals(report, seeds, options.rates),
        "decide": lambda: decide(report),
    }
    for part in parts:
        if part in options.part:
            begin = perf_counter()
            runs[part]()
            print(f"\n{part}: {perf_counter() - begin:.0f} s", flush=True)
    print(f"\n{report.misses} claims do not hold")
    return report.misses


if __name__ == "__main__":
    raise SystemExit(main())
