"""The full MIP: what SCIP and CP-SAT prove, the window MIP beside it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, islice
from statistics import median
from typing import TYPE_CHECKING, Any

import orsched
from benchmarks.speed.section import Options, Section, Target
from orsched.costs import AffineCost, LevelsCost
from orsched.instances.synthetic import gsm8k
from orsched.models.full_mip import solve_full_mip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.instance import Instance
    from orsched.models.full_mip import FullMipResult

NAME = "full_mip"
CLIENTS = 3
SIZES = ((8, 5, 15), (9, 4, 15), (10, 3, 15), (12, 1, 10))
"""Requests, instances, and seconds for each solver."""
MODELS = (("compact", "scip"), ("compact", "cpsat"), ("windows", "cpsat"))
CAPACITIES = (256, 512, 1024, 2048)
LONG_S = 15
WINDOWS_REQUESTS = 8
"""Most requests for which the window MIP is run: above, it proves nothing in this time."""


def run(options: Options) -> Section:
    """Solve small instances to the proof, Pang's size for a while, and ask for a large one."""
    section = Section(NAME, "Pang's full MIP (1)-(25) and the window MIP, one thread, warm start")
    for requests, instances, limit in ((6, 1, 2), (8, 1, 5)) if options.tiny else SIZES:
        cases = list(islice(open_cases(requests), instances))
        for formulation, backend in MODELS[: 3 if requests <= WINDOWS_REQUESTS else 2]:
            found = [
                solve_full_mip(case, backend, time_limit=limit, formulation=formulation)
                for case in cases
            ]
            section.rows.append(_row(f"{requests} x {CLIENTS}", formulation, backend, limit, found))
    section.rows += _pang_sizes(options.tiny)
    section.targets = _targets(section.rows)
    section.notes = [
        "gsm8k, the first seeds whose first schedule (hybrid) does not meet the analytic bound: "
        "in the others nothing is left to solve.",
        "max_s: seconds from the call, heuristic, building and the child's start included, "
        "cut off at the limit. gap_percent: the largest left at the end, to the larger "
        "of the analytic bound and the solver's.",
        "levels: Pang's own cost, stages of 256 to 2,048 tokens at the affine time of a full one "
        "and T^d that of a full round; windows (search) is the method, not a MIP.",
        "too_large: the model was not built; variables and nonzeros are the estimate.",
    ]
    return section


def open_cases(requests: int, clients: int = CLIENTS) -> Iterator[Instance]:
    """Yield the instances of a size, by seed, whose first schedule leaves something to solve.

    For sizes without any (up to 6 requests) the first seeds are taken as they are.
    """
    for seed in count():
        instance = gsm8k(seed, requests=requests, clients=clients)
        if requests < 8 or orsched.solve(instance, "hybrid").status != "optimal":
            yield instance


def _pang_sizes(tiny: bool) -> list[dict[str, Any]]:
    """Return rows for Pang's size under two costs, and for what is refused."""
    rows = []
    small = gsm8k(0, requests=10, clients=3)
    affine = small if tiny else orsched.load("pang-100x20")
    limit = 1 if tiny else LONG_S
    for name, case in (("affine", affine), ("levels", levelled(affine))):
        for formulation, backend in MODELS[:2]:
            found = solve_full_mip(case, backend, time_limit=limit, formulation=formulation)
            label = f"{len(case)} x {case.worker.clients}, {name}"
            rows.append(_row(label, formulation, backend, limit, [found]))
        result = orsched.solve(case, "windows", time_limit=limit)
        rows.append(
            {"case": label, "model": "windows (search)", "solver": "orsched", "limit_s": limit,
             "instances": 1, "proven": int(result.status == "optimal"),
             "max_s": result.runtimes["total"], "gap_percent": 100 * result.gap}
        )  # fmt: skip
    large = small if tiny else orsched.load("gsm8k-llama65b")
    nonzeros = {"max_nonzeros": 1} if tiny else {}
    found = solve_full_mip(large, "scip", time_limit=limit, **nonzeros)
    label = f"{len(large)} x {large.worker.clients}"
    rows.append(_row(label, "compact", "scip", limit, [found]))
    return rows


def levelled(instance: Instance) -> Instance:
    """Return the instance with Pang's cost: levels of prefill, a constant time of a round."""
    worker, affine = instance.worker, AffineCost()
    pairs = tuple((size, affine.prefill_ns([size])) for size in CAPACITIES)
    cost = LevelsCost(levels=pairs, round_fixed_ns=affine.round_ns(worker.clients, 0, 0))
    return instance.replace(workers=(replace(worker, cost=cost),))


def _row(
    case: str, formulation: str, backend: str, limit: int, found: list[FullMipResult]
) -> dict[str, Any]:
    totals = [result.runtimes["total"] for result in found]
    size = found[0].size
    return {
        "case": case,
        "model": formulation,
        "solver": backend,
        "limit_s": limit,
        "instances": len(found),
        "proven": sum(result.status == "optimal" for result in found),
        "median_s": median(totals),
        "max_s": max(totals),
        "gap_percent": max(100 * (result.gap or 0.0) for result in found),
        "stages": found[0].stages,
        "variables": size.variables,
        "rows": size.rows,
        "nonzeros": size.nonzeros,
        "ended": found[0].termination,
    }


def _targets(rows: list[dict[str, Any]]) -> list[Target]:
    """Return what the reference must do: prove small instances on both back ends."""
    smallest = [r for r in rows if r["case"] == rows[0]["case"] and r["model"] == "compact"]
    return [
        Target(f"{r['case']}, {r['solver']}, not proven", r["instances"] - r["proven"], 0, "cases")
        for r in smallest
    ]
