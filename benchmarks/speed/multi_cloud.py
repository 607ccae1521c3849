"""Time that MICO's distribution and batching take a request, at scale."""

from __future__ import annotations

import gc
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.speed.section import Options, Section, Target
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.heuristics.mico import ABLATION, Mico, MicoParams
from orsched.instances.predictions import Noise, predict
from orsched.instances.synthetic import lognormal_tokens
from orsched.metrics.summary import distribution
from orsched.simulator import simulate_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.simulator.policy import View

NAME = "multi_cloud"
LIMIT_US = 10.0
DECIDE_LIMIT_US = 100.0
LIMIT_TOKENS = 2048


class Timed(Mico):
    """MICO, with the time that its dealing and its batching take."""

    dealing_ns = 0
    batching_ns = 0

    def start(self, view: View) -> None:
        """Put a clock around the batching of each cloud."""
        super().start(view)
        for cloud in self.clouds:
            cloud._take = self._clocked(cloud._take)  # type: ignore[method-assign]

    def _clocked(self, take: Callable[[View, int], list[int]]) -> Callable[[View, int], list[int]]:
        def clocked(view: View, free: int) -> list[int]:
            begin = perf_counter_ns()
            taken = take(view, free)
            self.batching_ns += perf_counter_ns() - begin
            return taken

        return clocked

    def _distribute(self, view: View) -> None:
        begin = perf_counter_ns()
        super()._distribute(view)
        self.dealing_ns += perf_counter_ns() - begin


def problem(requests: int, clouds: int, clients: int) -> Instance:
    """Return requests that are all there at time 0, on equal clouds with paged memory."""
    prompts = lognormal_tokens("multi_cloud/prompts", 0, requests, 68, 0.8, 4, 1024)
    outputs = lognormal_tokens("multi_cloud/outputs", 0, requests, 345, 0.7, 2, LIMIT_TOKENS)
    memory = BlockMemory(clients * 64, 16, "paged")
    worker = Worker(clients, AffineCost(), 2048, memory)
    instance = Instance(
        Requests(prompts, outputs, arrival_ns=np.zeros(requests, np.int64)),
        (worker,) * clouds,
        first_token="prefill",
        output_limit_tokens=LIMIT_TOKENS,
    )
    return predict(instance, Noise(0.3))


def run(options: Options) -> Section:
    """Time all four variants, several runs each."""
    sizes = (200,) if options.tiny else (10_000, 100_000)
    section = Section(NAME, "MICO: dealing and batching, microseconds a request, 8 clouds")
    for requests in sizes:
        instance = problem(requests, 8, 25 if options.tiny else 200)
        for name, values in ABLATION.items():
            row = _row(instance, name, values, options.repeats)
            section.rows.append(row)
            both = row["dealing_us"] + row["batching_us"]
            text = f"{name}, {requests:,} requests, dealing and batching, a request"
            section.targets.append(Target(text, both, LIMIT_US, "us"))
            if "I" in name:
                text = f"{name}, {requests:,} requests, decide, p99"
                section.targets.append(Target(text, row["decide_p99_us"], DECIDE_LIMIT_US, "us"))
    section.notes = [
        "All requests are there at time 0, with lognormal lengths; 200 clients a cloud, paged KV "
        "blocks, predictions with sigma 0.3. Median over the runs.",
        "dealing_us: buckets, groups, loads and the clouds' queues; batching_us: who is served "
        "next, under places, cap and memory; decide_us: all calls of decide; all over the number "
        "of requests.",
        "The first decision deals everything at once. A static batch of 200 is one decision, so "
        "that its p99 is no measure of a request.",
    ]
    return section


def _row(instance: Instance, name: str, values: dict[str, str], repeats: int) -> dict[str, Any]:
    count, found = len(instance), []
    for _ in range(repeats):
        policy = Timed(MicoParams(**values))
        gc.collect()
        times = simulate_policy(instance, policy).decision_ns
        p99 = distribution(times)["p99"]
        found.append((policy.dealing_ns, policy.batching_ns, sum(times), p99, len(times)))
    dealing, batching, whole, tail, decisions = zip(*found, strict=True)
    return {
        "variant": name,
        "requests": count,
        "decisions": decisions[0],
        "dealing_us": median(dealing) / count / 1e3,
        "batching_us": median(batching) / count / 1e3,
        "decide_us": median(whole) / count / 1e3,
        "decide_p99_us": median(tail) / 1e3,
    }
