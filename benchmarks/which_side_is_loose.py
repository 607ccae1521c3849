"""Which side of the gap of the mean JCT is loose: policies or bounds, on cases that are solved.

python -m benchmarks.which_side_is_loose [--cases 5] [--requests 8] [--workers 1] [--only NAME]
python -m benchmarks.which_side_is_loose --whole

Needs ``ORSCHED_DATA``. Cases are consecutive requests of the four workloads, on some of the workers
at the share of the rate that these have. A round yields 32 tokens here and takes as long as 32 of
theirs, so that all schedules of whole prefills, rounds and waits can be searched: the least sum of
JCTs is found by the exact search for means (``solved_cases``). Bounds and policies are of the same
plain schedules. ``--whole``: instead, the whole workloads of a seed on their four workers: the
bounds that allow chunks and mixed steps, and `gittins` with lengths unknown and known over each.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import orsched
from benchmarks.arguments import count
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.page_tables import markdown
from benchmarks.solved_cases import least_jct_sum
from orsched.certificates.context import Context
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.schedule_classes import allowances_of
from orsched.data.workers import Worker
from orsched.models.bounds.latency_bounds import latency_certificates

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENS = 32
"""Tokens that a round of a small case stands for."""

METHODS = ("fcfs", "hybrid", "latency_search")
"""The second plans for one worker only."""

SECONDS = 60.0
"""For the optimum of one worker; no case takes as long."""

OPTIONS: dict[str, dict[str, Any]] = {
    "latency_search": {
        "objective": "jct_mean",
        "iterations": 10,
        "parameters": {"mixed": False, "chunks": False},
    }
}
"""Plain schedules for the search, too; an iteration is a number of moves."""


class Row(NamedTuple):
    """Means over cases: bounds and policies over the optimum, all as ratios to it."""

    name: str
    load: float
    cases: int
    alone: float
    before: float
    bound: float
    policies: list[float]


def small_case(name: str, load: float, seed: int, requests: int, workers: int = 1) -> Instance:
    """Return a few consecutive requests on some workers, in rounds of ``TOKENS`` tokens."""
    whole = setting.workload(name, load, seed % 10)
    start = np.random.default_rng(seed).integers(0, len(whole) - requests)
    some = whole.requests.take(np.arange(start, start + requests))
    share = (some.arrival_ns - some.arrival_ns.min()) * len(whole.workers) // workers
    outputs = -(-some.output_tokens // TOKENS) + 1
    made = orsched.Requests(some.prompt_tokens, outputs, arrival_ns=share)
    cost = setting.ALL[name].cost()
    assert isinstance(cost, AffineCost)
    one = AffineCost(
        prefill_fixed_ns=cost.prefill_fixed_ns,
        prefill_token_ns=cost.prefill_token_ns,
        round_fixed_ns=cost.round_fixed_ns * TOKENS,
        round_client_ns=cost.round_client_ns * TOKENS,
    )
    fleet = [Worker(requests, one, name=f"worker-{place}") for place in range(workers)]
    return Instance(made, fleet, "prefill")


def bounds_of(instance: Instance, allows: Sequence[str]) -> dict[str, int]:
    """Return what each kind of bound proves of the sum of JCTs."""
    context, found = Context.allowing(instance, allows), {}
    for each in latency_certificates(context, "mean_jct", lambda: False):
        found[each["bound"]] = int(each["sum_ns"])
    return found


def policy_sum(instance: Instance, method: str) -> float:
    """Return the sum of JCTs of a method's schedule."""
    schedule = orsched.solve(instance, method, **OPTIONS.get(method, {})).schedule
    if allowances_of(instance, schedule):
        raise SystemExit(f"{method} does more than plain schedules do")
    return float(schedule.results["jct_ns"]["mean"]) * len(instance)


def solved(name: str, load: float, seeds: Sequence[int], requests: int, workers: int) -> Row | None:
    """Return the means over the cases of a workload at a load that are solved."""
    rows = []
    for seed in seeds:
        instance = small_case(name, load, seed, requests, workers)
        least = least_jct_sum(instance, SECONDS)
        if least is None:
            continue
        bounds = bounds_of(instance, ())
        old = max(value for kind, value in bounds.items() if kind != "shared_rounds")
        policies = [policy_sum(instance, method) / least for method in methods(workers)]
        alone = bounds.get("alone", 0)
        rows.append([alone / least, old / least, max(bounds.values()) / least, *policies])
    if not rows:
        return None
    means = np.mean(rows, axis=0).tolist()
    return Row(name, load, len(rows), *means[:3], means[3:])


def methods(workers: int) -> tuple[str, ...]:
    """Return the methods that take so many workers."""
    return METHODS if workers == 1 else (METHODS[0], *METHODS[2:])


def whole(name: str, load: float, seed: int) -> dict[str, str]:
    """Return the bounds on a whole workload, and policies over them."""
    instance = setting.workload(name, load, seed)
    allows, means = {"chunks", "mixed"}, []
    for method in ("gittins", "gittins@clairvoyant"):
        schedule = orsched.solve(instance, method).schedule
        if allowances_of(instance, schedule) > allows:
            raise SystemExit(f"{method} restarts requests, and the bound does not allow that")
        means.append(schedule.results["jct_ns"]["mean"] / 1e9)
    bounds = bounds_of(instance, sorted(allows))
    old = max(value for kind, value in bounds.items() if kind != "shared_rounds")
    row = {"workload": name, "load": str(load)}
    for title, total in (("before", old), ("bound", max(bounds.values()))):
        mean = total / len(instance) / 1e9
        row[f"{title} s"] = f"{mean:.2f}"
        row[f"gittins over {title}"] = f"{means[0] / mean:.2f}"
        row[f"with lengths over {title}"] = f"{means[1] / mean:.2f}"
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", type=count, default=5)
    parser.add_argument("--requests", type=count, default=8)
    parser.add_argument("--workers", type=count, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=setting.WORKLOADS)
    parser.add_argument("--whole", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.whole:
        found = []
        for load in setting.LOADS:
            for name in setting.WORKLOADS:
                found.append(whole(name, load, chosen.seed))
                print(" ".join(found[-1].values()), flush=True)
        print(markdown(found))
        return
    seeds = range(chosen.seed, chosen.seed + chosen.cases)
    head = [
        "workload",
        "load",
        "solved",
        "alone",
        "bound before",
        "bound",
        *methods(chosen.workers),
    ]
    rows = []
    for name in chosen.only or setting.WORKLOADS:
        for load in setting.LOADS:
            row = solved(name, load, seeds, chosen.requests, chosen.workers)
            if row is not None:
                ratios = (row.alone, row.before, row.bound, *row.policies)
                shown = [name, str(load), f"{row.cases} of {chosen.cases}"]
                shown += [f"{each:.3f}" for each in ratios]
                rows.append(dict(zip(head, shown, strict=True)))
                print(" ".join(shown), flush=True)
    if rows:
        print(markdown(rows))


if __name__ == "__main__":
    main()
