"""Time of one decision at 200 clients with 10,000 requests waiting."""

from __future__ import annotations

import gc
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from orsched.heuristics.fcfs import FirstComeFirstServed
from orsched.heuristics.gated import GatedPolicy
from orsched.heuristics.methods import HYBRID, OFFLINE, ONLINE
from orsched.instances.gsm8k import gsm8k
from orsched.metrics import distribution
from orsched.policy import Information, Policy, View
from orsched.simulator import simulate_policy
from tests.benchmarks.section import Options, Section, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.step import Step

NAME = "decide"
LIMIT_US = 50.0


class Timed(Policy):
    """A policy that times another one's ``decide`` while enough requests wait."""

    def __init__(self, inner: Policy, waiting: int) -> None:
        self.inner = inner
        self.name = inner.name
        self.information = inner.information
        self.enough = waiting
        self.waiting = 0
        self.decide_ns: list[int] = []
        self.stage_ns: list[int] = []
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
        if counted:
            self.decide_ns.append(passed)
        if step is not None and step.prefill:
            self.waiting -= len(step.prefill)
            if counted:
                self.stage_ns.append(passed)
        return step


def policies() -> Iterator[tuple[str, Policy]]:
    """Yield every method under every class of information, with its default parameters."""
    yield "fcfs", FirstComeFirstServed()
    for method in (OFFLINE, ONLINE, HYBRID):
        for information in sorted(method.information):
            policy = GatedPolicy(method.defaults, Information(information), method.name)
            yield method.name, policy


def run(options: Options) -> Section:
    """Time every method."""
    waiting, requests = (100, 400) if options.tiny else (10_000, 20_000)
    title = f"one decision at 200 clients while at least {waiting:,} requests wait"
    section = Section(NAME, title)
    instance = gsm8k(requests=requests, clients=200)
    for name, inner in policies():
        timed = Timed(inner, waiting)
        gc.collect()
        simulate_policy(instance, timed)
        row = _row(name, timed)
        section.rows.append(row)
        what = f"{name}, {row['information']}, p99"
        section.targets.append(Target(what, row["p99_us"], LIMIT_US, "us"))
    section.notes = [
        f"{requests:,} requests at time 0 on Pang's worker (cap 2,048 tokens, 1,024 KV blocks). "
        "A decision is one call of decide: to decode on, or which requests to prefill on which "
        "clients. Pang states less than 5 ms.",
        "Preparation before the first request (packing, the search of hybrid) is not a decision "
        "and not in the table.",
        "stages: the decisions that formed a prefill stage, which are the long ones; the target "
        "is on the p99 of all decisions.",
    ]
    return section


def _row(name: str, timed: Timed) -> dict[str, Any]:
    figures = distribution(timed.decide_ns)
    stages = distribution(timed.stage_ns)
    if figures is None or stages is None:
        raise ValueError(f"{name} made no decision while enough requests waited")
    return {
        "method": name,
        "information": str(timed.information),
        "decisions": len(timed.decide_ns),
        **{f"{key}_us": figures[key] / 1e3 for key in ("p50", "p99", "max")},
        "stages": len(timed.stage_ns),
        "stage_p50_us": stages["p50"] / 1e3,
        "stage_p99_us": stages["p99"] / 1e3,
    }
