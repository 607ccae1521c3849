"""How sharp bounds and searches are on seeds drawn when it runs: proofs, gaps and seconds.

    python -m benchmarks.sharp --seeds fresh [--draws 3] [--cpu 20] [--only packing windows ...]
    python -m benchmarks.sharp --large 10000x1000 100000x1000 --seeds 0 --cpu 30

``--large`` prints what a search, bounds, check and report take at a size, each in its own process.
``--seeds fresh`` draws them and prints them; a number repeats a run. ``azure`` needs
``ORSCHED_DATA``: the conversations of Azure at load 0.7 on four workers, mean JCT.
"""

from __future__ import annotations

import argparse
import json
import resource
import secrets
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import orsched
from benchmarks.arguments import count, share
from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.page_tables import markdown
from benchmarks.speed.packing_families import FAMILIES
from orsched.common.stop import cpu_seconds
from orsched.instances.catalog import generate
from orsched.models.pcmax import packing_search
from orsched.models.windows.window_state import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TEN = ("L1", "L6", "U3", "NU2", "NU3", "E2", "BIG", "P", "T", "W")
"""Families of packings; each takes a tenth of the draws of its row."""


class Drawn(NamedTuple):
    """One draw: value and bound of what was found, and what it took."""

    value: float
    bound: float
    cpu_s: float
    wall_s: float


def timed(call: Callable[[], tuple[float, float]]) -> Drawn:
    """Return what a call finds, with its seconds."""
    cpu, wall = cpu_seconds(), perf_counter()
    value, bound = call()
    return Drawn(value, bound, cpu_seconds() - cpu, perf_counter() - wall)


def packed(family: str, seed: int, cpu_s: float) -> tuple[float, float]:
    """Pack one instance of a family."""
    jobs, clients, _ = FAMILIES[family](seed)
    found = orsched.pack(jobs, clients, orsched.CpuSeconds(cpu_s))
    return found.makespan, found.bound


def solved(
    method: str, size: tuple[int, int], objective: str, seed: int, cpu_s: float
) -> tuple[float, float]:
    """Solve one instance with prompts of GSM8K, with all requests at 0."""
    instance = generate("gsm8k", seed=seed, requests=size[0], clients=size[1])
    limit = orsched.CpuSeconds(cpu_s)
    found = orsched.solve(instance, method, objective, seed=seed, time_limit=limit)
    value = found.objective_value or 0.0
    if method == "exact" and found.status == "optimal":  # its proofs are no certificates
        return value, value
    return value, found.objective_bound or 0.0


def served(seed: int, cpu_s: float) -> tuple[float, float]:
    """Serve a window of the conversations of Azure that arrive over time."""
    instance = setting.workload("Azure conv", 0.7, seed)
    limit = orsched.CpuSeconds(cpu_s)
    found = orsched.solve(instance, "latency_search", "jct_mean", seed=seed, time_limit=limit)
    return found.objective_value or 0.0, found.objective_bound or 0.0


def parts(draws: int, cpu_s: float) -> dict[str, list[tuple[str, int, Callable[[int], Drawn]]]]:
    """Return the rows of each part: what is drawn, how often, and by what."""

    def of(method: str, size: tuple[int, int], aim: str = "makespan", more: float = 1.0) -> object:
        return lambda seed: timed(lambda: solved(method, size, aim, seed, more * cpu_s))

    def packing(families: Sequence[str]) -> object:
        return lambda seed: timed(lambda: packed(families[seed % len(families)], seed, cpu_s))

    exact = [(10, 3), (15, 3), (20, 4), (30, 5)]
    found: dict[str, list[tuple[str, int, object]]] = {
        "packing": [
            ("packing, 1,319 x 200", 20 * draws, packing(["G"])),
            ("packing, ten families", 10 * draws, packing(TEN)),
        ],
        "exact": [(f"exact, {n} x {m}", draws, of("exact", (n, m))) for n, m in exact],
        "windows": [
            ("windows, 100 x 20", draws, of("windows", (100, 20))),
            ("windows, 1,319 x 200", draws, of("windows", (1319, 200), more=2)),
        ],
        "means": [
            ("mean JCT, 100 x 20", draws, of("latency_search", (100, 20), "jct_mean")),
            ("mean JCT, 1,319 x 200", draws, of("latency_search", (1319, 200), "jct_mean", 2)),
        ],
        "azure": [
            ("mean JCT, Azure conv, load 0.7", draws, lambda s: timed(lambda: served(s, cpu_s)))
        ],
    }
    return found  # type: ignore[return-value]


