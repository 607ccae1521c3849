"""How many workers the Azure conversation trace and Mooncake's need, with proofs of how many not.

ORSCHED_DATA=... python -m benchmarks.capacity [--plots FOLDER] runs ``orsched.capacity`` on an hour
of each trace, prints a row each, and verifies every certificate. The machine is that of the page
*Four real workloads* (LLaMA-2-70B on four A100 of 80 GB), the policy ``vllm``. Mooncake is run
without and with a prefix cache, in its own blocks of 512 tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import orsched
from benchmarks.reproductions.four_workloads_setting import (
    CACHE_TOKENS,
    LIMIT,
    TOKEN_BUDGET,
    WORKLOADS,
    requests_of,
)
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.planning.capacity import proof_violations, save_capacity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.planning.capacity import Capacity


class Case(NamedTuple):
    """A question.

    Attributes:
        name: of the row and the plot.
        trace: name of the workload.
        ttft_s, tpot_s: limits.
        attainment: share of requests that must keep both.
        cached: whether the workers have a prefix cache.
        budget: tokens of a step, at most.
    """

    name: str
    trace: str
    ttft_s: float
    tpot_s: float
    attainment: float
    cached: bool = False
    budget: int = TOKEN_BUDGET


CASES = (
    Case("azure-conv", "Azure conv", 1, 0.05, 0.9),
    Case("azure-conv-99", "Azure conv", 1, 0.05, 0.99),
    Case("azure-conv-512", "Azure conv", 1, 0.05, 0.9, budget=512),
    Case("azure-code", "Azure code", 1, 0.05, 0.9),
    Case("mooncake", "Mooncake", 30, 0.1, 0.9),
    Case("mooncake-512", "Mooncake", 30, 0.1, 0.9, budget=512),
    Case("mooncake-cached", "Mooncake", 30, 0.1, 0.9, True),
)


def instance_of(case: Case, requests: int | None = None) -> Instance:
    """Return the first requests of a case, or all, on one worker."""
    import numpy as np

    rows = requests_of(case.trace)
    if requests is not None:
        rows = rows.take(np.arange(min(requests, len(rows))))
    worker = WORKLOADS[case.trace].worker()
    if not case.cached:
        rows = rows.replace(prefixes=None)
    else:
        assert rows.prefixes is not None
        size = rows.prefixes.block_tokens
        memory = BlockMemory(CACHE_TOKENS // size, size, "paged", PrefixCache())
        worker = replace(worker, memory=memory)
    return Instance(rows, (worker,), "prefill", output_limit_tokens=LIMIT, name=case.name)


def answer(case: Case, jobs: int, requests: int | None = None) -> tuple[Capacity, float, bool]:
    """Return the answer, the seconds it took, and whether its certificate is verified."""
    instance, begin = instance_of(case, requests), perf_counter()
    found = orsched.capacity(
        instance,
        "vllm",
        slo_ttft=case.ttft_s,
        slo_tpot=case.tpot_s,
        attainment=case.attainment,
        parameters={"max_num_batched_tokens": case.budget, "dispatch": "round_robin"},
        jobs=jobs,
    )
    seconds = perf_counter() - begin
    certificate = json.loads(json.dumps(found.certificate))
    return found, seconds, proof_violations(instance, certificate) == []


HEAD = (
    "| trace | requests | TTFT, TPOT s | attainment | workers | measured | interval | "
    "TTFT p99 s | TPOT p99 s | proven | simulations | s |"
)


def row(case: Case, requests: int, found: Capacity, seconds: float) -> str:
    """Return the row of an answer."""
    best = found.estimate
    assert best is not None
    return (
        f"| {case.name} | {requests:,} | {case.ttft_s:g}, {case.tpot_s:g} | {case.attainment:g} | "
        f"{found.workers} | {best.attainment:.4f} | {best.low:.4f}-{best.high:.4f} | "
        f"{best.ttft_p99_s:.3f} | {best.tpot_p99_s:.4f} | {found.lower_bound_workers} | "
        f"{found.simulations} | {seconds:.0f} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a certificate is not verified."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--requests", type=int, help="only the first of each trace")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES])
    parser.add_argument("--plots", type=Path, metavar="FOLDER")
    given = parser.parse_args(arguments)
    print(HEAD)
    print("| --- " + "| ---: " * 11 + "|")
    wrong = 0
    for case in CASES:
        if given.case and case.name not in given.case:
            continue
        found, seconds, verified = answer(case, given.jobs, given.requests)
        requests = len(instance_of(case, given.requests))
        print(row(case, requests, found, seconds), flush=True)
        print(f"{case.name}: {found}", file=sys.stderr)
        if not verified:
            print(f"{case.name}: the certificate is not verified", file=sys.stderr)
            wrong = 1
        if given.plots is not None:
            save_capacity(found, given.plots / f"capacity-{case.name}.svg")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
