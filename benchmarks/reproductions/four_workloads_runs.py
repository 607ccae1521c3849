"""Runs of all policies on one workload of the comparison, checked, with bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.reproductions import four_workloads_setting as setting
from orsched.checker import check
from orsched.common import registry
from orsched.models.bounds.bounds import bound
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance

SHARED = (("dispatch", "least_work"),)
"""Policies that serve one worker each get the dispatcher that knows most."""

BY_LENGTH = (("policy", "priority"), ("priority", "length"), *SHARED)
BUDGET = (("max_num_batched_tokens", setting.TOKEN_BUDGET),)


class Scheduler(NamedTuple):
    """A registered method with its information and parameters."""

    method: str
    information: str
    options: tuple[tuple[str, Any], ...] = ()


OURS = {
    "none": Scheduler("gittins", "none"),
    "predicted": Scheduler("gittins", "predicted"),
}
"""The policy under test, with its defaults."""

PAPERS = {
    "none": {
        "fcfs": Scheduler("fcfs", "none", SHARED),
        "vllm": Scheduler("vllm", "none", (*SHARED, *BUDGET)),
        "static": Scheduler("static", "none", SHARED),
        "dynamic": Scheduler("dynamic", "none", SHARED),
        "fcfs_batched": Scheduler("fcfs_batched", "none", SHARED),
        "sls": Scheduler("sls", "none"),
        "ils": Scheduler("ils", "none", SHARED),
        "scls": Scheduler("scls", "none", (("interval_s", 3.0),)),
        "scls_continuous": Scheduler("scls_continuous", "none"),
        "mico, lengths unknown": Scheduler("mico", "none"),
    },
    "predicted": {
        "ssjf": Scheduler("ssjf", "predicted", SHARED),
        "mico": Scheduler("mico", "predicted"),
        "vllm, shortest first": Scheduler("vllm", "predicted", (*BY_LENGTH, *BUDGET)),
        "static, shortest first": Scheduler("static", "predicted", BY_LENGTH),
        "dynamic, shortest first": Scheduler("dynamic", "predicted", BY_LENGTH),
    },
}
"""Policies of the papers by information. ``interval_s`` of scls is that of the paper's faster
engine; sls, scls and mico have dispatchers of their own."""

REFERENCES = {
    "sjf (oracle)": Scheduler("sjf", "clairvoyant", SHARED),
    "gittins (oracle)": Scheduler("gittins", "clairvoyant"),
}

ALLOWED = ("chunks", "mixed", "restarts")
"""What the bounds allow: everything that any of the policies does."""


class Figures(NamedTuple):
    """Figures of one run.

    Attributes:
        mean_s, p99_s: of the JCT.
        makespan_s: when the last request is done.
        evictions: restarts of requests.
    """

    mean_s: float
    p99_s: float
    makespan_s: float
    evictions: int


class Cell(NamedTuple):
    """All that was found for one workload, load and seed.

    Attributes:
        figures: of each scheduler, by its name.
        makespan_bound_s, jct_bound_s: bounds on the makespan and on the mean JCT.
        requests: how many there are.
    """

    figures: dict[str, Figures]
    makespan_bound_s: float
    jct_bound_s: float
    requests: int


def schedulers() -> dict[str, Scheduler]:
    """Return all of them by name."""
    ours = {f"gittins {known}": each for known, each in OURS.items()}
    return ours | PAPERS["none"] | PAPERS["predicted"] | REFERENCES


def run(instance: Instance, scheduler: Scheduler) -> Figures:
    """Run a scheduler; the checker accepts its schedule."""
    method = registry.resolve("methods", scheduler.method)
    known = Information(scheduler.information)
    policy, _ = method.build(instance, known, dict(scheduler.options), 0)
    schedule = simulate_policy(instance, policy).schedule
    wrong = check(instance, schedule, limit=1)
    if wrong:
        raise AssertionError(f"the checker rejects the schedule: {wrong[0]}")
    finish = schedule.request_times(instance)["finish_ns"]
    jct = np.sort(finish - instance.requests.arrival_ns) / 1e9
    stays = int((schedule.work.stay > 0).sum())
    p99 = float(jct[-(-99 * len(jct) // 100) - 1])
    return Figures(float(jct.mean()), p99, schedule.makespan_ns / 1e9, stays)


def cell(job: tuple[str, float | None, int, int, str]) -> Cell:
    """Run all schedulers on the requests of a seed: the arguments of ``setting.workload``."""
    instance = setting.workload(*job)
    lower = {
        objective: bound(instance, objective, allows=ALLOWED).value_ns / 1e9
        for objective in ("makespan", "mean_jct")
    }
    figures = {label: run(instance, each) for label, each in schedulers().items()}
    return Cell(figures, lower["makespan"], lower["mean_jct"], len(instance))
