"""The unit-round model: policies of the theory papers on the published generator.

python -m benchmarks.reproductions.unit_rounds [--seeds N] [--small N] [--readings N]
    [--adversarial M ...] [--iterations N] [--jobs N]

Tables: the published sizes, requests all at 0 and with arrivals: each policy's total latency over
that of the best schedule without evictions that is known, from the policies or from a search; small
draws of the same generator whose hindsight optimum is proven, and each policy's latency, and the
search's, over it; readings of the published setting in which the ratio of MC-SF might be smaller;
and the adversarial families.
"""

from __future__ import annotations

import argparse
from multiprocessing import get_context
from statistics import fmean
from typing import TYPE_CHECKING, Any

import orsched
from benchmarks.arguments import count
from benchmarks.reproductions.page_tables import markdown
from orsched.costs.unit_rounds import ROUND_NS
from orsched.instances.streams import stream
from orsched.instances.unit_adversarial import FAMILIES, unit_adversarial
from orsched.instances.unit_rounds import unit_instance, unit_rounds
from orsched.models.unit_rounds import hindsight_optimum, total_latency
from orsched.models.unit_rounds_search import search
from orsched.request_times import request_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance

POLICIES = (
    "mc_sf",
    "svf",
    "sorted_f",
    "gba",
    "wait",
    "a_max@clairvoyant",
    "svf_1bit",
    "mc_sf@predicted",
    "a_min@clairvoyant",
    "gsa",
    "nested_wait",
    "vllm+mode=prefill_first",
    "sjf",
    "gittins@clairvoyant",
    "gittins@none",
)
FCFS = "wait+threshold=1+first=1000000"
"""One class of all: the order of arrival with the admission of MC-SF."""
WRONG_BY = 0.5
"""Predictions are from L / (1 + WRONG_BY) to L * (1 + WRONG_BY), the interval of ``a_max``."""
SMALL = {"requests": 8, "memory_tokens": 15}
ITERATIONS = 20_000


def with_predictions(instance: Instance, seed: int) -> Instance:
    """Return the instance with lengths that are wrong by up to half, uniform in the ratio."""
    requests = instance.requests
    ratios = stream("unit-rounds/predictions", seed).uniform(
        1 / (1 + WRONG_BY), 1 + WRONG_BY, len(requests)
    )
    guesses = (requests.output_tokens * ratios).round().astype(int).clip(1)
    return instance.replace(requests=requests.replace(predicted_tokens=guesses))


def latencies(instance: Instance) -> dict[str, tuple[int, int]]:
    """Return total latency in rounds, and evictions, by policy."""
    found = {}
    for policy in POLICIES:
        schedule = orsched.simulate(instance, policy).schedule
        evictions = int(schedule.work.stay.max(initial=0))
        found[policy] = (total_latency(instance, schedule), evictions)
    return found


