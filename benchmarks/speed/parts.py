"""Times of parts of orsched in one process, which any checkout can run: see ``by_turns``.

    CHECKOUT/.venv/bin/python -P parts.py < work.json > times.json

It reads what to do (``by_turns.work``) and uses names alone that every version since 0.1 has. A row
holds the least of its repeats in processor time, but for decisions: every run decides the same, and
each decision counts with its fastest run, so that interruptions hardly matter. ``work`` is a number
that two versions have alike where they do the same.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import replace
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np

import orsched
from orsched.common import registry
from orsched.heuristics.gated import GatedPolicy
from orsched.instances.synthetic import gsm8k, peers_workload
from orsched.models.packing import pack
from orsched.models.windows.window_state import compiled
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.data.instance import Instance
    from orsched.data.step import Step
    from orsched.simulator.policy import Policy, View

Row = dict[str, Any]


def decide(work: dict[str, Any]) -> Iterator[Row]:
    """Time the decisions at 200 clients while at least half of the requests wait."""
    instance = gsm8k(requests=work["requests"], clients=200)
    for name, information in work["policies"]:
        runs, cpu, counted = [], [], np.empty(0, bool)
        for _ in range(work["repeats"]):
            waiting = Waiting(len(instance))
            policy = _policy(name, information, instance)
            seconds, simulated = _timed(
                lambda policy=policy, seen=waiting: simulate_policy(instance, policy, seen)
            )
            cpu.append(seconds)
            runs.append(np.frombuffer(simulated.decision_ns, np.int64))
            counted = np.array(waiting.counted)
        floor = np.min(runs, axis=0)[counted] / 1e3
        yield {
            "name": f"{name}, {information}", "p50_us": float(np.percentile(floor, 50)),
            "p99_us": float(np.percentile(floor, 99)), "mean_us": float(floor.mean()),
            "run_cpu_s": min(cpu), "work": len(runs[0]),
        }  # fmt: skip


class Waiting:
    """An observer of steps that notes at which of them enough requests waited."""

    def __init__(self, requests: int) -> None:
        self.waiting, self.enough = requests, requests // 2
        self.counted: list[bool] = []

    def __call__(self, view: View, step: Step) -> None:
        """Note a step; requests that are prefilled in chunks or again are counted once."""
        self.counted.append(self.waiting >= self.enough)
        self.waiting -= sum(each not in view.running for each in step.prefill)


def _policy(name: str, information: str, instance: Instance) -> Policy:
    """Return a fresh policy; of ``hybrid`` the one without a search before the first request."""
    method, shown = registry.resolve("methods", name), Information(information)
    if hasattr(method, "defaults"):
        return GatedPolicy(method.defaults, shown, method.name)
    policy: Policy = method.build(instance, shown, {}, 0)[0]
    return policy


def simulator(work: dict[str, Any]) -> Iterator[Row]:
    """Time ``solve`` on the peers' workload: simulating, bounding and checking."""
    for burst in (False, True):
        plain = peers_workload(work["requests"], seed=7, burst=burst)
        memory = orsched.BlockMemory(blocks=8192, block_tokens=16, allocation="paged")
        engine = replace(plain.worker, memory=memory, prefill_cap_tokens=None)
        for method, instance in (("fcfs", plain), ("vllm", plain.replace(workers=(engine,)))):
            seconds, result = _least(
                work["repeats"], lambda i=instance, m=method: orsched.solve(i, m)
            )
            policy = lambda i=instance, m=method: _policy(m, "none", i)  # noqa: E731
            alone, _ = _least(work["repeats"], lambda i=instance, p=policy: simulate_policy(i, p()))
            yield {
                "name": f"{'burst' if burst else 'Poisson'}, {method}", "solve_cpu_s": seconds,
                "simulate_cpu_s": alone, "work": result.schedule.makespan_ns,
            }  # fmt: skip


def packing(work: dict[str, Any]) -> Iterator[Row]:
    """Time packings; a family's time is the sum over its instances."""
    for family, cases in work["families"].items():
        seconds, total = 0.0, 0
        for jobs, clients in cases:
            least, result = _least(work["repeats"], lambda j=jobs, m=clients: pack(j, m))
            seconds += least
            total += result.makespan
        yield {"name": family, "cpu_s": seconds, "work": total}


def windows(work: dict[str, Any]) -> Iterator[Row]:
    """Time a fixed number of iterations of the search over stage windows, one thread."""
    instance = gsm8k(0, requests=work["requests"], clients=work["clients"])
    compiled().wait()
    orsched.solve(instance, "windows+threads=1", iterations=1)
    for iterations in work["iterations"]:
        seconds, result = _least(
            work["repeats"],
            lambda n=iterations: orsched.solve(instance, "windows+threads=1", iterations=n),
        )
        name = f"{work['requests']:,} x {work['clients']}, {iterations} iterations"
        yield {"name": name, "cpu_s": seconds, "work": result.schedule.makespan_ns}


def bounds(work: dict[str, Any]) -> Iterator[Row]:
    """Time the proposal of bounds, with their proofs, for requests that arrive over time."""
    plain = peers_workload(work["requests"], seed=7, burst=False)
    for objective in ("makespan", "mean_jct"):
        seconds, found = _least(work["repeats"], lambda o=objective: orsched.bound(plain, o))
        name = f"{work['requests']:,} requests, {objective}"
        yield {"name": name, "cpu_s": seconds, "work": found.value_ns}


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    begin = process_time()
    result = call()
    return process_time() - begin, result


def _least(repeats: int, call: Callable[[], Any]) -> tuple[float, Any]:
    times, result = [], None
    for _ in range(repeats):
        seconds, result = _timed(call)
        times.append(seconds)
    return min(times), result


PARTS = {
    "decide": decide, "simulator": simulator, "packing": packing, "windows": windows,
    "bounds": bounds,
}  # fmt: skip


def main() -> None:
    """Do the parts that are asked for; the answer is a document as ``run`` writes them."""
    asked = json.load(sys.stdin)
    sections = [{"name": name, "rows": list(PARTS[name](work))} for name, work in asked.items()]
    json.dump({"orsched": orsched.__file__, "sections": sections}, sys.stdout)


if __name__ == "__main__":
    main()
