"""Numbers of a fleet whose workers come and go: how long they were there, and what was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.columns import exact_sum
from orsched.data.availability import time_within
from orsched.metrics.distributions import ratio

if TYPE_CHECKING:
    from orsched.metrics.timeline import Timeline


def fleet_figures(line: Timeline, makespan_ns: int) -> dict[str, Any]:
    """Return ``fleet`` for an instance whose workers are not always there, else nothing.

    ``available_ns`` is the time that the workers are there until the makespan, all together;
    ``busy_ns`` that of their steps, and ``utilization`` its share. ``lost_steps`` were in progress
    when their worker failed, for ``lost_ns`` in all, which are not busy; ``recomputed_tokens``
    were prefilled although an earlier stay of the request had them. With autoscaling there are
    ``ordered_ns`` beside, the time from the orders of workers to their ends, and ``starts``.
    """
    if not line.instance.fleet_changes:
        return {}
    workers, rows = line.instance.workers, line.schedule.on_times
    if line.instance.autoscaling is None:
        available = sum(time_within(worker.available_ns, makespan_ns) for worker in workers)
        paid = {}
    else:
        available = sum(time_within([(row.start_ns, row.end_ns)], makespan_ns) for row in rows)
        ordered = sum(time_within([(row.ordered_ns, row.end_ns)], makespan_ns) for row in rows)
        paid = {"ordered_ns": ordered, "starts": sum(row.ordered_ns > 0 for row in rows)}
    busy, lost = exact_sum(line.end_ns - line.start_ns), line.schedule.lost_steps
    return {
        "fleet": {
            "available_ns": available,
            "busy_ns": busy,
            "utilization": ratio(busy, available),
            "lost_steps": len(lost),
            "lost_ns": sum(end - start for _, start, end in lost),
            "recomputed_tokens": exact_sum(line.recomputed),
            **paid,
        }
    }
