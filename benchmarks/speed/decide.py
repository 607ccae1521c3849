"""Time of one decision at 200 clients with 10,000 requests waiting."""

from __future__ import annotations

import gc
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.speed.section import Options, Section, Target
from orsched.common import registry
from orsched.data.memory import BlockMemory
from orsched.data.step import Step, Wait
from orsched.data.workers import Worker
from orsched.heuristics.gated import GatedPolicy
from orsched.heuristics.pang import GatedMethod
from orsched.heuristics.policy_method import PolicyMethod
from orsched.instances.synthetic import gsm8k
from orsched.metrics.summary import distribution
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.instance import Instance

NAME = "decide"
USES_QUANTILES = ("gittins", "robust")
PAGED = BlockMemory(2_000, 16, "paged")
LEVELS, FACTORS = (0.1, 0.25, 0.5, 0.75, 0.9), (0.4, 0.6, 1.0, 1.5, 2.5)
PANG_US, LIMIT_US, POOL_US = 50.0, 100.0, 10.0


class Timed(Policy):
    """A policy that times another one's ``decide`` while enough requests wait.

    A decision that takes requests out of the policy's pool, for all workers at once, is counted
    apart.

    Attributes:
        decide_ns: the times.
        stages: positions in it of the decisions that formed a prefill stage.
        started: requests in these stages.
        pool_ns: times of the decisions that batched or dealt a pool.
        pooled: requests that these took from it.
    """

    def __init__(self, inner: Policy, waiting: int) -> None:
        self.inner = inner
        self.name = inner.name
        self.information = inner.information
        self.enough = waiting
        self.waiting = 0
        self.decide_ns: list[int] = []
        self.stages: list[int] = []
        self.started = 0
        self.pool_ns: list[int] = []
        self.pooled = 0
        self.start = inner.start  # type: ignore[method-assign]

    def on_arrival(self, view: View, request: int) -> None:
        """Count the request as waiting."""
        self.waiting += 1
        self.inner.on_arrival(view, request)

    def on_first_token(self, view: View, request: int) -> None:
        """Pass it on."""
        self.inner.on_first_token(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Pass it on."""
        self.inner.on_finish(view, request, client)

    def on_preempt(self, view: View, request: int) -> None:
        """Count the request as waiting again."""
        self.waiting += 1
        self.inner.on_preempt(view, request)

    def decide(self, view: View) -> Step | Wait | None:
        """Time the decision; keep the time if enough requests wait."""
        counted = self.waiting >= self.enough
        pooled = len(getattr(self.inner, "pool", ()))
        begin = perf_counter_ns()
        step = self.inner.decide(view)
        passed = perf_counter_ns() - begin
        pooled -= len(getattr(self.inner, "pool", ()))
        new = _new(view, step) if isinstance(step, Step) else 0
        self.waiting -= new
        if counted and pooled:
            self.pool_ns.append(passed)
            self.pooled += pooled
        elif counted:
            if new:
                self.stages.append(len(self.decide_ns))
                self.started += new
            self.decide_ns.append(passed)
        return step


def _new(view: View, step: Step) -> int:
    """Return how many requests no longer wait, of those that a step prefills."""
    return sum(each not in view.running or each in step.preempt for each in step.prefill)


def methods() -> Iterator[tuple[str, Any, Information]]:
    """Yield every registered policy with what it may know: Pang's with each, others by default."""
    for name in registry.names("methods"):
        method = registry.resolve("methods", name)
        if isinstance(method, GatedMethod):
            for information in sorted(method.information):
                yield name, method, information
        elif type(method) is PolicyMethod:  # others search before they serve
            yield name, method, method.information[0]


def with_quantiles(instance: Instance) -> Instance:
    """Return the instance with a distribution around each predicted length."""
    points = instance.requests.predicted_tokens
    assert points is not None
    rows = np.maximum(1, np.rint(points[:, None] * np.array(FACTORS))).astype(int)
    table = instance.requests.replace(
        predicted_tokens=points, predicted_quantiles=rows, quantile_levels=LEVELS
    )
    return instance.replace(requests=table)


def _policy(method: Any, information: Information, instance: Instance) -> Policy:
    """Return a fresh policy of a method, by default."""
    if isinstance(method, GatedMethod):
        return GatedPolicy(method.defaults, information, method.name)
    policy: Policy = method.build(instance, information, {}, 0)[0]
    return policy


def run(options: Options) -> Section:
    """Time every method, several runs each."""
    waiting, requests = (100, 400) if options.tiny else (10_000, 20_000)
    title = f"one decision at 200 clients while at least {waiting:,} requests wait"
    section = Section(NAME, title)
    pang = gsm8k(requests=requests, clients=200)
    workers = {"pang": pang, "open": pang.replace(workers=(Worker(200, pang.worker.cost),))}
    cases = [(kind, *each) for kind in workers for each in methods()]
    workers["paged"] = pang.replace(workers=(Worker(200, pang.worker.cost, memory=PAGED),))
    cases += [("paged", *each) for each in methods() if each[0] == "mc_sf"]
    told = with_quantiles(pang)
    workers |= {
        "pang, quantiles": told,
        "open, quantiles": told.replace(workers=workers["open"].workers),
    }
    cases += [
        (kind, name, registry.resolve("methods", name), Information.PREDICTED)
        for kind in ("pang, quantiles", "open, quantiles")
        for name in USES_QUANTILES
    ]
    for kind, name, method, information in cases:
        if kind == "open" and isinstance(method, GatedMethod):
            continue
        runs = []
        for _ in range(options.repeats):
            timed = Timed(_policy(method, information, workers[kind]), waiting)
            gc.collect()
            simulate_policy(workers[kind], timed)
            runs.append(timed)
        row = _row(name, kind, runs)
        section.rows.append(row)
        what = f"{name}, {information}, {kind}"
        limit = PANG_US if isinstance(method, GatedMethod) or name == "fcfs" else LIMIT_US
        if row["decisions"]:
            section.targets.append(Target(f"{what}, p99", row["p99_us"], limit, "us"))
        if row["pooled"]:
            each = f"{what}, batching and dealing, a request"
            section.targets.append(Target(each, row["pool_us"], POOL_US, "us"))
    section.notes = [
        f"{requests:,} requests at time 0, on Pang's worker (cap 2,048 tokens, 1,024 KV blocks), "
        "or an open one without cap and memory, where 200 requests start at once. "
        "paged: 2,000 blocks of 16 tokens and no cap, for the policy that looks how far memory "
        "will go; it binds before the clients do. "
        "A decision is one call of decide: to decode on, or which requests to prefill on which "
        "clients. Pang states less than 5 ms.",
        "pooled: requests that decisions took from a pool to batch them or deal them to workers; "
        "such a decision counts by the request (pool_us) and not in the other columns.",
        "p50, p99: of a run as the clock shows them, median over the runs; max: of all runs. "
        "Interruptions by other processes are in them.",
        "The runs make the same decisions. floor_p99: the p99 over the decisions when each counts "
        "with its fastest run, so nearly without interruptions. stages: the decisions that formed "
        "a prefill stage, which are the long ones; stage_p50 is their median, of the fastest runs; "
        "stage_us is their time by the request that they start.",
        "Preparation before the first request (packing, the search of hybrid) is not a decision "
        "and not in the table.",
    ]
    return section


def _row(name: str, kind: str, runs: list[Timed]) -> dict[str, Any]:
    figures = [distribution(timed.decide_ns) for timed in runs]
    floor = [min(times) for times in zip(*(t.decide_ns for t in runs), strict=True)]
    stages = [floor[i] for i in runs[0].stages]
    pooled = runs[0].pooled
    pool_ns = median(sum(timed.pool_ns) for timed in runs)

    def us(value: float) -> float:
        return value / 1e3

    return {
        "method": name,
        "information": str(runs[0].information),
        "worker": kind,
        "decisions": len(floor),
        "p50_us": us(median(f["p50"] for f in figures)) if floor else None,
        "p99_us": us(median(f["p99"] for f in figures)) if floor else None,
        "max_us": us(max(f["max"] for f in figures)) if floor else None,
        "floor_p99_us": us(distribution(floor)["p99"]) if floor else None,
        "stages": len(stages),
        "stage_p50_us": us(distribution(stages)["p50"]) if stages else None,
        "stage_us": us(sum(stages) / runs[0].started) if stages else None,
        "pooled": pooled or None,
        "pool_us": us(pool_ns / pooled) if pooled else None,
    }
