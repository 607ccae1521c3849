"""Mean JCT below each dispatcher, on equal and unequal fleets: why the default is what it is.

python -m benchmarks.dispatching [--seeds N] [--requests N] [--policy NAME]

Log-normal prompts and outputs, of chats and of long prompts; Poisson arrivals at a share of what
the workers do together, their saturation throughputs as the cost models say them. The same seeds
for all dispatchers; a star marks the least mean of a row.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import orsched
from benchmarks.arguments import count
from orsched.costs import AffineCost
from orsched.data.memory import BlockMemory
from orsched.data.workers import Worker
from orsched.heuristics.dispatching import DISPATCHERS
from orsched.instances.synthetic import lognormal_tokens, poisson_arrivals_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 1024
LOADS = (0.5, 0.7, 0.9)
MS, US = 10**6, 10**3


class Lengths(NamedTuple):
    """Mean and sigma of log-normal prompts and outputs."""

    prompt: float
    prompt_sigma: float
    output: float
    output_sigma: float


LENGTHS = {"chat": Lengths(300, 1.0, 200, 0.8), "documents": Lengths(4000, 1.0, 150, 0.8)}


def machine(times: float = 1.0, clients: int = 64, blocks: int = 20_000) -> Worker:
    """Return a worker that takes so many times as long for everything."""
    cost = AffineCost(
        prefill_fixed_ns=round(8 * MS * times),
        prefill_token_ns=round(60 * US * times),
        round_fixed_ns=round(20 * MS * times),
        round_client_ns=round(60 * US * times),
    )
    return Worker(clients, cost, None, BlockMemory(blocks, 16, "paged"))


FLEETS: dict[str, tuple[Worker, ...]] = {
    "equal": (machine(),) * 4,
    "speeds 1, 1, 1/2, 1/4": (machine(), machine(), machine(2), machine(4)),
    "clients 64, 64, 16, 8": (machine(), machine(), machine(1, 16), machine(1, 8)),
    "memory 1, 1, 1/5, 1/10": (machine(), machine(), machine(1, 64, 4_000), machine(1, 64, 2_000)),
    "all three": (machine(), machine(2, 64, 4_000), machine(2, 16), machine(4, 16, 2_000)),
}


def saturation_per_s(worker: Worker, lengths: Lengths) -> float:
    """Return the requests a second of a worker whose clients and memory are full."""
    assert worker.memory is not None
    context = lengths.prompt + lengths.output / 2
    room = min(worker.clients, int(worker.memory.blocks * 16 / context))
    round_ns = worker.cost.round_ns(room, int(room * context), int(context))
    prefill_ns = worker.cost.prefill_ns([2048]) * lengths.prompt / 2048
    return 1e9 / (prefill_ns + lengths.output * round_ns / room)


def instance(fleet: str, kind: str, load: float, requests: int, seed: int) -> orsched.Instance:
    """Return the requests of a seed, on a fleet, at a share of what it does."""
    lengths = LENGTHS[kind]
    prompts = lognormal_tokens("dispatching/prompts", seed, requests, *lengths[:2], 4, 16_000)
    outputs = lognormal_tokens("dispatching/outputs", seed, requests, *lengths[2:], 1, LIMIT)
    rate = load * sum(saturation_per_s(worker, lengths) for worker in FLEETS[fleet])
    arrivals = poisson_arrivals_ns("dispatching/arrivals", seed, requests, rate)
    workers = tuple(
        orsched.Worker(w.clients, w.cost, w.prefill_cap_tokens, w.memory, f"worker-{index}")
        for index, w in enumerate(FLEETS[fleet])
    )
    return orsched.Instance(
        orsched.Requests(prompts, outputs, arrival_ns=arrivals),
        workers,
        "prefill",
        LIMIT,
        f"{fleet}, {kind}",
    )


def mean_jct_s(problem: orsched.Instance, policy: str, dispatch: str) -> float:
    """Return the mean JCT of a policy below a dispatcher."""
    done = orsched.simulate(problem, policy, parameters={"dispatch": dispatch})
    return float(done.figures["jct_mean_s"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each fleet, kind of lengths and load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=count, default=5)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--policy", default="vllm")
    parser.add_argument("--loads", default=",".join(map(str, LOADS)))
    parser.add_argument("--fleets", default="")
    options = parser.parse_args(arguments)
    names = [name for name in DISPATCHERS if name != "prefix"]
    print("| fleet | lengths | load | " + " | ".join(f"`{name}`" for name in names) + " |")
    print("| --- | --- | ---: |" + " ---: |" * len(names))
    for fleet in options.fleets.split(";") if options.fleets else FLEETS:
        for kind in LENGTHS:
            for load in map(float, options.loads.split(",")):
                rows = []
                for seed in range(options.seeds):
                    problem = instance(fleet, kind, load, options.requests, seed)
                    rows.append([mean_jct_s(problem, options.policy, name) for name in names])
                means = np.array(rows).mean(axis=0)
                cells = [f"{mean:.2f}" + (" *" if mean == means.min() else "") for mean in means]
                print(f"| {fleet} | {kind} | {load} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
