"""Gaps on the four workloads where memory binds: at load 0.9 and all at 0, of two checkouts.

    PYTHONPATH=CHECKOUT python benchmarks/memory_gaps.py write gaps.jsonl [SHORT]
    python benchmarks/memory_gaps.py table before.jsonl after.jsonl

The requests, the cost ``contexts`` and the four workers are those of the page *Four real
workloads*. The memory of a worker is what a sixteenth of its clients need at the mean context, but
never more than there, and never less than twice the largest request. The saturation throughput is
measured with that memory. Bounds are those for what the schedule does. SHORT divides the number of
requests. ``ORSCHED_DATA`` names the folder of the public traces. Besides ``orsched`` itself only
the setting of the four workloads is used, so that the script runs on earlier versions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import orsched
from benchmarks.reproductions import four_workloads_setting as setting
from orsched.data.memory import BlockMemory
from orsched.data.schedule_classes import allowances_of
from orsched.instances import with_arrivals
from orsched.simulator import simulate_policy
from orsched.solving.method_choice import choose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

LOAD, CLIENTS_SHARE, POLICIES = 0.9, 16, ("vllm", "gittins")
OBJECTIVES = {"makespan": "makespan", "jct": "mean_jct"}
S = 10**9


def main(args: list[str]) -> None:
    """Write rows, or print two files of them as a table."""
    if args[0] == "write":
        with Path(args[1]).open("w") as file:
            for name in setting.WORKLOADS:
                for load, instance in bound_by_memory(name, int(args[2]) if len(args) > 2 else 1):
                    for row in rows(instance):
                        file.write(json.dumps({"workload": name, "load": load, **row}) + "\n")
                        file.flush()
        return
    before, after = (
        [json.loads(line) for line in Path(path).read_text().splitlines()] for path in args[1:]
    )
    heads = (
        "workload",
        "load",
        "policy",
        "restarts",
        *OBJECTIVES,
        *(f"gap of {x}" for x in OBJECTIVES),
    )
    print(f"| {' | '.join(heads)} |\n| {' | '.join(['---'] * len(heads))} |")
    for old, new in zip(before, after, strict=True):
        values = [f"{new[each]:.1f} s" for each in OBJECTIVES]
        gaps = [
            " to ".join(f"{100 * (new[each] / max(1e-9, row[f'{each}_bound']) - 1):,.0f} %"
                        for row in (old, new))
            for each in OBJECTIVES
        ]  # fmt: skip
        rate = "all at 0" if new["load"] is None else f"{new['load']}"
        said = (new["workload"], rate, new["policy"], f"{new['restarts']:,}", *values, *gaps)
        print(f"| {' | '.join(said)} |")


def bound_by_memory(name: str, short: int) -> Iterator[tuple[float | None, Instance]]:
    """Yield a workload on workers with less memory: at the load, and all at 0."""
    kind, instance = setting.WORKLOADS[name], setting.workload(name, None, 0, short, "contexts")
    worker, size = instance.workers[0], setting.BLOCK_TOKENS
    requests = instance.requests
    largest = int(requests.prompt_tokens.max()) + kind.limit
    blocks = int(setting.CLIENTS // CLIENTS_SHARE * kind.context) // size
    most = setting.CACHE_TOKENS // size
    blocks = max(2 * -(-largest // size), min(blocks, most))
    memory = BlockMemory(blocks, size, "paged")
    small = orsched.Worker(worker.clients, worker.cost, None, memory)
    instance = instance.replace(workers=(small,) * len(instance.workers))
    ends = np.sort(schedule_of(instance, "vllm").request_times(instance)["finish_ns"])
    first, last = len(ends) // 4, 3 * len(ends) // 4
    rate = LOAD * float((last - first) / ((ends[last] - ends[first]) / S))
    law = "replay" if kind.replay else "poisson"
    arriving = instance
    if kind.replay:
        arriving = instance.replace(
            requests=setting.workload(name, LOAD, 0, short, "contexts").requests
        )
    yield LOAD, with_arrivals(arriving, {"law": law, "rate": rate}, 0)
    yield None, instance


def schedule_of(instance: Instance, name: str) -> Schedule:
    """Return what a policy does, with predicted lengths where it takes them."""
    chosen = choose(name)
    method: Any = chosen.method
    policy, _ = method.build(instance, chosen.information, {}, 0)
    return simulate_policy(instance, policy).schedule


def rows(instance: Instance) -> Iterator[dict[str, Any]]:
    """Yield a row for each policy: values, and the bounds for what its schedule does."""
    for name in POLICIES:
        schedule = schedule_of(instance, name)
        ends = schedule.request_times(instance)["finish_ns"]
        allows = sorted(allowances_of(instance, schedule))
        jct = float((ends - instance.requests.arrival_ns).mean()) / S
        values = {"makespan": schedule.makespan_ns / S, "jct": jct}
        bounds = {
            f"{each}_bound": orsched.bound(instance, objective, allows=allows).value_s
            for each, objective in OBJECTIVES.items()
        }
        work = schedule.work
        restarts = len(np.unique(np.stack([work.request, work.stay]), axis=1).T) - len(instance)
        row: dict[str, Any] = {"policy": name, "restarts": restarts}
        yield {**row, **values, **bounds, "allows": allows}


if __name__ == "__main__":
    main(sys.argv[1:])
