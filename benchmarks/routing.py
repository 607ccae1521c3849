"""Routing with shared prefixes and at high load: what each dispatcher keeps, and how evenly.

ORSCHED_DATA=... python -m benchmarks.routing --cases FOLDER [--case NAME] prints a row for each
case and dispatcher. FOLDER has prefix_hot.jsonl: 600 requests of seven groups, each with 16,384
tokens of its own prefix; a worker's 100 blocks of 512 hold three. ``one prefix``: 600 requests with
the same 8,192 tokens first. ``unequal``: long prompts on workers of four speeds and sizes at 0.7 of
their throughput. All others run on four H100 with Llama 3 8B by data sheet; the policy is
``vllm``. No dispatcher knows lengths; rows with ``limits known`` tell it the limits.
The seed is 0.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import orsched
from benchmarks.dispatching import instance as unequal
from benchmarks.speed.section import table
from orsched.calibration.catalogue import read_machine
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.instances.arrivals import with_arrivals
from orsched.instances.datasets import data_directory
from orsched.instances.synthetic import lognormal_tokens, poisson_arrivals_ns
from orsched.metrics.class_metrics import imbalance, worker_figures
from orsched.solving.scenario import with_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MACHINE, WORKERS, CLIENTS = "h100-llama3-8b-sheet", 4, 64
TTFT_S, TPOT_S = 0.5, 0.05
PLAIN = ("round_robin", "least_work", "soonest", "latency")
WEIGHTS = (0, 16, 250, 1000, 4000)


def hot(scale: float, cases: Path) -> orsched.Instance:
    """Return the requests of prefix_hot.jsonl, so many times as fast."""
    found = orsched.load(
        str(cases / "prefix_hot.jsonl"), clients=CLIENTS, cost=MACHINE, workers=WORKERS,
        memory_blocks=100, block_tokens=512, allocation="paged", prefix_cache="lru",
    )  # fmt: skip
    return with_arrivals(found, f"replay:scale={scale:g}")


def one_prefix(cases: Path, requests: int = 600, shared: int = 8192) -> orsched.Instance:
    """Return requests that all begin with the same tokens, 40 a second."""
    own = lognormal_tokens("routing/prompts", 0, requests, 200, 0.8, 16, 2000)
    outputs = lognormal_tokens("routing/outputs", 0, requests, 100, 0.8, 1, 1000)
    arrivals = poisson_arrivals_ns("routing/arrivals", 0, requests, 40)
    prefixes = orsched.Prefixes.from_documents([0] * requests, shared, 16)
    memory = BlockMemory(4000, 16, "paged", PrefixCache())
    worker = orsched.Worker(CLIENTS, read_machine(MACHINE)[0], memory=memory)
    rows = orsched.Requests(np.add(own, shared), outputs, arrival_ns=arrivals, prefixes=prefixes)
    return with_workers(orsched.Instance(rows, worker), WORKERS)


def azure(cases: Path, requests: int = 1500) -> orsched.Instance:
    """Return the first requests of Azure conv, eight times as fast."""
    found = orsched.load(
        str(Path(data_directory(), "azure_conv_2023.csv")), clients=CLIENTS, cost=MACHINE,
        workers=WORKERS, drop_empty=True,
    )  # fmt: skip
    found = found.replace(requests=found.requests.take(range(requests)))
    return with_arrivals(found, "replay:scale=8")


CASES: dict[str, Callable[[Path], orsched.Instance]] = {
    "prefix_hot": partial(hot, 1),
    "prefix_hot, 3 times": partial(hot, 3),
    "one prefix": one_prefix,
    "Azure conv": azure,
    "unequal": lambda cases: unequal("all three", "documents", 0.7, 300, 0),
}


def rows_of(name: str, cases: Path) -> list[dict[str, Any]]:
    """Return a row for each dispatcher on a case."""
    problem = CASES[name](cases)
    told = problem.with_classes(f"interactive:ttft={TTFT_S},tpot={TPOT_S}")
    ways: list[tuple[str, dict[str, Any], orsched.Instance]] = [
        (dispatch, {"dispatch": dispatch}, problem) for dispatch in PLAIN
    ]
    ways.append(("latency, limits known", {"dispatch": "latency"}, told))
    if problem.caches_prefixes:
        ways += [
            (f"prefix, {weight}", {"dispatch": "prefix", "load_weight": weight}, problem)
            for weight in WEIGHTS
        ]
    return [{"case": name, "dispatch": way, **_measured(*given)} for way, *given in ways]


def _measured(parameters: dict[str, Any], problem: orsched.Instance) -> dict[str, Any]:
    slo = orsched.SLO(ttft_s=TTFT_S, tpot_s=TPOT_S)
    done = orsched.simulate(problem, "vllm", parameters=parameters, slo=slo)
    found, workers = done.to_row(), worker_figures(problem, done.schedule)
    hits = found["hit_rate"]
    return {
        "within limits": f"{found['slo_attainment']:.1%}",
        "TTFT s": round(found["ttft_mean_s"], 3),
        "TTFT p99 s": round(found["ttft_p99_s"], 3),
        "JCT s": round(found["jct_mean_s"], 3),
        "hits": "-" if hits is None else f"{hits:.1%}",
        "imbalance": round(imbalance(workers) or 0.0, 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--case", action="append", choices=list(CASES))
    given = parser.parse_args(arguments)
    rows = [row for name in given.case or CASES for row in rows_of(name, given.cases)]
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
