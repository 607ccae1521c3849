"""Plan against run: a worker is measured, then serves requests live, and the plan is held up to it.

Every plan is made with a cost model that was fitted before the run.
"""

from __future__ import annotations

import gc
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import orsched
from benchmarks.speed.section import Options, Section, Target
from orsched.calibration.candidates import Calibration, calibrate
from orsched.calibration.observed import step_contents
from orsched.common.errors import MissingDependencyError
from orsched.data.workers import Worker
from orsched.instances.synthetic import OUTPUT_LIMIT_TOKENS, gsm8k, prompt_tokens
from orsched.runner.loop.live import execute_policy
from orsched.runner.measuring import (
    Measured,
    WorkerOptions,
    make_device,
    measure_worker,
)
from orsched.runner.policy_source import PolicySource, policy_source
from orsched.runner.utilization import NvmlSampler, gaps

if TYPE_CHECKING:
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.devices.device import Device

NAME = "runner"
PREFILL_CAP = 2048
SLOTS, REQUESTS = 16, 240
POLICIES = ("fcfs", "online")
CALM = 90.0
"""Percent of the wall time in which this process has a processor on a calm machine, at least."""


class Run(NamedTuple):
    """A run with what was planned.

    Attributes:
        instance: what was run, with the fitted cost model.
        trace: what happened.
        plan_ns: the makespan by the plan.
        cpu_share: CPU time of this process by wall time.
        nvml: samples of the GPU, or None.
    """

    instance: Instance
    trace: Schedule
    plan_ns: int
    cpu_share: float
    nvml: dict[str, Any] | None

    @property
    def error(self) -> float:
        """By how much the plan is above the run."""
        return self.plan_ns / self.trace.makespan_ns - 1


def workload(requests: int, slots: int, cost: CostModel | None = None, seed: int = 0) -> Instance:
    """Return GSM8K requests on a worker; the first token comes from the prefill."""
    made = gsm8k(seed, requests, slots, PREFILL_CAP, first_token="prefill")
    if cost is None:
        return made
    return made.replace(workers=Worker(slots, cost, PREFILL_CAP, name="measured"))


def longest() -> int:
    """Return the tokens of the longest request that any workload here can have."""
    return int(prompt_tokens().max()) + OUTPUT_LIMIT_TOKENS


def calibrated(
    device: Device, repeats: int, requests: int | None, factor: int = 2, seed: int = 1
) -> tuple[Calibration, Measured]:
    """Measure a worker now, with a rehearsal of other requests of the same kind."""
    like = workload(1319, 1, seed=seed).requests
    found = measure_worker(device, PREFILL_CAP, repeats, seed, requests, like, factor=factor)
    return calibrate(found.steps), found


def planned(instance: Instance, name: str, iterations: int) -> PolicySource:
    """Return a method's policy and plan; of hybrid with one queue where packing has no solver."""
    try:
        return policy_source(instance, name, iterations=iterations)
    except MissingDependencyError as error:
        if name != "hybrid":
            raise
        print(f"hybrid plans without packing: {error}", flush=True)
        return policy_source(instance, "hybrid+assignment=shared", iterations=iterations)


def run_live(device: Device, instance: Instance, name: str, iterations: int = 20) -> Run:
    """Plan with the instance's cost model, then let the policy (or its plan) drive the worker."""
    resolved = planned(instance, name, iterations)
    kind = device.facts["device"]
    gc.collect()
    gc.freeze()
    wall, cpu = perf_counter(), process_time()
    with NvmlSampler(kind) as sampler:
        done = execute_policy(instance, resolved.policy, device, vocabulary=device.vocabulary)
    share = (process_time() - cpu) / (perf_counter() - wall)
    gc.unfreeze()
    trace = done.schedule.replace(
        method=name,
        run={**done.schedule.run, "device": device.name, "clock": device.clock},
    )
    faults = orsched.check(instance, trace, times="measured")
    if faults:
        raise RuntimeError(f"the trace of {name} is not valid: {faults[0]}")
    return Run(instance, trace, resolved.plan.makespan_ns, share, sampler.summary())


def run(options: Options) -> Section:
    """Calibrate and run, several times."""
    section = Section(NAME, "a calibrated plan against a run on a worker on the CPU")
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError:
        section.rows.append({"policy": "-", "remark": "torch is missing: pip install .[runner]"})
        section.targets = [Target("makespan error (median)", None, 10.0, "%")]
        return section
    threads = torch.get_num_threads()
    try:
        for repeat in range(1 if options.tiny else 3):
            section.rows += _rows(options, repeat)
    finally:
        torch.set_num_threads(threads)
    calm = [row["error_%"] for row in section.rows if row["calm"]]
    errors = calm or [row["error_%"] for row in section.rows]
    section.targets = [Target("makespan error (median)", median(errors), 10.0, "%")]
    section.notes = [
        "Model tiny, one thread. In each repeat the worker is measured (a grid, and a rehearsal "
        "with other requests), the best cost model by its error on points held out makes the "
        "plans, then the policies decide live on the same worker.",
        "calibration_%: mean error on points held out. cpu_%: share of the wall time in which "
        "this process had a processor, in the run and while the worker was measured; at 90 % in "
        f"both the machine counts as calm. moved_%: by how much its speed moved "
        f"meanwhile. The median is over the {len(calm)} calm runs"
        + (
            "."
            if calm
            else ": there are none, so it is over all of them, and says more of what else ran here "
            "than of the plans."
        ),
    ]
    return section


def _rows(options: Options, repeat: int) -> list[dict[str, Any]]:
    requests, slots = (12, 4) if options.tiny else (REQUESTS, SLOTS)
    wanted = WorkerOptions("tiny", "cpu", "float32", slots, longest(), threads=1)
    device, _ = make_device(wanted)
    wall, cpu = perf_counter(), process_time()
    found, measured = calibrated(device, 1 if options.tiny else 5, 8 if options.tiny else None)
    share = (process_time() - cpu) / (perf_counter() - wall)
    best, rows = found.candidate(), []
    assert best.cost is not None
    for name in POLICIES:
        done = run_live(device, workload(requests, slots, best.cost), name)
        between = gaps(done.instance, done.trace, step_contents(done.instance, done.trace))
        rows.append(
            {
                "policy": name,
                "requests": requests,
                "repeat": repeat + 1,
                "cost_model": best.model,
                "calibration_%": 100 * best.errors["all"]["mean"],
                "plan_s": done.plan_ns / 1e9,
                "run_s": done.trace.makespan_ns / 1e9,
                "error_%": 100 * abs(done.error),
                "plan_is": "above" if done.error > 0 else "below",
                "gaps_%": 100 * between["share"],
                "cpu_run_%": 100 * done.cpu_share,
                "cpu_measured_%": 100 * share,
                "moved_%": 100 * measured.speed.moved,
                "calm": 100 * min(share, done.cpu_share) >= CALM,
            }
        )
    return rows
