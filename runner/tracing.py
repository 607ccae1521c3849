"""The trace of a run: a schedule with measured times, and what was measured beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.calibration.gaps import gaps_ns
from orsched.common.versions import environment
from orsched.metrics.summary import distribution, ratio, summarise
from orsched.metrics.timeline import Timeline
from orsched.models.bounds.bounds import Bound, bound_for

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.runner.loop.live import Executed
    from orsched.runner.policy_source import PolicySource
    from orsched.runner.worker_pool import WorkerPool


class Clocked(NamedTuple):
    """Seconds spent on planning, on loading the workers, and on the run."""

    plan: float
    load: float
    run: float


_OF_RUNS = ("events", "complete", "unfinished")


def measured_trace(
    instance: Instance,
    timeline: Schedule,
    done: Executed,
    resolved: PolicySource,
    workers: WorkerPool,
    seed: int,
    spent: Clocked,
) -> Schedule:
    """Return a run as a trace: timeline, reported numbers, bound, and a ``run`` block.

    A run that was stopped has no reported numbers.
    """
    names = dict.fromkeys(device.name for device in workers.devices)
    clocks = dict.fromkeys(device.clock for device in workers.devices)
    decisions = distribution(done.decision_ns)
    block: dict[str, Any] = {
        "device": ", ".join(names),
        "clock": ", ".join(clocks),
        **workers.about,
        "seed": seed,
        "decision_ns": None if decisions is None else {"count": len(done.decision_ns), **decisions},
        "runtime_s": spent._asdict(),
        "plan": resolved.noted(),
        **{name: timeline.run[name] for name in _OF_RUNS if name in timeline.run},
        "environment": environment(("torch", "transformers")),
    }
    trace = timeline.replace(run=block)
    block |= use_of_devices(instance, trace)
    if workers.watch is not None:
        block |= workers.watch.summary(instance, trace)
    if trace.is_partial:
        return trace
    trace = trace.replace(bound=_bound(instance, resolved.whole or resolved.plan, trace))
    return trace.replace(results=summarise(instance, trace))


def use_of_devices(instance: Instance, trace: Schedule) -> dict[str, Any]:
    """Return how busy the devices were, and the gaps between their steps.

    ``busy_share`` is the time in steps over workers times makespan. A gap is the time from the end
    of a worker's step, or from the arrival of all that the next step prefills if that is later, to
    the start of the next: waiting for requests does not count, waiting for a decision does.
    """
    line = Timeline(instance, trace)
    gaps = gaps_ns(instance, line)
    busy, whole = int(line.time_before[-1]), len(instance.workers) * trace.makespan_ns
    spread, total = distribution(gaps), int(gaps.sum())
    return {
        "busy_share": ratio(busy, whole),
        "gap_share": ratio(total, whole),
        "gap_ns": None if spread is None else {"count": len(gaps), "total": total, **spread},
    }


def _bound(instance: Instance, plan: Schedule, trace: Schedule) -> dict[str, Any] | None:
    """Return the plan's bound if it holds for what was done.

    It is a bound by the times of the cost model: a run that ends before it shows that the device is
    faster than the model, and has none.
    """
    if plan.bound is None or plan.instance_sha256 != instance.sha256:
        return None
    found = bound_for(instance, trace, Bound(**plan.bound, reference={}))
    if found is None or found.value_ns > trace.makespan_ns:
        return None
    return found.to_dict()
