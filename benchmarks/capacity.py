"""How many workers the Azure traces and Mooncake's need, with proofs of how many not.

ORSCHED_DATA=... python -m benchmarks.capacity [--plots FOLDER] runs ``orsched.capacity`` on an hour
of each trace, prints a row each, and verifies every certificate. The machine is that of the page
*Four real workloads* (LLaMA-2-70B on four A100 of 80 GB), the policy ``vllm``. Mooncake is run
without and with a prefix cache, in its own blocks of 512 tokens. ``-slack`` and ``-split`` are
other ways to serve: ``slack``, and ``disaggregated`` that orders prompts by the limit on TTFT, over
a link of 25 GB/s. ``--folder`` keeps simulations.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import orsched
from benchmarks.reproductions.four_workloads_setting import (
    CACHE_TOKENS,
    LIMIT,
    TOKEN_BUDGET,
    TOKEN_BYTES,
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
        policy: what serves: ``vllm``, ``slack`` or ``disaggregated``, the last on a split.
    """

    name: str
    trace: str
    ttft_s: float
    tpot_s: float
    attainment: float
    cached: bool = False
    budget: int = TOKEN_BUDGET
    policy: str = "vllm"

    def asked(self) -> dict[str, Any]:
        """Return policy, parameters and limits as ``capacity`` takes them."""
        own: dict[str, Any] = {"max_num_batched_tokens": self.budget}
        if self.policy == "disaggregated":
            own |= {"ttft_s": self.ttft_s}
        else:
            own |= {"dispatch": "round_robin" if self.policy == "vllm" else "soonest"}
        if self.policy == "slack":
            own |= {"ttft_s": self.ttft_s, "tpot_s": self.tpot_s}
        limits = {"slo_ttft": self.ttft_s, "slo_tpot": self.tpot_s, "attainment": self.attainment}
        link = f"bandwidth=25e9,kv_bytes={TOKEN_BYTES}" if self.policy == "disaggregated" else None
        return {"policy": self.policy, "parameters": own, "split": link, **limits}


CASES = (
    Case("azure-conv", "Azure conv", 1, 0.05, 0.9),
    Case("azure-conv-99", "Azure conv", 1, 0.05, 0.99),
    Case("azure-code", "Azure code", 1, 0.05, 0.9),
    Case("mooncake", "Mooncake", 30, 0.1, 0.9),
    Case("mooncake-cached", "Mooncake", 30, 0.1, 0.9, True),
    Case("azure-conv-slack", "Azure conv", 1, 0.05, 0.9, budget=16384, policy="slack"),
    Case("azure-code-slack", "Azure code", 1, 0.05, 0.9, budget=16384, policy="slack"),
    Case("mooncake-slack", "Mooncake", 30, 0.1, 0.9, budget=16384, policy="slack"),
    Case("azure-conv-split", "Azure conv", 1, 0.05, 0.9, budget=512, policy="disaggregated"),
    Case("azure-code-split", "Azure code", 1, 0.05, 0.9, budget=512, policy="disaggregated"),
    Case("mooncake-split", "Mooncake", 30, 0.1, 0.9, budget=512, policy="disaggregated"),
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


def answer(
    case: Case, jobs: int, requests: int | None = None, folder: Path | None = None
) -> tuple[Capacity, float, bool]:
    """Return the answer, the seconds it took, and whether its certificate is verified."""
    instance, begin = instance_of(case, requests), perf_counter()
    found = orsched.capacity(instance, jobs=jobs, folder=folder, **case.asked())
    seconds = perf_counter() - begin
    certificate = json.loads(json.dumps(found.certificate))
    machines = [instance.worker] * len(found.machines)
    return found, seconds, proof_violations(instance, certificate, machines) == []


HEAD = (
    "| trace | requests | TTFT, TPOT s | attainment | workers | measured | interval | "
    "TTFT p99 s | TPOT p99 s | proven | of measured | simulations | s |"
)


def row(case: Case, requests: int, found: Capacity, seconds: float) -> str:
    """Return the row of an answer."""
    best = found.estimate
    assert best is not None
    return (
        f"| {case.name} | {requests:,} | {case.ttft_s:g}, {case.tpot_s:g} | {case.attainment:g} | "
        f"{'+'.join(map(str, best.fleet))} | {best.attainment:.4f} | "
        f"{best.low:.4f}-{best.high:.4f} | {best.ttft_p99_s:.3f} | {best.tpot_p99_s:.4f} | "
        f"{found.lower_bound_workers} | {found.lower_bound_workers / best.workers:.0%} | "
        f"{found.simulations} | {seconds:.0f} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a certificate is not verified."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--requests", type=int, help="only the first of each trace")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--plots", type=Path, metavar="FOLDER")
    given = parser.parse_args(arguments)
    print(HEAD)
    print("| --- " + "| ---: " * 12 + "|")
    wrong = 0
    for case in CASES:
        if given.case and case.name not in given.case:
            continue
        found, seconds, verified = answer(case, given.jobs, given.requests, given.folder)
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
