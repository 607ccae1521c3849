"""Time of one decision at 200 clients with 10,000 requests waiting."""

from __future__ import annotations

import gc
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from orsched.heuristics.fcfs import FirstComeFirstServed
from orsched.heuristics.gated import GatedPolicy
from orsched.heuristics.methods import HYBRID, OFFLINE, ONLINE
from orsched.instances.gsm8k import gsm8k
from orsched.metrics import distribution
from orsched.policy import Policy, View
from orsched.simulator import simulate_policy
from tests.benchmarks.section import Options, Section, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.step import Step

NAME = "decide"
LIMIT_US = 50.0


class Timed(Policy):
    """A policy that times another one's ``decide`` while enough requests wait.

    Attributes:
        decide_ns: the times.
        stages: positions in it of the decisions that formed a prefill stage.
    """

    def __init__(self, inner: Policy, waiting: int) -> None:
        self.inner = inner
        self.name = inner.name
        self.information = inner.information
        self.enough = waiting
        self.waiting = 0
        self.decide_ns: list[int] = []
        self.stages: list[int] = []
        self.start = inner.start  # type: ignore[method-assign]

    def on_arrival(self, view: View, request: int) -> None:
        """Count the request as waiting."""
        self.waiting += 1
        self.inner.on_arrival(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Pass it on."""
        self.inner.on_finish(view, request, client)

    def decide(self, view: View) -> Step | None:
        """Time the decision; keep the time if enough requests wait."""
        counted = self.waiting >= self.enough
        begin = perf_counter_ns()
        step = self.inner.decide(view)
        passed = perf_counter_ns() - begin
        prefill = () if step is None else step.prefill
        if counted and prefill:
            self.stages.append(len(self.decide_ns))
        if counted:
            self.decide_ns.append(passed)
        self.waiting -= len(prefill)
        return step


def methods() -> Iterator[tuple[str, Callable[[], Policy]]]:
    """Yield every method under every class of information: what makes its policy, by default."""
    yield "fcfs", FirstComeFirstServed
    for method in (OFFLINE, ONLINE, HYBRID):
        for information in sorted(method.information):
            yield method.name, partial(GatedPolicy, method.defaults, information, method.name)


def run(options: Options) -> Section:
    """Time every method, several runs each."""
    waiting, requests = (100, 400) if options.tiny else (10_000, 20_000)
    title = f"one decision at 200 clients while at least {waiting:,} requests wait"
    section = Section(NAME, title)
    instance = gsm8k(requests=requests, clients=200)
    for name, make in methods():
        runs = []
        for _ in range(options.repeats):
            timed = Timed(make(), waiting)
            gc.collect()
            simulate_policy(instance, timed)
            runs.append(timed)
        row = _row(name, runs)
        section.rows.append(row)
        what = f"{name}, {row['information']}, p99"
        section.targets.append(Target(what, row["p99_us"], LIMIT_US, "us"))
    section.notes = [
        f"{requests:,} requests at time 0 on Pang's worker (cap 2,048 tokens, 1,024 KV blocks). "
        "A decision is one call of decide: to decode on, or which requests to prefill on which "
        "clients. Pang states less than 5 ms.",
        "p50, p99: of a run as the clock shows them, median over the runs; max: of all runs. "
        "Interruptions by other processes are in them.",
        "The runs make the same decisions. floor_p99: the p99 over the decisions when each counts "
        "with its fastest run, so nearly without interruptions. stages: the decisions that formed "
        "a prefill stage, which are the long ones; stage_p50 is their median, of the fastest runs.",
        "Preparation before the first request (packing, the search of hybrid) is not a decision "
        "and not in the table.",
    ]
    return section


def _row(name: str, runs: list[Timed]) -> dict[str, Any]:
    figures = [distribution(timed.decide_ns) for timed in runs]
    floor = [min(times) for times in zip(*(t.decide_ns for t in runs), strict=True)]
    stages = [floor[i] for i in runs[0].stages]
    return {
        "method": name,
        "information": str(runs[0].information),
        "decisions": len(floor),
        "p50_us": median(f["p50"] for f in figures) / 1e3,
        "p99_us": median(f["p99"] for f in figures) / 1e3,
        "max_us": max(f["max"] for f in figures) / 1e3,
        "floor_p99_us": distribution(floor)["p99"] / 1e3,
        "stages": len(stages),
        "stage_p50_us": distribution(stages)["p50"] / 1e3,
    }
