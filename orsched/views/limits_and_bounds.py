"""What latencies of a report are held against: limits of the schedules, bounds on their means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.slo import SLO
    from orsched.views.comparison import Row

MOST_REQUESTS = 20_000
"""Instances with more requests get no bounds on means in a report: they take too long."""


def slo_of(schedules: Sequence[Schedule]) -> SLO | None:
    """Return the limits that the schedules were made with; None without any, or with several."""
    from orsched.data.slo import SLO

    given = [s.results["slo"] for s in schedules if isinstance(s.results.get("slo"), dict)]
    pairs = {(slo.get("ttft_ns"), slo.get("tpot_ns")) for slo in given}
    if len(pairs) != 1:
        return None
    ttft_ns, tpot_ns = pairs.pop()
    return SLO(ttft_ns=ttft_ns, tpot_ns=tpot_ns)


def bounds_on_means(instance: Instance, rows: Sequence[Row]) -> dict[str, list[int | None]]:
    """Return lower bounds on mean TTFT and JCT, by row; only what is above 0.

    They hold for what the schedule does (chunks, mixed steps, restarts). Runs have none: their
    worker may be faster than its model.
    """
    if not 0 < len(instance) <= MOST_REQUESTS:
        return {}
    found = {}
    for measure in ("ttft", "jct"):
        column = [_bound_ns(instance, row, f"mean_{measure}") for row in rows]
        if any(column):
            found[measure] = column
    return found


def _bound_ns(instance: Instance, row: Row, objective: str) -> int | None:
    from orsched.models.bounds.mean_bounds import mean_bounds

    if row.violations or row.schedule.is_measured:
        return None
    found = mean_bounds(instance, row.schedule, [objective], None)
    return found[objective]["value_ns"] or None
