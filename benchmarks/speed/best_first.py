"""The best-first search of ``exact``: what it proves, the full MIP in both solvers beside it."""

from __future__ import annotations

from itertools import islice
from statistics import median
from typing import Any

from benchmarks.speed.full_mip import open_cases
from benchmarks.speed.section import Options, Section, Target
from orsched.models.best_first import solve_best_first
from orsched.models.full_mip import solve_full_mip

NAME = "best_first"
SIZES = ((10, 3, 5), (15, 3, 5), (20, 4, 3), (30, 5, 2))
"""Requests, clients, and instances for the search; the solvers get the first of them."""
SEARCH_S, SOLVER_S = 60, 20


def run(options: Options) -> Section:
    """Search best first, and give the first instance of each size to both solvers."""
    section = Section(NAME, "best-first search over finish events, and the full MIP (1)-(25)")
    for requests, clients, instances in ((8, 3, 1),) if options.tiny else SIZES:
        cases = list(islice(open_cases(requests, clients), instances))
        case, search_s, solver_s = f"{requests} x {clients}", SEARCH_S, SOLVER_S
        if options.tiny:
            search_s = solver_s = 1
        searched = [solve_best_first(each, time_limit=search_s) for each in cases]
        states = max(found.expanded for found in searched)
        section.rows.append(_row(case, "best_first", search_s, searched) | {"states": states})
        for backend in ("scip", "cpsat"):
            found = solve_full_mip(cases[0], backend, time_limit=solver_s)
            section.rows.append(_row(case, backend, solver_s, [found]))
    section.targets = [
        Target(f"{row['case']}, not proven", row["instances"] - row["proven"], 0, "cases")
        for row in section.rows
        if row["search"] == "best_first"
    ]
    section.notes = [
        "gsm8k, the first seeds whose first schedule (hybrid) does not meet the analytic bound. "
        "states: the most that were expanded. gap_percent: the largest left at the end.",
    ]
    return section


def _row(case: str, search: str, limit: int, found: list[Any]) -> dict[str, Any]:
    totals = [result.runtimes["total"] for result in found]
    return {
        "case": case,
        "search": search,
        "limit_s": limit,
        "instances": len(found),
        "proven": sum(result.status == "optimal" for result in found),
        "median_s": median(totals),
        "max_s": max(totals),
        "gap_percent": max(100 * (result.gap or 0.0) for result in found),
    }
