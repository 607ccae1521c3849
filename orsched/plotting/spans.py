"""Spans of a schedule: who holds which client when, as columns ready to draw or to export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.schedule import DECODE, PREFILL

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.schedule import Schedule

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Spans:
    """Stretches of time of requests on clients, one row each, in order of request, then time.

    Attributes:
        request: row of the request.
        lane: client, counted through all workers (``lane_offsets``).
        start_ns, end_ns: times.
        first_step, last_step: rows of ``Steps``, both included.
    """

    request: IntColumn
    lane: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    first_step: IntColumn
    last_step: IntColumn

    def __len__(self) -> int:
        return len(self.request)

    def take(self, rows: IntColumn | Mask) -> Spans:
        """Return the given rows."""
        return Spans(
            self.request[rows],
            self.lane[rows],
            self.start_ns[rows],
            self.end_ns[rows],
            self.first_step[rows],
            self.last_step[rows],
        )


def lane_offsets(instance: Instance) -> IntColumn:
    """Return the first lane of each worker, and the number of lanes at the end."""
    return np.cumsum([0, *(worker.clients for worker in instance.workers)], dtype=np.int64)


def _worker_and_lane(instance: Instance, schedule: Schedule) -> tuple[IntColumn, IntColumn]:
    """Return the worker and the lane of each work row."""
    worker = schedule.steps.worker[schedule.work.first_step]
    return worker, lane_offsets(instance)[worker] + schedule.work.client


def _stay_begins(schedule: Schedule, lane: IntColumn) -> Mask:
    """Mark the work rows that begin a stay: a new request, another client, or a restart."""
    work = schedule.work
    begins = np.ones(len(work), bool)
    begins[1:] = (
        (work.request[1:] != work.request[:-1])
        | (lane[1:] != lane[:-1])
        | (work.phase[:-1] == DECODE)
    )
    return begins


def prefill_spans(instance: Instance, schedule: Schedule) -> Spans:
    """Return the prefill of each request: one row a prefill work row (chunks are rows)."""
    steps, work = schedule.steps, schedule.work
    rows = np.flatnonzero(work.phase == PREFILL)
    first, last = work.first_step[rows], work.last_step[rows]
    lane = _worker_and_lane(instance, schedule)[1][rows]
    return Spans(work.request[rows], lane, steps.start_ns[first], steps.end_ns[last], first, last)


def decode_spans(instance: Instance, schedule: Schedule) -> Spans:
    """Return the decode of each request as one bar from its prefill's end to its finish.

    Prefill stages of others in between are part of the bar. A request that is sliced or
    restarted has a bar for each decode work row; one that its prefill finishes has none.
    """
    steps, work = schedule.steps, schedule.work
    lane = _worker_and_lane(instance, schedule)[1]
    rows = np.flatnonzero(work.phase == DECODE)
    first, last = work.first_step[rows], work.last_step[rows]
    fresh = _stay_begins(schedule, lane)[rows]
    before = work.last_step[np.maximum(rows - 1, 0)]
    start = np.where(fresh, steps.start_ns[first], steps.end_ns[before])
    return Spans(work.request[rows], lane[rows], start, steps.end_ns[last], first, last)


def stays(instance: Instance, schedule: Schedule) -> Spans:
    """Return the unbroken time of each request on a client, from prefill start to last token.

    A request that is evicted, sliced or restarted has several rows.
    """
    steps, work = schedule.steps, schedule.work
    lane = _worker_and_lane(instance, schedule)[1]
    begin = np.flatnonzero(_stay_begins(schedule, lane))
    end = np.append(begin[1:], len(work))[: len(begin)] - 1
    first, last = work.first_step[begin], work.last_step[end]
    return Spans(
        work.request[begin], lane[begin], steps.start_ns[first], steps.end_ns[last], first, last
    )


def rank_in_lane(spans: Spans) -> IntColumn:
    """Return each span's place in its lane's order of start, from 0."""
    order = np.lexsort((spans.start_ns, spans.lane))
    lanes = spans.lane[order]
    place = np.arange(len(order))
    head = np.ones(len(order), bool)
    head[1:] = lanes[1:] != lanes[:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = place - np.maximum.accumulate(np.where(head, place, 0))
    return rank
