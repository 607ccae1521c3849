"""Bounds of many instances as lines of JSON, and two such files held against each other.

    PYTHONPATH=CHECKOUT python benchmarks/same_bounds.py write bounds.jsonl [SEEDS]    # of each
    python benchmarks/same_bounds.py compare before.jsonl after.jsonl

Shipped instances and generated ones of every cost model, with arrivals, memory, caps, several
workers, all objectives and allowances; where ``ORSCHED_DATA`` names the folder of the public
traces, the four workloads as well: at every load each of the windows that are compared there, and
each data set whole. Besides ``orsched`` itself only the setting of the four workloads is used,
where a checkout has it, so that the script runs on any version. Exit code 1 if a bound became
smaller.
"""

from __future__ import annotations

import json
import os
import random
import sys
from importlib import import_module
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orsched
from orsched.checker.certificates import bound_violations
from orsched.common.errors import InfeasibleError
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost
from orsched.costs.bilinear import COEFFICIENTS
from orsched.data.memory import BlockMemory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.costs import CostModel
    from orsched.data.instance import Instance

SEEDS = 240
SHIPPED = ("two-by-two", "all-fit", "pang-100x20", "gsm8k-llama65b")
ALLOWANCES = ("chunks", "mixed", "restarts")
WINDOWS = 10
"""Seeds of each of the four workloads: of a trace as many windows that do not overlap."""
SETTINGS = ("benchmarks.reproductions", "tests.reproductions")
"""Where a checkout has the setting of the four workloads: now, and before."""


def main(args: list[str]) -> int:
    """Write bounds, or compare two files of them."""
    if args[0] == "write":
        seeds = int(args[2]) if len(args) > 2 else SEEDS
        with Path(args[1]).open("w") as file:
            for line in lines(seeds):
                file.write(json.dumps(line) + "\n")
        return 0
    before, after = ({tuple(row[:3]): row[3:] for row in read(path)} for path in args[1:])
    worse = [key for key, row in before.items() if key not in after or after[key][0] < row[0]]
    better = [key for key, row in before.items() if key in after and after[key][0] > row[0]]
    unproven = [key for key, row in after.items() if row[2]]
    equal = [key for key, row in before.items() if key in after and after[key][0] == row[0]]
    sys.stdout.write(f"equal: {len(equal)} of {len(before)}\n")
    for what, keys in (("worse", worse), ("better", better), ("not proven", unproven)):
        sys.stdout.write(f"{what}: {len(keys)} of {len(before)}\n")
        for key in keys[:20]:
            sys.stdout.write(f"  {key} {before.get(key)} {after.get(key)}\n")
    return 1 if worse or unproven else 0


def read(path: str) -> list[list[Any]]:
    """Return the rows of a file."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def lines(seeds: int) -> Iterator[list[Any]]:
    """Yield instance, objective, allowances, value, name, and faults of the certificate."""
    shipped = ((name, orsched.load(name)) for name in SHIPPED)
    made = ((f"seed {seed}", generated(seed)) for seed in range(seeds))
    subsets = list(chain(*(combinations(ALLOWANCES, k) for k in range(4))))
    for name, instance in chain(shipped, made, traces() if "ORSCHED_DATA" in os.environ else ()):
        for objective in ("makespan", "mean_jct", "mean_ttft"):
            for allows in subsets if len(instance) < 50 else [(), ALLOWANCES]:
                try:
                    found = orsched.bound(instance, objective, allows=allows)
                except InfeasibleError:
                    continue
                wrong = bound_violations(instance, found.to_dict(), objective)
                yield [name, objective, ",".join(allows), found.value_ns, found.name, wrong]


def traces() -> Iterator[tuple[str, Instance]]:
    """Yield the instances of the four workloads: below saturation, all at 0, and whole."""
    setting = _setting()
    for name, kind in setting.WORKLOADS.items():
        for load in (*setting.LOADS, None):
            for seed in range(WINDOWS):
                yield f"{name}, load {load}, seed {seed}", setting.workload(name, load, seed)
        workers = (kind.worker(),) * setting.WORKERS
        whole = setting.requests_of(name)
        limit = {"output_limit_tokens": setting.LIMIT}
        yield f"{name}, whole", orsched.Instance(whole, workers, "prefill", **limit)


def _setting() -> Any:
    for package in SETTINGS:
        try:
            return import_module(f"{package}.four_workloads_setting")
        except ModuleNotFoundError as error:
            if not package.startswith(str(error.name)):
                raise
    raise SystemExit("this version has no four workloads: run without ORSCHED_DATA")


def generated(seed: int) -> Instance:
    """Return a random instance."""
    rng = random.Random(seed)
    n, many = rng.randint(1, 14), rng.choice((1, 1, 1, 2, 3))
    column = lambda low, high: [rng.randint(low, high) for _ in range(n)]  # noqa: E731
    first = worker(rng, "w0")
    others = [worker(rng, f"w{k}") for k in range(1, many)]
    if rng.random() < 0.5:
        others = [orsched.Worker(first.clients, first.cost, first.prefill_cap_tokens, first.memory,
                                 f"w{k}") for k in range(1, many)]  # fmt: skip
    requests = orsched.Requests(
        column(1, rng.choice((9, 40))),
        column(1, rng.choice((4, 30))),
        arrival_ns=column(0, rng.choice((0, 0, 300, 5000))),
    )
    return orsched.Instance(
        requests, (first, *others), first_token=rng.choice(("decode", "prefill"))
    )


def worker(rng: random.Random, name: str) -> orsched.Worker:
    """Return a random worker, large enough for every request."""
    memory = BlockMemory(rng.randint(80, 200), 1, "whole") if rng.random() < 0.3 else None
    cap = rng.choice((None, None, 41, 60))
    return orsched.Worker(rng.randint(1, 5), cost(rng), cap, memory, name)


def cost(rng: random.Random) -> CostModel:
    """Return a random cost model of a random kind."""
    part = lambda most: rng.choice((0, 1, rng.randint(0, most)))  # noqa: E731
    kind = rng.randrange(5)
    if kind < 2:
        return AffineCost(
            prefill_fixed_ns=part(60),
            prefill_token_ns=part(3),
            round_fixed_ns=part(40),
            round_client_ns=part(4),
        )
    if kind == 2:
        caps = sorted(rng.sample(range(5, 90), 3))
        times = sorted(rng.choices(range(1, 90), k=4))
        return LevelsCost(
            levels=tuple(zip((*caps, 99), times, strict=True)), round_fixed_ns=part(30)
        )
    if kind == 3:
        return BilinearCost(**{name: part(10**7) for name in COEFFICIENTS})
    return PoolingCost(
        alpha_fs=part(10**5),
        beta_fs=part(10**6),
        c_fs=part(10**7),
        gamma_fs=part(10**6),
        delta_fs=part(10**6),
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
