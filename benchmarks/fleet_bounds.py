"""Bounds where memory binds, requests restart, and several workers serve.

    python -m benchmarks.fleet_bounds [--only NAME ...] [--seeds N] [--schedules | --plans S]

Every bound allows chunks, mixed steps and restarts where a request is. Rollouts are prompts with
samples: the logarithms of their lengths are normal around a prompt's own. ``--seeds`` adds as many
instances like r1024. The cases m4090 and p3 are read from the folder ``cases`` beside
``ORSCHED_DATA``, and left out where that is not there. ``--schedules`` measures, in the place of
bounds, the CPU seconds of a simulation (``vllm``, longest first) and of the check of its schedule.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import orsched
from benchmarks.arguments import count
from benchmarks.speed.section import table
from orsched.certificates.context import Context
from orsched.checker.certificates import certificate_violations
from orsched.common.units import NS_PER_S
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.files.request_columns import read_requests_csv
from orsched.heuristics.policy_method import LiveMethod
from orsched.instances.datasets import VARIABLE
from orsched.instances.rollouts import rollout_requests
from orsched.models.bounds.fleet_prices_search import price_certificates
from orsched.models.bounds.makespan_certificates import volume_certificates
from orsched.simulator import simulate_policy
from orsched.solving.method_choice import choose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.schedule import Schedule

ALLOWS = ("chunks", "mixed", "restarts")
H100, RTX4090 = "h100-llama3-8b-sheet", "rtx4090-llama3-8b-sheet"


def fleet(
    requests: Requests, machine: str, workers: int, clients: int, blocks: int = 0,
    rule: str = "decode", cached: bool = False,
) -> Instance:  # fmt: skip
    """Return requests on equal workers with paged blocks of 16 tokens, or memory to spare."""
    cache = PrefixCache("lru") if cached else None
    memory = BlockMemory(blocks, 16, "paged", cache) if blocks else None
    cost = orsched.machine(machine).cost
    each = tuple(Worker(clients, cost, memory=memory, name=f"w{k}") for k in range(workers))
    return Instance(requests, each, first_token=rule)


def cases(seeds: int) -> Iterator[tuple[str, Instance]]:
    """Yield each case with its name."""
    folder = Path(os.environ.get(VARIABLE, "")).resolve().parent / "cases"
    if os.environ.get(VARIABLE) and (folder / "m4090.csv").is_file():
        m4090 = read_requests_csv(folder / "m4090.csv")
        for rule in ("decode", "prefill"):
            yield f"m4090, {rule}", fleet(m4090, RTX4090, 1, 256, 2_587, rule)
        p3 = read_requests_csv(folder / "p3.csv")
        yield "p3, prefix cache", fleet(p3, H100, 1, 4, 150, "prefill", True)
    short = Requests([200] * 60, [400] * 60)
    for cached in (False, True):
        name = f"60 x (200 + 400), {'' if cached else 'no '}prefix cache"
        yield name, fleet(short, H100, 1, 64, 800, "prefill", cached)
    yield "r1024, 4 x 64", fleet(rollout_requests(64, 16, 16_384, 1), H100, 4, 64)
    yield "r8192, 16 x 256", fleet(rollout_requests(512, 16, 32_768, 2), H100, 16, 256, 28_000)
    yield "r10000, 16 x 256", fleet(rollout_requests(625, 16, 32_768, 3), H100, 16, 256, 28_000)
    main = orsched.load("gsm8k-llama65b")
    for workers in (4, 8):
        clients = main.worker.clients // workers
        cost = main.worker.cost
        each = tuple(Worker(clients, cost, name=f"w{k}") for k in range(workers))
        yield f"gsm8k-llama65b, {workers} x {clients}", main.replace(workers=each)
    for seed in range(100, 100 + seeds):
        like = rollout_requests(64, 16, 16_384, seed)
        yield f"like r1024, seed {seed}", fleet(like, H100, 4, 64)
        yield f"like r1024 on RTX 4090, seed {seed}", fleet(like, RTX4090, 4, 64)
        many = rollout_requests(512, 16, 32_768, seed)
        yield f"like r8192, seed {seed}", fleet(many, H100, 16, 256, 28_000)


def row_of(name: str, instance: Instance) -> dict[str, object]:
    """Return the bounds of a case in seconds, and the CPU seconds of the search and the check."""
    context, began = Context.allowing(instance, ALLOWS), time.process_time()
    volume = max(found["value_ns"] for found in volume_certificates(context))
    best = None
    if len(instance.workers) > 1:
        *_, best = None, *price_certificates(context, 0, volume, lambda: False)
    searched, checked = time.process_time() - began, 0.0
    if best is not None:
        began = time.process_time()
        document = {"name": best["bound"], "certificate": best, "value_ns": best["value_ns"]}
        assert not certificate_violations(instance, document)
        checked = time.process_time() - began
    return {
        "case": name,
        "kv_volume": round(volume / NS_PER_S, 2),
        "fleet_prices": "" if best is None else round(best["value_ns"] / NS_PER_S, 2),
        "search_cpu_s": round(searched, 1),
        "check_cpu_s": round(checked, 2),
    }


def by_vllm(instance: Instance) -> Schedule:
    """Return the schedule of vLLM's own order."""
    chosen = choose("vllm")
    assert isinstance(chosen.method, LiveMethod)
    policy, _ = chosen.method.build(instance, chosen.information, {}, 0)
    return simulate_policy(instance, policy).schedule


def schedule_row(name: str, instance: Instance) -> dict[str, object]:
    """Return the CPU seconds of a simulation, and of the check of what came out."""
    longest_first = np.argsort(-instance.requests.output_tokens, kind="stable")
    instance = instance.replace(requests=instance.requests.take(longest_first.tolist()))
    began = time.process_time()
    schedule = by_vllm(instance)
    simulated = time.process_time()
    assert not orsched.check(instance, schedule)
    checked = time.process_time()
    return {
        "case": name,
        "steps": len(schedule.steps),
        "makespan": round(schedule.makespan_ns / NS_PER_S, 2),
        "simulate_cpu_s": round(simulated - began, 2),
        "check_cpu_s": round(checked - simulated, 2),
        "share": round((checked - simulated) / (simulated - began), 2),
    }


def plan_row(name: str, instance: Instance, seconds: float, seed: int) -> dict[str, object]:
    """Return what ``fleet`` plans in some seconds, beside its bound and vLLM's own order."""
    began = time.process_time()
    found = orsched.solve(instance, "fleet", time_limit=seconds, seed=seed)
    assert found.gap is not None
    return {
        "case": name,
        "vllm": round(by_vllm(instance).makespan_ns / NS_PER_S, 2),
        "fleet": round(found.makespan_ns / NS_PER_S, 2),
        "bound": round((found.schedule.bound or {})["value_ns"] / NS_PER_S, 2),
        "gap": f"{found.gap:.2%}",
        "wall_s": round(found.runtimes["total"]),
        "cpu_s": round(time.process_time() - began),
    }


def main(args: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="cases whose names begin so")
    parser.add_argument("--seeds", type=count, default=0, help="further instances like r1024")
    parser.add_argument("--schedules", action="store_true", help="time simulation and check")
    parser.add_argument("--plans", type=float, help="plan by fleet, in so many seconds each")
    given = parser.parse_args(args)
    row = schedule_row if given.schedules else row_of
    if given.plans is not None:
        row = partial(plan_row, seconds=given.plans, seed=0)
    found = [
        row(name, instance)
        for name, instance in cases(given.seeds)
        if not given.only or name.startswith(tuple(given.only))
    ]
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
