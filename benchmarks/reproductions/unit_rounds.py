"""The unit-round model: policies of the theory papers on the published generator.

python -m benchmarks.reproductions.unit_rounds [--seeds N] [--small N]

First table: the published sizes, requests all at 0 and with arrivals: each policy's mean latency
over that of the best schedule without evictions among the policies. Second: small draws of the same
generator whose hindsight optimum is proven, and each policy's latency over it.
"""

from __future__ import annotations

import argparse
from statistics import fmean
from typing import TYPE_CHECKING, Any

import orsched
from benchmarks.reproductions.page_tables import markdown
from orsched.instances.streams import stream
from orsched.instances.unit_rounds import unit_rounds
from orsched.models.unit_rounds import hindsight_optimum, total_latency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance

POLICIES = (
    "mc_sf",
    "svf",
    "a_max@clairvoyant",
    "mc_sf@predicted",
    "a_min@clairvoyant",
    "vllm+mode=prefill_first",
    "sjf",
    "gittins@clairvoyant",
)
WRONG_BY = 0.5
"""Predictions are from L / (1 + WRONG_BY) to L * (1 + WRONG_BY), the interval of ``a_max``."""
SMALL = {"requests": 8, "memory_tokens": 15}


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


def published(seeds: int) -> list[dict[str, Any]]:
    """Return the rows of the first table."""
    columns: dict[str, dict[str, Any]] = {name: {"policy": f"`{name}`"} for name in POLICIES}
    for online, label in ((False, "all at 0"), (True, "arrivals")):
        ratios: dict[str, list[float]] = {name: [] for name in POLICIES}
        means: dict[str, list[float]] = {name: [] for name in POLICIES}
        evicts: dict[str, bool] = dict.fromkeys(POLICIES, False)
        for seed in range(seeds):
            instance = with_predictions(unit_rounds(seed, online), seed)
            found = latencies(instance)
            best = min(total for total, evictions in found.values() if not evictions)
            for name, (total, evictions) in found.items():
                ratios[name].append(total / best)
                means[name].append(total / max(len(instance), 1))
                evicts[name] |= bool(evictions)
        for name, row in columns.items():
            row["evicts"] = "yes" if evicts[name] or row.get("evicts") == "yes" else "no"
            row[f"mean JCT, {label}"] = f"{fmean(means[name]):.1f}"
            row[f"over the best, {label}"] = f"{fmean(ratios[name]):.3f}"
            row[f"most, {label}"] = f"{max(ratios[name]):.3f}"
    return list(columns.values())


def small(seeds: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of the second table, and how many optima are proven."""
    ratios: dict[str, list[float]] = {name: [] for name in POLICIES}
    proven = 0
    for seed in range(seeds):
        instance = with_predictions(unit_rounds(seed, **SMALL), seed)
        optimum = hindsight_optimum(instance, time_limit=20.0)
        if not optimum.optimal:
            continue
        proven += 1
        for name, (total, _) in latencies(instance).items():
            ratios[name].append(total / optimum.total)
    rows = [
        {
            "policy": f"`{name}`",
            "over the optimum": f"{fmean(values):.3f}",
            "least": f"{min(values):.3f}",
            "most": f"{max(values):.3f}",
        }
        for name, values in ratios.items()
    ]
    return rows, proven


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50, help="instances of each kind")
    parser.add_argument("--small", type=int, default=30, help="small instances")
    arguments = parser.parse_args(argv)
    if arguments.seeds:
        print(markdown(published(arguments.seeds)))
    if arguments.small:
        rows, proven = small(arguments.small)
        print(f"\n{proven} of {arguments.small} optima are proven\n")
        print(markdown(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
