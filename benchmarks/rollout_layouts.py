"""Which number of replicas and which tensor parallelism end a batch of rollouts first.

    python -m benchmarks.rollout_layouts [--gpus N] [--prompts N] [--samples N] [--seed N]
        [--methods fleet --seconds 90]

The GPUs of a node or of several are cut into workers of 1, 2, 4 or 8; each is a machine by its data
sheet, with the paged memory that is left beside the weights and 256 clients for each GPU. Each
layout runs the methods of ``--methods`` on the same requests and has a bound that holds for any
schedule with chunks, mixed steps and restarts. Data sheets charge
sums over GPUs by count, bytes and link, and what each layer takes whatever the number of GPUs.
"""

from __future__ import annotations

import argparse
import time

import orsched
from benchmarks.arguments import count
from benchmarks.speed.section import table
from orsched.common.units import NS_PER_S
from orsched.data.instance import Instance
from orsched.data.workers import Worker
from orsched.instances.rollouts import rollout_requests

GPU, MODEL, CLIENTS = "h100", "llama3-8b", 256


def layout(given: argparse.Namespace, parallel: int) -> Instance:
    """Return the requests on workers of so many GPUs each."""
    machine = orsched.machine(f"{GPU}x{parallel}-{MODEL}-sheet")
    requests = rollout_requests(given.prompts, given.samples, given.longest, given.seed)
    workers = tuple(
        Worker(CLIENTS * parallel, machine.cost, memory=machine.memory, name=f"w{k}")
        for k in range(given.gpus // parallel)
    )
    return Instance(requests, workers, first_token="decode", name=f"tp{parallel}")


def rows_of(given: argparse.Namespace, parallel: int) -> list[dict[str, object]]:
    """Return a row for each method on a layout."""
    instance = layout(given, parallel)
    rows = []
    for method in given.methods.split(","):
        began = time.process_time()
        result = orsched.solve(instance, method, time_limit=given.seconds)
        row = result.to_row()
        assert result.bound_ns is not None
        rows.append({
            "replicas x TP": f"{len(instance.workers)} x {parallel}",
            "method": method,
            "makespan_s": round(result.makespan_ns / NS_PER_S, 1),
            "bound_s": round(result.bound_ns / NS_PER_S, 1),
            "gap_%": round(100 * row["gap"], 1),
            "bubbles_%": round(100 * row["bubble_share"], 1),
            "tail_s": round(row["tail_s"], 1),
            "restarts": row["restarts"],
            "cpu_s": round(time.process_time() - began, 1),
        })  # fmt: skip
    return rows


def main(args: list[str] | None = None) -> None:
    """Print the table, layouts with the most replicas first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gpus", type=count, default=16)
    parser.add_argument("--prompts", type=count, default=512)
    parser.add_argument("--samples", type=count, default=16)
    parser.add_argument("--longest", type=count, default=32_768)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--methods", default="vllm", help="names, separated by commas")
    parser.add_argument("--seconds", type=float, help="time limit of each run of a method")
    given = parser.parse_args(args)
    sizes = [size for size in (1, 2, 4, 8) if given.gpus % size == 0]
    print("\n".join(table([row for size in sizes for row in rows_of(given, size)])))


if __name__ == "__main__":
    main()
