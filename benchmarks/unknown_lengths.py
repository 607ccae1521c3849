"""What knowing lengths is worth to a fleet: one batch of rollouts, by what is known of them.

    python -m benchmarks.unknown_lengths [--seeds N] [--prompts N] [--samples N]

The batch is r1024 (64 prompts x 16 samples, all at 0) on 4 workers of 64 clients, an H100 with
LLaMA-3 8B each by its data sheet; it is the same in all rows. A seed permutes the rows or draws
the error of an earlier epoch. Every row is ``vllm`` at the ridge budget with one queue for all
workers, and the checker accepts every schedule.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.arguments import count
from benchmarks.fleet_bounds import H100, fleet, row_of
from benchmarks.speed.section import table
from orsched import check
from orsched.common.registry import resolve
from orsched.common.units import NS_PER_S
from orsched.instances.predictions import noisy_tokens
from orsched.instances.rollouts import rollout_requests
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.requests import Requests
    from orsched.heuristics.policy_method import PolicyMethod

WORKERS, CLIENTS, LIMIT, WITHIN, ERROR = 4, 64, 16_384, 0.45, 0.3
CENTRAL = {"max_num_batched_tokens": "ridge", "dispatch": "central"}
LONGEST = {**CENTRAL, "order": "longest"}


def of_group(requests: Requests, seed: int) -> Requests:
    """Return requests predicted by the mean that the samples of their prompt had an epoch ago."""
    group = requests.group
    assert group is not None
    before = noisy_tokens(requests.output_tokens, WITHIN, seed, LIMIT)
    means = np.bincount(group, before) / np.bincount(group)
    return requests.replace(predicted_tokens=np.maximum(1, means[group]).astype(np.int64))


def runs(batch: Requests, seed: int) -> Iterator[tuple[str, str, dict[str, Any], Requests]]:
    """Yield what is known, the information class, the parameters and the requests."""
    mixed = batch.take(np.random.default_rng(seed).permutation(len(batch)))
    error = noisy_tokens(batch.output_tokens, ERROR, seed, LIMIT)
    yield "nothing: rows in any order", "none", CENTRAL, mixed
    yield "groups, as samples finish", "none", {**LONGEST, "lengths": "group"}, mixed
    yield "groups of the last epoch", "predicted", LONGEST, of_group(batch, seed)
    yield "lengths of the last epoch", "predicted", LONGEST, batch.replace(predicted_tokens=error)
    yield "all lengths", "clairvoyant", LONGEST, batch


def main(args: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=count, default=3, help="permutations and errors")
    parser.add_argument("--prompts", type=count, default=64)
    parser.add_argument("--samples", type=count, default=16)
    given = parser.parse_args(args)
    batch = rollout_requests(given.prompts, given.samples, LIMIT, 1)
    vllm: PolicyMethod = resolve("methods", "vllm")
    spans: dict[str, list[float]] = {}
    for seed in range(1, given.seeds + 1):
        for known, information, parameters, requests in runs(batch, seed):
            instance = fleet(requests, H100, WORKERS, CLIENTS)
            policy, _ = vllm.build(instance, Information(information), parameters, seed)
            schedule = simulate_policy(instance, policy).schedule
            assert not check(instance, schedule)
            spans.setdefault(known, []).append(schedule.makespan_ns / NS_PER_S)
    bounds = row_of("", fleet(batch, H100, WORKERS, CLIENTS))
    rows: list[dict[str, object]] = [
        {
            "known": known,
            **{f"seed {seed}": f"{each:.1f}" for seed, each in enumerate(found, 1)},
            "mean s": f"{sum(found) / len(found):.1f}",
            "above all lengths": f"{sum(found) / sum(spans['all lengths']) - 1:.1%}",
        }
        for known, found in spans.items()
    ]
    print("\n".join(table(rows)))
    print(f"no schedule ends before {bounds['fleet_prices'] or bounds['kv_volume']} s")


if __name__ == "__main__":
    main()
