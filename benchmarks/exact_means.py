"""How many requests the exact search for means takes: time and states until the proof.

python -m benchmarks.exact_means [--seeds 3] [--seconds 300] [--sizes 10x3,12x3,15x3]

GSM8K's prompts with drawn answer lengths, all there at 0, and arriving over ten seconds. A row has
how many of the seeds were proven within the limit, the median and the longest CPU time, with the
heuristics that it starts from, the most states that were expanded, and how far the certified bound
and the first schedule, the best of four simple ones, are from the least mean on average.
"""

from __future__ import annotations

import argparse
from time import process_time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.arguments import count
from benchmarks.reproductions.page_tables import markdown
from orsched.instances.synthetic import gsm8k
from orsched.models.best_first_times import solve_best_first_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance

OBJECTIVES = ("jct_mean", "ttft_mean")
SPAN_NS = 10_000_000_000


def case(requests: int, clients: int, seed: int, timed: bool) -> Instance:
    """Return the first requests of a seed, all at 0 or with uniform arrivals."""
    instance = gsm8k(seed=seed, requests=requests, clients=clients)
    if not timed:
        return instance
    arrivals = np.sort(np.random.default_rng(seed).integers(0, SPAN_NS, requests))
    return instance.replace(requests=instance.requests.replace(arrival_ns=arrivals))


def row(size: str, objective: str, seeds: int, seconds: float, timed: bool) -> dict[str, str]:
    """Return a row of the table."""
    requests, clients = (int(part) for part in size.split("x"))
    found, times = [], []
    for seed in range(seeds):
        began = process_time()
        instance = case(requests, clients, seed, timed)
        found.append(solve_best_first_times(instance, objective, seconds))
        times.append(process_time() - began)
    proven = [each for each in found if each.status == "optimal"]
    bounds, starts = list[float](), list[float]()
    for each in proven:
        first, last = each.history[0], each.history[-1]
        least = last.value or 1  # a mean is never 0 here
        bounds.append((first.bound_ns or 0) / least)
        starts.append((first.value or 0) / least)
    return {
        "requests x clients": size,
        "arrivals": "10 s" if timed else "at 0",
        "objective": objective,
        "proven": f"{len(proven)} of {seeds}",
        "median s": f"{np.median(times):.2f}",
        "longest s": f"{max(times):.2f}",
        "states": f"{max(each.expanded for each in found):,}",
        "bound": f"{np.mean(bounds):.4f}" if bounds else "-",
        "start": f"{np.mean(starts):.4f}" if starts else "-",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--sizes", default="10x3,12x3,15x3")
    chosen = parser.parse_args(arguments)
    rows = []
    for size in chosen.sizes.split(","):
        for timed in (False, True):
            for objective in OBJECTIVES:
                rows.append(row(size, objective, chosen.seeds, chosen.seconds, timed))
                print(" ".join(rows[-1].values()), flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