def starts_of(instance: Instance, policy: str) -> list[int]:
    """Return the round in which each request starts under a policy that does not evict."""
    schedule = orsched.simulate(instance, policy).schedule
    starts: list[int] = (request_times(instance, schedule)["prefill_start_ns"] // ROUND_NS).tolist()
    return starts


def best_known(instance: Instance, iterations: int) -> int:
    """Return the least total latency of the two searches from ``mc_sf`` and from ``svf``."""
    requests = instance.requests
    run = int(requests.output_tokens.sum()) - int(requests.arrival_ns.sum()) // ROUND_NS
    found = [
        sum(search(instance, starts_of(instance, policy), iterations, seed))
        for seed, policy in enumerate(("mc_sf", "svf"))
    ]
    return min(found) + run


def one_published(work: tuple[int, bool, int]) -> tuple[dict[str, tuple[int, int]], int, int]:
    """Return figures by policy, the best that is known without evictions, and the requests."""
    seed, online, iterations = work
    instance = with_predictions(unit_rounds(seed, online), seed)
    found = latencies(instance)
    best = min(total for total, evictions in found.values() if not evictions)
    return found, min(best, best_known(instance, iterations)), len(instance)


def published(
    seeds: int, iterations: int = ITERATIONS, jobs: int = 1
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of the first table, and lines on the ratio of ``mc_sf``."""
    columns: dict[str, dict[str, Any]] = {name: {"policy": f"`{name}`"} for name in POLICIES}
    lines = []
    for online, label in ((False, "all at 0"), (True, "arrivals")):
        work = [(seed, online, iterations) for seed in range(seeds)]
        if jobs == 1:
            runs = [one_published(each) for each in work]
        else:
            with get_context("spawn").Pool(jobs) as pool:
                runs = pool.map(one_published, work)
        for name, row in columns.items():
            totals = [found[name] for found, _, _ in runs]
            ratios = [t[0] / best for t, (_, best, _) in zip(totals, runs, strict=True)]
            means = [t[0] / max(n, 1) for t, (_, _, n) in zip(totals, runs, strict=True)]
            evicts = any(evictions for _, evictions in totals) or row.get("evicts") == "yes"
            row["evicts"] = "yes" if evicts else "no"
            row[f"mean JCT, {label}"] = f"{fmean(means):.1f}"
            row[f"over the best, {label}"] = f"{fmean(ratios):.3f}"
            row[f"most, {label}"] = f"{max(ratios):.3f}"
            if name == "mc_sf":
                close = sum(ratio <= 1.005 for ratio in ratios)
                lines.append(
                    f"mc_sf, {label}: at least {fmean(ratios):.3f} times the optimum in the mean "
                    f"of {seeds}, between {min(ratios):.3f} and {max(ratios):.3f}; "
                    f"{close} at most 1.005"
                )
    return list(columns.values()), lines


def small(seeds: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of the second table, and how many optima are proven."""
    ratios: dict[str, list[float]] = {name: [] for name in (*POLICIES, "the search")}
    proven = 0
    for seed in range(seeds):
        instance = with_predictions(unit_rounds(seed, **SMALL), seed)
        optimum = hindsight_optimum(instance, time_limit=20.0)
        if not optimum.optimal:
            continue
        proven += 1
        for name, (total, _) in latencies(instance).items():
            ratios[name].append(total / optimum.total)
        ratios["the search"].append(best_known(instance, 2000) / optimum.total)
    rows = [
        {
            "policy": name if name == "the search" else f"`{name}`",
            "over the optimum": f"{fmean(values):.3f}",
            "least": f"{min(values):.3f}",
            "most": f"{max(values):.3f}",
        }
        for name, values in ratios.items()
        if values
    ]
    return rows, proven


def readings(seeds: int, iterations: int = ITERATIONS) -> list[dict[str, Any]]:
    """Return the ratio of ``mc_sf`` to the best known, with other draws of the lengths."""
    rows = []
    for label, share, more in (
        ("as published", 1, 0),
        ("a token less in each round", 1, 1),
        ("answers half as long", 2, 0),
        ("answers a quarter as long", 4, 0),
        ("answers an eighth as long", 8, 0),
    ):
        row: dict[str, Any] = {"reading": label}
        for online, name in ((False, "all at 0"), (True, "arrivals")):
            ratios = []
            for seed in range(seeds):
                drawn = unit_rounds(seed, online)
                requests, memory = drawn.requests, drawn.worker.memory
                assert memory is not None
                prompts = (requests.prompt_tokens - more).clip(1)
                outputs = -(-requests.output_tokens // share)
                arrivals = requests.arrival_ns // ROUND_NS
                instance = unit_instance(
                    prompts.tolist(), outputs.tolist(), arrivals.tolist(), memory.blocks
                )
                if len(instance):
                    own = total_latency(instance, orsched.simulate(instance, "mc_sf").schedule)
                    ratios.append(own / min(own, best_known(instance, iterations)))
            row[name] = f"{fmean(ratios):.3f}"
        rows.append(row)
    return rows


def adversarial(memories: Sequence[int], iterations: int = ITERATIONS) -> list[dict[str, Any]]:
    """Return each policy's total latency over the best known, by family and memory."""
    rows: dict[str, dict[str, Any]] = {}
    for family in FAMILIES:
        for memory in memories:
            instance = unit_adversarial(family, memory)
            totals = {}
            for policy in (*POLICIES, FCFS):
                if "@predicted" not in policy:
                    schedule = orsched.simulate(instance, policy).schedule
                    evictions = int(schedule.work.stay.max(initial=0))
                    totals[policy] = (total_latency(instance, schedule), evictions)
            best = min(total for total, evictions in totals.values() if not evictions)
            best = min(best, best_known(instance, iterations))
            for policy, (total, _) in totals.items():
                row = rows.setdefault(policy, {"policy": f"`{policy}`"})
                row[f"{family}, M = {memory}"] = f"{total / best:.2f}"
    return list(rows.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=count, default=20, help="instances of each kind")
    parser.add_argument("--small", type=int, default=15, help="small instances")
    parser.add_argument("--readings", type=int, default=10, help="instances of each reading")
    parser.add_argument("--adversarial", type=int, nargs="*", default=[16, 64], metavar="M")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="moves of a search")
    parser.add_argument("--jobs", type=int, default=1, help="processes of the first table")
    arguments = parser.parse_args(argv)
    if arguments.seeds:
        table, lines = published(arguments.seeds, arguments.iterations, arguments.jobs)
        print(markdown(table))
        print("\n" + "\n".join(lines))
    if arguments.small:
        rows, proven = small(arguments.small)
        print(f"\n{proven} of {arguments.small} optima are proven\n")
        print(markdown(rows))
    if arguments.readings:
        print("\n" + markdown(readings(arguments.readings, arguments.iterations)))
    if arguments.adversarial:
        print("\n" + markdown(adversarial(arguments.adversarial, arguments.iterations // 10)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
