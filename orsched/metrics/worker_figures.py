"""What each worker of a schedule did: load, prefix cache, queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.data.schedule import as_schedule, served_instance
from orsched.metrics.flat_figures import ratio
from orsched.metrics.timeline import Timeline
from orsched.metrics.timeline_rows import changes

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Scheduled


def worker_figures(instance: Instance, schedule: Scheduled) -> list[dict[str, Any]]:
    """Return a row for each worker, in order: its name, and six figures.

    ``requests``: those that it served for some time. ``busy``: the share of the makespan in which
    it runs steps. ``prefilled_tokens``: those that it computed. ``hit_rate``: the share of tokens
    that its stays found in its prefix cache, None without one. A request waits in the queue of the
    worker that serves it first, from its arrival to its first step: ``queue_mean`` is the number
    that wait, over the makespan, ``queue_max`` the largest.
    """
    schedule = as_schedule(schedule)
    line = Timeline(served_instance(instance, [schedule]), schedule)
    workers, makespan = line.instance.workers, int(line.end_ns.max(initial=0))
    busy = np.diff(line.time_before[line.heads()]).tolist()
    pairs = np.unique(np.stack([line.stay_worker, line.stay_request]), axis=1)[0]
    served = np.bincount(pairs, minlength=len(workers)).tolist()
    hit, computed = np.zeros((2, len(workers)), np.int64)
    np.add.at(hit, line.stay_worker, line.stay_hit)
    np.add.at(computed, line.stay_worker, line.prefilled)
    rows = np.flatnonzero(changes(line.request))
    arrival = line.instance.requests.arrival_ns[line.request[rows]]
    begin, first = line.start_ns[line.first[rows]], line.row_worker[rows]
    found = []
    for index, worker in enumerate(workers):
        own = (first == index) & (begin > arrival)
        came, left = np.sort(arrival[own]), np.sort(begin[own])
        waiting = np.searchsorted(came, came, "right") - np.searchsorted(left, came, "right")
        cached, made = int(hit[index]), int(computed[index])
        found.append({
            "worker": worker.name,
            "requests": served[index],
            "busy": ratio(busy[index], makespan),
            "prefilled_tokens": made,
            "hit_rate": ratio(cached, cached + made) if worker.caches_prefixes else None,
            "queue_mean": ratio(int((left - came).sum()), makespan),
            "queue_max": int(waiting.max(initial=0)),
        })  # fmt: skip
    return found


def imbalance(rows: list[dict[str, Any]]) -> float | None:
    """Return the busy time of the busiest worker over the mean: 1 where all are equally busy."""
    total = sum(row["busy"] or 0 for row in rows)
    return max(row["busy"] or 0 for row in rows) * len(rows) / total if total else None


def extremes(rows: list[dict[str, Any]], most: int = 16) -> list[dict[str, Any]]:
    """Return rows as they are, of more than ``most`` the busiest and then the least busy ones."""
    if len(rows) <= most:
        return rows
    ordered = sorted(rows, key=lambda row: -(row["busy"] or 0))
    return ordered[: most // 2] + ordered[-most // 2 :]