def row(what: str, drawn: Sequence[Drawn]) -> dict[str, object]:
    """Return the figures of a row."""
    gaps = [100 * (each.value / each.bound - 1) for each in drawn if each.bound]
    cpu, wall = [each.cpu_s for each in drawn], [each.wall_s for each in drawn]
    return {
        "what": what,
        "proven": f"{sum(each.value == each.bound for each in drawn)} of {len(drawn)}",
        "median gap %": f"{median(gaps):.3f}",
        "largest gap %": f"{max(gaps):.3f}",
        "median CPU s": f"{median(cpu):.2f}",
        "most CPU s": f"{max(cpu):.2f}",
        "median wall s": f"{median(wall):.2f}",
    }


LARGE = ("hybrid", "windows", "bounds", "check", "report")


def large(what: str, size: str, seed: int, cpu_s: float) -> dict[str, object]:
    """Return a row of a size: CPU seconds and gap of one task, and this process's peak memory.

    The check and the report are of a schedule of ``fcfs``; its making is in every row's memory.
    """
    requests, clients = map(int, size.split("x"))
    instance = generate("gsm8k", seed=seed, requests=requests, clients=clients)
    limit = orsched.CpuSeconds(cpu_s)
    gap = "-"
    ready = orsched.solve(instance, "fcfs", time_limit=limit)
    compiled().wait()
    begin = cpu_seconds()
    if what == "bounds":
        orsched.bound(instance, time_limit=limit)
    elif what == "check":
        if orsched.check(instance, ready):
            raise SystemExit("the checker rejects a schedule of fcfs")
    elif what == "report":
        with TemporaryDirectory() as folder:
            orsched.write_report(instance, ready, Path(folder, "report.html"))
    else:
        how = {"threads": 1} if what == "windows" else {}
        found = orsched.solve(instance, what, parameters=how, seed=seed, time_limit=limit)
        gap = f"{100 * ((found.objective_value or 0) / (found.objective_bound or 1) - 1):.2f}"
    used = cpu_seconds() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "size": size,
        "what": what,
        "CPU s": f"{used:.2f}",
        "peak MiB": f"{memory:.0f}",
        "gap %": gap,
    }


def in_its_own_process(what: str, size: str, seed: int, cpu_s: float) -> dict[str, object]:
    """Return the row that a new process measures."""
    run = "import json; from benchmarks.sharp import large; print(json.dumps(large(*{!r})))"
    run = run.format((what, size, seed, cpu_s))
    done = subprocess.run([sys.executable, "-c", run], check=True, stdout=subprocess.PIPE)
    found: dict[str, object] = json.loads(done.stdout)
    print(found, file=sys.stderr, flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the seeds, measure, print."""
    parser = argparse.ArgumentParser(prog="sharp", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="fresh", help="fresh, or the first seed of a run before")
    parser.add_argument("--draws", type=count, default=3, help="draws a row; of packings more")
    parser.add_argument("--cpu", type=share, default=20.0, help="CPU seconds of each")
    parser.add_argument("--only", nargs="+", help="packing, exact, windows, means, azure")
    parser.add_argument("--large", nargs="+", default=[], help="sizes, as 10000x1000")
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(10**9) if given.seeds == "fresh" else int(given.seeds)
    print(f"seeds from {seed} on: --seeds {seed} repeats this run", flush=True)
    if given.large:
        rows = [
            in_its_own_process(what, size, seed, given.cpu)
            for size in given.large
            for what in LARGE
        ]
        print(markdown(rows))
        return 0
    for loops in (packing_search.compiled(), packing_search.compiled_exchanges(), compiled()):
        loops.wait()
    rows = []
    for part, lines in parts(given.draws, given.cpu).items():
        for what, draws, call in lines if not given.only or part in given.only else ():
            rows.append(row(what, [call(seed + k) for k in range(draws)]))
            print(rows[-1], file=sys.stderr, flush=True)
    print(markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
