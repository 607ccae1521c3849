"""The search over stage windows at full scale, with its gap, beside SCIP on Pang's full MIP.

python -m benchmarks.speed.windows [--sizes SIZE ...] [--costs COST ...] [--seeds A:B] [--seconds S]
    [--no-peers]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import orsched
from benchmarks.speed import machine
from benchmarks.speed.section import Options, Section, Target
from orsched.costs import AffineCost, LevelsCost
from orsched.instances.synthetic import gsm8k
from orsched.models.full_mip import solve_full_mip
from orsched.models.windows import window_search as search
from orsched.models.windows.stage_prices import terms_of
from orsched.models.windows.state_changes import construct, even_times
from orsched.models.windows.window_state import Cooling, anneal, compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.models.compiled_kernels import Kernels

NAME = "windows"
SIZES = {"1319 x 200": (1319, 200, 10, 0.5, 0.3), "100 x 20": (100, 20, 5, 1.0, 0.5)}
"""Requests, clients, seeds, and the gap in percent to reach and the goal."""
TINY = {"12 x 3": (12, 3, 1, 100.0, 100.0)}
COSTS = ("affine", "levels")
CAPACITIES = (256, 512, 1024, 2048)
SECONDS = 60.0


def run(options: Options) -> Section:
    """Solve all sizes, costs and seeds, each beside SCIP with the same time limit."""
    sizes = TINY if options.tiny else SIZES
    return measure(sizes, COSTS, None, 1.0 if options.tiny else SECONDS)


def measure(
    sizes: dict[str, tuple[int, int, int, float, float]],
    costs: Sequence[str],
    seeds: range | None,
    seconds: float,
    peers: bool = True,
) -> Section:
    """Return the table of these parts; each row is printed as it is there."""
    section = Section(NAME, f"windows, two threads, {seconds:g} s each, and the full MIP in SCIP")
    compiled().wait()
    for cost in costs:
        for size, (requests, clients, count, reach, goal) in sizes.items():
            rows = []
            for seed in seeds or range(count):
                instance = case(requests, clients, seed, cost)
                rows.append(
                    {"size": size, "cost": cost, "seed": seed} | _row(instance, seconds, peers)
                )
                print(*rows[-1].values(), sep="  ", file=sys.stderr, flush=True)
            section.rows += rows
            worst = max(row["gap_percent"] for row in rows)
            section.targets.append(Target(f"{size}, {cost}: largest gap", worst, reach, "%"))
            section.targets.append(Target(f"{size}, {cost}: goal", worst, goal, "%"))
    section.notes = [
        "SCIP: the compact full MIP, warm-started from hybrid, one thread; too_large: not built. "
        "Its gap is to its own bound. load: over the last minute, at the end of windows' run.",
        "levels: stages of 256 to 2,048 tokens at the affine time of a full one, every round at "
        "the time of a full one (Pang's MIP, eq. (5)-(8)).",
        *_profile(*next(iter(sizes.values()))[:2]),
    ]
    return section


def case(requests: int, clients: int, seed: int, cost: str) -> Instance:
    """Return an instance of Pang's workload under the affine or the levelled cost."""
    instance = gsm8k(seed, requests=requests, clients=clients)
    if cost == "affine":
        return instance
    of = AffineCost()
    levels = tuple((cap, of.prefill_ns([cap])) for cap in CAPACITIES)
    worker = replace(
        instance.worker, cost=LevelsCost(levels=levels, round_fixed_ns=of.round_ns(clients, 0, 0))
    )
    return instance.replace(workers=worker)


def _row(instance: Instance, seconds: float, peers: bool) -> dict[str, Any]:
    begin = perf_counter()
    result = orsched.solve(instance, "windows", time_limit=seconds)
    took, load = perf_counter() - begin, machine.load()[0]
    figures = result.schedule.results
    row = {
        "seconds": took,
        "K": figures["prefill_stages"],
        "R": figures["decode_rounds"],
        "makespan_s": result.makespan,
        "bound_s": result.bound,
        "gap_percent": 100 * result.gap,
        "load": load,
    }
    if not peers:
        return row
    mip = solve_full_mip(instance, "scip", time_limit=seconds)
    return row | {
        "scip_seconds": mip.runtimes.get("total"),
        "scip": str(mip.termination),
        "scip_makespan_s": mip.makespan,
        "scip_bound_s": mip.bound,
        "scip_gap_percent": None if mip.gap is None else 100 * mip.gap,
    }


def _profile(requests: int, clients: int) -> list[str]:
    """Return what the annealing loop takes of a run, and its moves a second, plain and compiled."""
    instance = case(requests, clients, 0, "affine")
    spent = 0.0

    def timed(*arguments: Any) -> int:
        nonlocal spent
        begin = perf_counter()
        made = anneal(*arguments)
        spent += perf_counter() - begin
        return made

    begin = perf_counter()
    search.anneal, original = timed, search.anneal  # type: ignore[attr-defined]
    try:
        orsched.solve(instance, "windows+threads=1", iterations=4)
    finally:
        search.anneal = original  # type: ignore[attr-defined]
    share = spent / (perf_counter() - begin)
    plain, fast = _moves_a_second(instance, 20_000, None), None
    if compiled().module is not None:
        fast = _moves_a_second(instance, 1_000_000, compiled())
    return [
        f"profile at {requests} x {clients}, one thread: {share:.0%} of the time is annealing; "
        f"{plain:,.0f} moves a second in plain Python, {fast or 0:,.0f} compiled"
    ]


def _moves_a_second(instance: Instance, moves: int, fast: Kernels | None) -> float:
    terms, clients = terms_of(instance), instance.worker.clients
    stages, _ = terms.stages_for(2 * terms.stages_ns)
    end = terms.rounds
    times, price = even_times(stages, end), terms.prices.by_starts
    state = construct(instance.rounds_needed, clients, times, end, price)
    begin = perf_counter()
    made = anneal(state, Cooling(moves, 3.0, 0.15), np.random.default_rng(0), lambda: False, fast)
    return made / (perf_counter() - begin)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run parts of the table and print them."""
    parser = argparse.ArgumentParser(prog="benchmarks.windows", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--costs", nargs="+", choices=COSTS, default=COSTS)
    parser.add_argument("--seeds", help="A:B, the seeds from A to B - 1")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--no-peers", action="store_true", help="leave SCIP out")
    parser.add_argument("--out", type=Path, help="file for the table")
    given = parser.parse_args(arguments)
    seeds = None if given.seeds is None else range(*map(int, given.seeds.split(":")))

    sizes = {size: SIZES[size] for size in given.sizes}
    section = measure(sizes, given.costs, seeds, given.seconds, not given.no_peers)
    print(section.text())
    if given.out is not None:
        given.out.write_text(section.text() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
