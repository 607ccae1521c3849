"""Where the client-time of a schedule goes: busy, or one of the bubbles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.columns import exact_sum
from orsched.schedule import INVALID

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.timeline import Timeline


def client_time(instance: Instance, line: Timeline) -> tuple[int, dict[str, int]]:
    """Split clients x makespan into busy time and bubbles by cause, in client-nanoseconds.

    Returns (busy, {waiting_for_prefill, other_prefill, no_request, tail, invalid}); they add up to
    clients x makespan exactly. A client that holds a request is busy in the steps that prefill it
    or yield one of its tokens; rounds after its last token are ``invalid``; the other steps of the
    worker, prefills of others and rounds without it, are ``other_prefill``. A free client waits for
    prefill while the worker is at work; while it is not, a client has no request to serve. After
    its last request a client is in the tail.
    """
    clients = sum(worker.clients for worker in instance.workers)
    total = clients * int(line.end_ns.max(initial=0))
    invalid_rows = line.work.phase == INVALID
    invalid = exact_sum(line.row_time_ns[invalid_rows])
    busy = exact_sum(line.row_time_ns[~invalid_rows])
    first, last = line.stay_first, line.stay_last
    held = exact_sum(line.end_ns[last] - line.start_ns[first])
    running = exact_sum(line.time_before[last + 1] - line.time_before[first])
    ended, gaps = _last_stays(instance, line)
    tail = total - ended
    free = ended - held
    return busy, {
        "waiting_for_prefill": free - (gaps - (held - running)),
        "other_prefill": running - busy - invalid,
        "no_request": gaps,
        "tail": tail,
        "invalid": invalid,
    }


def _last_stays(instance: Instance, line: Timeline) -> tuple[int, int]:
    """Sum the ends of the clients' last stays, and the time until then without a step."""
    workers = len(instance.workers)
    offset = np.cumsum([0, *(w.clients for w in instance.workers)])
    lane = offset[np.minimum(line.stay_worker, workers)] + line.work.client[line.stay_row]
    place = np.full(max(int(offset[-1]), int(lane.max(initial=-1)) + 1), -1, np.int64)
    np.maximum.at(place, lane, line.stay_last)
    place = place[place >= 0]
    worker = np.minimum(line.worker[place], workers)
    ran = line.time_before[place + 1] - line.time_before[line.heads(workers)[worker]]
    return exact_sum(line.end_ns[place]), exact_sum(line.end_ns[place] - ran)
