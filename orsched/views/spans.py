"""Spans of a schedule: which request holds which client when, as columns to draw or to export."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.data.schedule import DECODE, INVALID
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Spans:
    """Stretches of time of requests on clients, one row each, in order of request, then time.

    Attributes:
        request: row of the request.
        lane: client, counted through all workers (``lane_offsets``).
        start_ns, end_ns: times.
        first_step, last_step: rows of ``Steps``, both included.
        stay: number of the request's stay.
    """

    request: IntColumn
    lane: IntColumn
    start_ns: IntColumn
    end_ns: IntColumn
    first_step: IntColumn
    last_step: IntColumn
    stay: IntColumn

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
            self.stay[rows],
        )


def lane_offsets(instance: Instance) -> IntColumn:
    """Return the first lane of each worker, and the number of lanes at the end."""
    return np.cumsum([0, *(worker.clients for worker in instance.workers)], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ClientUse:
    """What every client does with the requests that it holds; the spans of a client are disjoint.

    Attributes:
        prefill: one span a prefill row (chunks are rows).
        decode: one span a decode row, from the end of the row before to its last token; prefills
            of others in between are part of it. A request that its prefill finishes has none.
        invalid: the same for the rounds after the last token.
        paused: between two rows of a stay, while the worker decodes without the request, or before
            the next part of its prompt.
        stays: the unbroken time of each request on a client; an eviction ends it.
        restarts: those that come after an eviction.
        transfers: caches on their way over links, on the clients of both workers.
        bulk: by request, whether it is bulk, where some are and others are not; else None.
    """

    prefill: Spans
    decode: Spans
    invalid: Spans
    paused: Spans
    stays: Spans
    restarts: Spans
    transfers: Spans
    bulk: Mask | None = None


def client_use(instance: Instance, schedule: Schedule) -> ClientUse:
    """Return the spans of all requests."""
    line = Timeline(instance, schedule)
    work, steps = schedule.work, schedule.steps
    lane = lane_offsets(instance)[line.row_worker] + work.client
    start, end = line.start_ns[line.first], line.end_ns[line.last]

    def spans(
        rows: IntColumn | Mask, begin: IntColumn, until: IntColumn, first: IntColumn
    ) -> Spans:
        return Spans(
            work.request[rows], lane[rows], begin[rows], until[rows], first[rows],
            work.last_step[rows], work.stay[rows],
        )  # fmt: skip

    follows = np.ones(len(work), bool)
    follows[line.stay_row] = False
    before = np.maximum(np.arange(len(work)) - 1, 0)
    ended = end[before]
    # A row that yields tokens joins the row before unless the worker had rounds in between.
    rounds = line.rounds_before[line.first] - line.rounds_before[line.last[before] + 1]
    joins = follows & ~line.is_prefill & (rounds == 0)
    begin = np.where(joins, ended, start)
    paused = np.flatnonzero(follows & ~joins & (start > ended))
    head, tail = line.stay_row, line.stay_end
    stays = Spans(
        work.request[head], lane[head], start[head], steps.end_ns[work.last_step[tail]],
        work.first_step[head], work.last_step[tail], work.stay[head],
    )  # fmt: skip
    return ClientUse(
        prefill=spans(line.is_prefill, start, end, work.first_step),
        decode=spans(work.phase == DECODE, begin, end, work.first_step),
        invalid=spans(work.phase == INVALID, begin, end, work.first_step),
        paused=Spans(
            work.request[paused], lane[paused], ended[paused], start[paused],
            work.last_step[before][paused], work.first_step[paused], work.stay[paused],
        ),
        stays=stays,
        restarts=stays.take(_again(line)),
        transfers=_transfers(line, stays),
        bulk=instance.bulk if instance.bulk.any() and not instance.bulk.all() else None,
    )  # fmt: skip


def _again(line: Timeline) -> Mask:
    """Return which stays come after an eviction."""
    later: Mask = line.stay[line.stay_row] > 0
    return later if line.schedule.transfers is None else later & ~line.handovers.comes


def _transfers(line: Timeline, stays: Spans) -> Spans:
    """Return when caches go, on the clients that hold them meanwhile."""
    sent = line.schedule.transfers
    if sent is None:
        return stays.take(np.zeros(0, np.int64))
    hands = line.handovers
    goes, comes = np.flatnonzero(hands.goes), np.flatnonzero(hands.comes)
    found = stays.take(np.concatenate([goes, comes]))
    rows = np.concatenate([hands.out_of[goes], hands.into[comes]])
    return replace(found, start_ns=sent.start_ns[rows], end_ns=sent.end_ns[rows])


def rank_in_lane(spans: Spans) -> IntColumn:
    """Return the place of each span's request in its lane's order of start, from 0.

    Successive spans of one request share it.
    """
    order = np.lexsort((spans.start_ns, spans.lane))
    lanes, requests = spans.lane[order], spans.request[order]
    changes = np.zeros(len(order), np.int64)
    changes[1:] = (lanes[1:] != lanes[:-1]) | (requests[1:] != requests[:-1])
    place = np.cumsum(changes)
    head = np.ones(len(order), bool)
    head[1:] = lanes[1:] != lanes[:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = place - np.maximum.accumulate(np.where(head, place, 0))
    return rank
