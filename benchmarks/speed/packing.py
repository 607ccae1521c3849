"""Makespan packing: 100 GSM8K-like instances, the families, and peers on the same instances."""

from __future__ import annotations

from statistics import mean, median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from benchmarks.speed.packing_families import FAMILIES, Packing, gsm8k_like
from benchmarks.speed.packing_peers import beside
from benchmarks.speed.section import Options, Section, Target
from orsched.checker.certificates import packing_violations
from orsched.models.packing import PackingResult, pack

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "packing"
LIMIT_S = 10.0
PEER_LIMIT_S = 30
FIRST_SEED = 5000
"""Seeds from here on were used for no tuning."""
PROVEN_AT_LEAST = {"X": 18, "H": 15}
PEER_CASES = ("E2", "L3", "L6", "T", "G")


def run(options: Options) -> Section:
    """Measure the main sizes, each family and the peers."""
    section = Section(NAME, "makespan packing, every answer verified by the checker")
    pack(gsm8k_like(0).jobs, 200)  # warm up
    _main_sizes(section, options)
    _families(section, options)
    section.rows += _peers(options)
    section.notes = [
        f"Seeds from {FIRST_SEED} on, used for no tuning; limit {LIMIT_S:.0f} s an instance, none "
        "at the main sizes. cpu_s does not grow with other load on the machine.",
        "proven: makespan equals the bound, and integers alone re-derive the bound. CP-SAT and "
        "SCIP: the assignment model (26)-(30), one thread; PyJobShop: CP-SAT, one thread; prtpy: "
        f"heuristics without a bound. Beside one another each has {PEER_LIMIT_S} s, orsched too.",
    ]
    return section


def _main_sizes(section: Section, options: Options) -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + (2 if options.tiny else 100))
    for jobs, count in ((1319, len(seeds)), (10_000, 2 if options.tiny else 10)):
        row = _row(f"G {jobs} x 200", (gsm8k_like(s, jobs) for s in seeds[:count]), None)
        section.rows.append(row)
        if jobs == 1319:
            section.targets += [
                Target("G 1319 x 200, not proven", row["instances"] - row["proven"], 0, "of 100"),
                Target("G 1319 x 200, median", row["median_s"], 0.05, "s"),
                Target("G 1319 x 200, worst", row["max_s"], 0.3, "s"),
            ]
        else:
            section.targets.append(Target("G 10000 x 200, worst", row["max_s"], 0.1, "s"))


def _families(section: Section, options: Options) -> None:
    count = 1 if options.tiny else 20
    for family, rule in FAMILIES.items():
        if family == "G" or (options.tiny and family in ("X", "H", "W", "T")):
            continue
        seeds = range(FIRST_SEED, FIRST_SEED + count)
        row = _row(family, map(rule, seeds), LIMIT_S)
        section.rows.append(row)
        least = min(count, PROVEN_AT_LEAST.get(family, count))
        section.targets.append(
            Target(f"{family}, not proven", count - row["proven"], count - least, f"of {count}")
        )


def _row(name: str, cases: Iterable[Packing], limit: float | None) -> dict[str, Any]:
    walls, cpus, proven, wrong = [], [], 0, 0
    for jobs, clients, _ in cases:
        begin, cpu = perf_counter(), process_time()
        result = pack(jobs, clients, time_limit=limit)
        walls.append(perf_counter() - begin)
        cpus.append(process_time() - cpu)
        proven += result.optimal
        wrong += bool(packing_violations(jobs, clients, result))
    return {
        "case": name,
        "program": "orsched",
        "instances": len(walls),
        "proven": proven,
        "violations": wrong,
        "median_s": median(walls),
        "mean_s": mean(walls),
        "max_s": max(walls),
        "mean_cpu_s": mean(cpus),
    }


def _peers(options: Options) -> list[dict[str, Any]]:
    """Run the models and the peers on few instances, beside orsched."""
    limit_s = 2 if options.tiny else PEER_LIMIT_S
    rows = []
    for name in PEER_CASES[: 1 if options.tiny else None]:
        case = FAMILIES[name](FIRST_SEED)
        rows.append(_ours(name, pack(case.jobs, case.clients, time_limit=limit_s)))
        rows += beside(name, case, limit_s, options.peers)
    return rows


def _ours(name: str, result: PackingResult) -> dict[str, Any]:
    return {
        "case": name,
        "program": "orsched",
        "proven": int(result.optimal),
        "max_s": result.runtime,
        "value": result.makespan,
        "lower_bound": result.bound,
    }
