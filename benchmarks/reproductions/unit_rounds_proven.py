"""Unit rounds: optima that are proven, how far bounds are from what is known, and cold solvers.

python -m benchmarks.reproductions.unit_rounds_proven [--draws N] [--sizes 10x15 ...]
    [--time-limit S] [--published N] [--cold N] [--cold-limit S]

Draws of the published generator with fewer requests and less memory: how many optima are proven
within the time limit, and policies over these; the published sizes: what prices of rounds prove;
and what solvers have found there that start from nothing, after the time of ``--cold-limit``.
"""

from __future__ import annotations

import argparse
from statistics import fmean, median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import orsched
from benchmarks.arguments import count, share
from benchmarks.reproductions.page_tables import markdown
from benchmarks.reproductions.unit_rounds import best_known, starts_of
from orsched.instances.unit_rounds import unit_rounds
from orsched.models.mip.build import build
from orsched.models.unit_rounds import hindsight_optimum, total_latency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance

SIZES = ("10x15", "10x30", "12x15", "12x30", "15x15", "15x30", "20x15", "20x20", "20x30")
SOLVERS = ("cpsat", "scip", "highs")


def latency_of(instance: Instance, policy: str) -> int:
    """Return the total latency of a policy, in rounds."""
    return total_latency(instance, orsched.simulate(instance, policy).schedule)


def proven(size: str, draws: int, time_limit: float) -> dict[str, Any]:
    """Return a row: what is proven of some draws with so many requests and so much memory."""
    requests, memory = map(int, size.split("x"))
    seconds, gaps, ratios = [], [], []
    for seed in range(draws):
        instance = unit_rounds(seed, requests=requests, memory_tokens=memory)
        begin = perf_counter()
        found = hindsight_optimum(instance, time_limit)
        seconds.append(perf_counter() - begin)
        if found.optimal:
            policies = [latency_of(instance, name) / found.total for name in ("mc_sf", "svf")]
            ratios.append([*policies, best_known(instance, 20_000) / found.total])
        else:
            gaps.append(1 - found.bound / found.total)
    columns = list(zip(*ratios, strict=True)) or [()] * 3
    return {
        "requests": requests,
        "memory": memory,
        "proven": f"{len(ratios)} of {draws}",
        "median s": f"{median(seconds):.1f}",
        "greatest gap": f"{max(gaps):.1%}" if gaps else "0",
        "`mc_sf` over the optimum": _mean(columns[0]),
        "least": f"{min(columns[0]):.3f}" if ratios else "",
        "most": f"{max(columns[0]):.3f}" if ratios else "",
        "at most 1.005": f"{sum(each <= 1.005 for each in columns[0])}",
        "`svf`": _mean(columns[1]),
        "annealing": _mean(columns[2]),
    }


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}" if values else ""


def published(seed: int, time_limit: float) -> dict[str, Any]:
    """Return a row: what is proven of a draw of the published size."""
    instance = unit_rounds(seed)
    begin = perf_counter()
    found = hindsight_optimum(instance, time_limit, iterations=20_000)
    own = latency_of(instance, "mc_sf")
    return {
        "seed": seed,
        "requests": len(instance),
        "best known": found.total,
        "bound": found.bound,
        "gap": f"{1 - found.bound / found.total:.1%}",
        "`mc_sf`, at least": f"{own / found.total:.3f}",
        "at most": f"{own / found.bound:.3f}",
        "s": f"{perf_counter() - begin:.0f}",
    }


def cold(seed: int, time_limit: float) -> dict[str, Any]:
    """Return a row: what ``mc_sf`` is over schedules that solvers found from nothing."""
    instance = unit_rounds(seed)
    own = latency_of(instance, "mc_sf")
    known = best_known(instance, 20_000)
    last = max(starts_of(instance, "mc_sf")) + 1
    row: dict[str, Any] = {"seed": seed, "over the best known": f"{own / min(own, known):.3f}"}
    for solver in SOLVERS:
        mip = build(instance, "unit-rounds", rounds=last)
        for i in range(len(instance)):  # all start in the rounds in which those of mc_sf do
            mip.variable(f"s_{i}_later").upper_bound = 0
        found = mip.solve(solver, time_limit=time_limit)
        total = "none"
        if found.schedule is not None:
            total = f"{own / total_latency(instance, found.schedule):.3f}"
        row[f"over that of {solver}"] = total
    return row


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=count, default=5, help="of each size")
    parser.add_argument("--sizes", nargs="*", default=SIZES, metavar="REQUESTSxMEMORY")
    parser.add_argument("--time-limit", type=share, default=60.0, help="seconds of each draw")
    parser.add_argument("--published", type=int, default=3, help="draws of the published size")
    parser.add_argument("--published-limit", type=share, default=300.0, help="seconds of each")
    parser.add_argument("--cold", type=int, default=2, help="draws that solvers begin from nothing")
    parser.add_argument("--cold-limit", type=share, default=180.0, help="seconds of each solver")
    arguments = parser.parse_args(argv)
    if arguments.sizes:
        sizes = arguments.sizes
        print(markdown([proven(each, arguments.draws, arguments.time_limit) for each in sizes]))
    if arguments.published:
        seeds = range(arguments.published)
        print("\n" + markdown([published(each, arguments.published_limit) for each in seeds]))
    if arguments.cold:
        seeds = range(arguments.cold)
        print("\n" + markdown([cold(each, arguments.cold_limit) for each in seeds]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
