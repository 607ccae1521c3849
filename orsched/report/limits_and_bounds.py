"""What latencies of a report are held against: limits of the schedules, bounds on their means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.instance import Instance
    from orsched.report.comparison import Row
    from orsched.schedule import Schedule
    from orsched.slo import SLO

MOST_REQUESTS = 20_000
"""Instances with more requests get no bounds on means in a report: they take too long."""


def slo_of(schedules: Sequence[Schedule]) -> SLO | None:
    """Return the limits that the schedules were made with; None without any, or with several."""
    from orsched.slo import SLO

    given = [s.results["slo"] for s in schedules if isinstance(s.results.get("slo"), dict)]
    pairs = {(slo.get("ttft_ns"), slo.get("tpot_ns")) for slo in given}
    if len(pairs) != 1:
        return None
    ttft_ns, tpot_ns = pairs.pop()
    return SLO(ttft_ns=ttft_ns, tpot_ns=tpot_ns)


def mean_bounds(instance: Instance, rows: Sequence[Row]) -> dict[str, list[int | None]]:
    """Return lower bounds on mean TTFT and JCT, by row; only what is above 0.

    They hold for what the schedule does (chunks, mixed steps, restarts). Runs have none: their
    worker may be faster than its model.
    """
    from orsched.models.bound_scope import allowances_of
    from orsched.models.bounds import bound

    if not 0 < len(instance) <= MOST_REQUESTS:
        return {}
    found = {}
    for measure in ("ttft", "jct"):
        known: dict[frozenset[str], int] = {}
        column: list[int | None] = []
        for row in rows:
            if row.violations or row.schedule.is_measured:
                column.append(None)
                continue
            needed = frozenset(allowances_of(instance, row.schedule))
            if needed not in known:
                known[needed] = bound(instance, f"mean_{measure}", allows=needed).value_ns
            column.append(known[needed] or None)
        if any(column):
            found[measure] = column
    return found
