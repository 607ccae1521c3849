"""Runs of settings on the six workloads, checked, and kept in a file as they end."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.reproductions import four_workloads_setting as setting
from benchmarks.reproductions.four_workloads_runs import Scheduler
from benchmarks.reproductions.six_workloads_settings import spec
from orsched.checker import check
from orsched.common import registry
from orsched.metrics.flat_figures import distribution
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from orsched.data.instance import Instance

AT_ONCE = 12
"""Settings of a piece of work: what is lost if a run is stopped."""


class Case(NamedTuple):
    """The requests of one run.

    Attributes:
        workload: its name.
        load: arrivals over the throughput in saturation; None: all are there at 0.
        seed: which window or draw.
        cost: as in ``four_workloads_setting``.
        short: what the number of requests is divided by.
    """

    workload: str
    load: float | None
    seed: int
    cost: str
    short: int


class Latencies(NamedTuple):
    """Figures of one run: seconds, TPOT in milliseconds, attainment in per cent."""

    mean_s: float
    p99_s: float
    ttft_s: float
    ttft_p99_s: float
    tpot_ms: float
    tpot_p99_ms: float
    kept: float


@lru_cache(maxsize=2)
def requests(case: Case) -> Instance:
    """Return the requests of a case."""
    return setting.workload(case.workload, case.load, case.seed, case.short, case.cost)


def run(case: Case, scheduler: Scheduler) -> Latencies:
    """Run a setting; the checker accepts its schedule."""
    instance = requests(case)
    method, known = (
        registry.resolve("methods", scheduler.method),
        Information(scheduler.information),
    )
    policy = method.build(instance, known, dict(scheduler.options), 0)[0]
    schedule = simulate_policy(instance, policy).schedule
    wrong = check(instance, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects {spec(scheduler)}: {wrong[0]}")
    times, arrival = schedule.request_times(instance), instance.requests.arrival_ns
    finish, first = times["finish_ns"], times["first_token_ns"]
    outputs = instance.requests.output_tokens
    pace = (finish - first) // np.maximum(outputs - 1, 1)
    kind = setting.ALL[case.workload]
    kept = (first - arrival <= kind.ttft_s * 1e9) & ((pace <= kind.tpot_s * 1e9) | (outputs < 2))
    figures = []
    for values, unit in ((finish - arrival, 1e9), (first - arrival, 1e9), (pace[outputs > 1], 1e6)):
        found = distribution(values) or {"mean": 0, "p99": 0}
        figures += [found["mean"] / unit, found["p99"] / unit]
    return Latencies(*figures, 100 * float(kept.mean()))


Job = tuple[Case, list[Scheduler]]


def piece(job: Job) -> list[tuple[str, Latencies]]:
    """Run some settings on the requests of a case."""
    case, schedulers = job
    return [(key(case, each), run(case, each)) for each in schedulers]


def key(case: Case, scheduler: Scheduler) -> str:
    """Return the name of a run in the file that keeps it."""
    return json.dumps([*case, spec(scheduler), scheduler.information])


@dataclass
class Runs:
    """Figures of all runs so far.

    Attributes:
        file: where they are kept, a line a run; None: nowhere.
        each: like ``map``, in one process or in several.
        found: figures by ``key``.
    """

    file: Path | None = None
    each: Callable[..., Iterable[Any]] = map
    found: dict[str, Latencies] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            for line in self.file.read_text(encoding="utf-8").splitlines():
                name, values = json.loads(line)
                self.found[name] = Latencies(*values)

    def need(self, what: str, wanted: Iterable[tuple[Case, Scheduler]]) -> None:
        """Make the runs that are not there yet."""
        missing: dict[Case, dict[str, Scheduler]] = {}
        for case, each in wanted:
            if key(case, each) not in self.found:
                missing.setdefault(case, {})[key(case, each)] = each
        work: list[Job] = []
        for case, by_key in missing.items():
            each_of = list(by_key.values())
            work += [(case, each_of[i : i + AT_ONCE]) for i in range(0, len(each_of), AT_ONCE)]
        for number, rows in enumerate(self.each(piece, work), 1):
            self.found.update(rows)
            print(f"\r{what}: {number} of {len(work)}", end="", file=sys.stderr, flush=True)
            if self.file is not None:
                with self.file.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
        if work:
            print(file=sys.stderr)

    def of(self, case: Case, scheduler: Scheduler) -> Latencies:
        """Return the figures of a run."""
        return self.found[key(case, scheduler)]
