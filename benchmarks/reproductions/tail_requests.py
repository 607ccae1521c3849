"""Which requests make the p99 of the JCT of gittins with ``boost_s`` and ``crowd``.

ORSCHED_DATA=... python -m benchmarks.reproductions.tail_requests [--seeds 5] [--load 0.9]

Means over the seeds that judge in ``tail``. The slowest are those at p99 and above it; *waits* is
the part of their JCT before the first token, and the pace the time from one token to the next, the
prefills between the rounds included.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.arguments import count, share
from benchmarks.reproductions.page_tables import markdown
from benchmarks.reproductions.tail import FIRST_JUDGED, SCHEDULERS, WORKLOADS, workload
from orsched.common import registry
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance

LABEL = "gittins, tail"


def slowest(instance: Instance) -> dict[str, float]:
    """Return what is told of the slowest hundredth of a run's requests."""
    scheduler, req = SCHEDULERS[LABEL], instance.requests
    known = Information(scheduler.information)
    method = registry.resolve("methods", scheduler.method)
    policy, _ = method.build(instance, known, dict(scheduler.options), 0)
    times = simulate_policy(instance, policy).schedule.request_times(instance)
    jct, ttft = times["finish_ns"] - req.arrival_ns, times["first_token_ns"] - req.arrival_ns
    p99 = np.sort(jct)[-(-99 * len(jct) // 100) - 1]
    slow = jct >= p99
    prompts, outputs = req.prompt_tokens, req.output_tokens
    pace = (jct - ttft)[slow] / np.maximum(outputs[slow] - 1, 1)
    return {
        "p99 s": float(p99) / 1e9,
        "waits, %": 100 * float((ttft[slow] / jct[slow]).mean()),
        "prompt over median": float(np.median(prompts[slow]) / np.median(prompts)),
        "answer over median": float(np.median(outputs[slow]) / np.median(outputs)),
        "pace, ms": float(pace.mean()) / 1e6,
        "pace alone, ms": instance.workers[0].cost.round_ns(1, 1, 1) / 1e6,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each workload: means over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=count, default=5)
    parser.add_argument("--load", type=share, default=0.9)
    options = parser.parse_args(arguments)
    seeds = range(FIRST_JUDGED, FIRST_JUDGED + options.seeds)
    rows = []
    for name in WORKLOADS:
        found = [slowest(workload(name, options.load, seed)) for seed in seeds]
        means = {key: np.mean([each[key] for each in found]) for key in found[0]}
        rows.append({"workload": name, **{key: f"{mean:.1f}" for key, mean in means.items()}})
    print(markdown(rows))


if __name__ == "__main__":
    main()
