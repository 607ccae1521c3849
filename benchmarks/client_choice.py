"""What choosing the number of clients online does: ``use_clients=latency`` beside all clients.

python -m benchmarks.client_choice [--seeds 10]

GSM8K's prompts; rounds of 25 ms and a part for each request in them, that of long caches (0.76 ms:
Mooncake's on LLaMA-2-70B) or of short ones (0.16 ms). One queue, the gate ``shadow_price``. Orders:
as they come, lengths unknown; shortest first by predictions with a log-normal error of 0.3, and by
the lengths themselves. ``equal``: every answer has 300 tokens. Changes are those of each seed's own
pair of runs, with 95 % intervals (Student). The checker accepts each schedule.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import orsched
from benchmarks.arguments import count
from benchmarks.reproductions.gates import percent
from benchmarks.speed.section import table
from orsched import AffineCost, Worker
from orsched.instances import predict, with_arrivals
from orsched.instances.synthetic import gsm8k

if TYPE_CHECKING:
    from collections.abc import Sequence

MS = 10**6


class Case(NamedTuple):
    """Requests, clients, a request's part of a round in ms, arrivals a second (0: at once)."""

    requests: int
    clients: int
    part_ms: float
    rate: float
    order: str
    predictor: str
    equal: bool = False


CASES = {
    "short caches": Case(1319, 256, 0.16, 0, "arrival", ""),
    "long caches": Case(600, 256, 0.76, 0, "arrival", ""),
    "long caches, equal": Case(600, 256, 0.76, 0, "arrival", "", True),
    "long caches, 1,000 clients, equal": Case(1319, 1000, 0.76, 0, "arrival", "", True),
    "short caches, predicted": Case(1319, 256, 0.16, 0, "shortest", "noise:sigma=0.3"),
    "long caches, predicted": Case(600, 256, 0.76, 0, "shortest", "noise:sigma=0.3"),
    "long caches, known": Case(600, 256, 0.76, 0, "shortest", "oracle"),
    "long caches, known, 3/s": Case(600, 256, 0.76, 3.0, "shortest", "oracle"),
}


def problem(case: Case, seed: int) -> orsched.Instance:
    """Return the requests of a seed."""
    instance = gsm8k(seed=seed, requests=case.requests)
    cost = AffineCost(
        prefill_fixed_ns=25 * MS,
        prefill_token_ns=150_000,
        round_fixed_ns=25 * MS,
        round_client_ns=round(case.part_ms * MS),
    )
    instance = instance.replace(workers=Worker(case.clients, cost, 8192))
    if case.equal:
        outputs = np.full(len(instance), 300)
        instance = instance.replace(requests=instance.requests.replace(output_tokens=outputs))
    if case.predictor:
        instance = predict(instance, case.predictor, seed)
    return with_arrivals(instance, f"poisson:rate={case.rate}", seed) if case.rate else instance


def spec(case: Case, rule: str) -> str:
    """Return the method with a rule."""
    known = "predicted" if case.predictor else "none"
    return (
        f"online@{known}+assignment=shared+order={case.order}+gate=shadow_price+use_clients={rule}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=count, default=10)
    options = parser.parse_args(arguments)
    rows = []
    for name, case in CASES.items():
        found: dict[str, list[list[float]]] = {"all": [], "latency": []}
        for seed in range(options.seeds):
            instance = problem(case, seed)
            for rule, runs in found.items():
                schedule = orsched.solve(instance, spec(case, rule), iterations=1).schedule
                jct = schedule.results["jct_ns"]
                runs.append([jct["mean"] / 1e9, jct["p99"] / 1e9, schedule.makespan_ns / 1e9])
        every, fewer = (np.array(runs).T.tolist() for runs in found.values())
        row = {"case": name, "mean JCT s, all": f"{np.mean(every[0]):.1f}"}
        for what, a, b in zip(("mean JCT", "p99", "makespan"), fewer, every, strict=True):
            row[f"{what}, %"] = percent(a, b)[0]
        rows.append(row)
    print("\n".join(table(rows)), flush=True)


if __name__ == "__main__":
    main()
