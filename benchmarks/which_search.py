"""Which search proves an optimum of what size, in how many CPU seconds.

python -m benchmarks.which_search [--sizes 6x2,8x3,10x3,15x3] [--first 700] [--seconds 60]
[--searches full-mip,windows,compact,best-first]

Three instances a size, with and without arrivals: the first requests of ``gsm8k`` by the first
seeds whose start leaves something to prove; arrivals are Poisson, at the rate at which the
schedule without them serves. Each search begins with the same schedule and bound, on one thread,
and ends at the limit in wall time. CPU time is that of building and solving the model, and all of
the call where there is none. A search that proves nothing of a size is not run on larger ones.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import orsched
from benchmarks.arguments import count, share
from benchmarks.speed.section import table
from orsched.instances.arrivals import with_arrivals
from orsched.instances.synthetic import gsm8k
from orsched.models.best_first import solve_best_first
from orsched.models.best_first.solve import refusal
from orsched.models.full_mip import solve_full_mip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orsched.data.instance import Instance

SIZES = ("6x2", "8x3", "10x3", "15x3")
SEEDS = 3


def _mip(backend: str, formulation: str) -> Callable[[Instance, float], Any]:
    return lambda instance, limit: solve_full_mip(
        instance, backend, time_limit=limit, formulation=formulation
    )


SEARCHES: dict[str, Callable[[Instance, float], Any]] = {
    "full-mip": _mip("cpsat", "compact"),
    "full-mip-scip": _mip("scip", "compact"),
    "windows": _mip("cpsat", "windows"),
    "compact": _mip("cpsat", "intervals"),
    "best-first": lambda instance, limit: solve_best_first(instance, time_limit=limit),
}


class Case(NamedTuple):
    """Instances of a size."""

    size: str
    arrivals: bool
    instances: list[Instance]


def cases(size: str, first: int) -> Iterator[Case]:
    """Yield the instances of a size, without and with arrivals."""
    requests, clients = map(int, size.split("x"))
    for arrivals in (False, True):
        found: list[Instance] = []
        for seed in itertools.count(first):
            instance = gsm8k(requests=requests, clients=clients, seed=seed)
            result = orsched.solve(instance, "hybrid", iterations=18)
            if arrivals:
                rate = requests / result.makespan
                instance = with_arrivals(instance, f"poisson:rate={rate}", seed)
                result = orsched.solve(instance, "hybrid", iterations=18)
            if result.schedule.makespan_ns > result.bound_ns:
                found.append(instance)
            if len(found) == SEEDS:
                break
        yield Case(size, arrivals, found)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has waited for."""
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in each)


def row(case: Case, name: str, limit: float) -> dict[str, Any]:
    """Return what a search proves of some instances, in what CPU time."""
    used, proven, gaps = [], 0, []
    for instance in case.instances:
        begin = cpu_seconds()
        result = SEARCHES[name](instance, limit)
        own = getattr(result, "solver", {}).get("cpu_s")  # without the start and the process's own
        used.append(cpu_seconds() - begin if own is None else own)
        proven += result.status == "optimal"
        gaps.append(100 * (result.gap or 0.0))
    return {
        "size": case.size,
        "arrivals": "yes" if case.arrivals else "no",
        "search": name,
        "proven": f"{proven} of {len(used)}",
        "cpu_median_s": round(median(used), 2),
        "cpu_most_s": round(max(used), 2),
        "gap_most_percent": round(max(gaps), 2),
    }


def rows(sizes: Sequence[str], names: Sequence[str], first: int, limit: float) -> Iterator[Any]:
    """Yield a row for each size, kind of arrivals and search."""
    out: set[tuple[str, bool]] = set()
    for size in sizes:
        for case in cases(size, first):
            for name in names:
                left = (name, case.arrivals) in out
                if left or (name == "best-first" and refusal(case.instances[0])):
                    continue
                found = row(case, name, limit)
                if found["proven"].startswith("0 "):
                    out.add((name, case.arrivals))
                yield found


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, a row at a time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.which_search", description=__doc__)
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--searches", default="full-mip,windows,compact,best-first")
    parser.add_argument("--first", type=count, default=700)
    parser.add_argument("--seconds", type=share, default=60.0)
    given = parser.parse_args(argv)
    found = []
    for each in rows(given.sizes.split(","), given.searches.split(","), given.first, given.seconds):
        print("  ".join(map(str, each.values())), file=sys.stderr, flush=True)
        found.append(each)
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
