"""Where the client-time of a schedule goes: busy, or one of the bubbles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import exact_sum

if TYPE_CHECKING:
    from orsched.metrics.timeline import Timeline


def client_time(line: Timeline) -> tuple[int, dict[str, int]]:
    """Split clients x makespan into busy time and bubbles by cause, in client-nanoseconds.

    Returns (busy, {waiting_for_prefill, other_prefill, no_request, tail, invalid}); they add up to
    clients x makespan exactly. A client that holds a request is busy in the steps that prefill it
    or yield one of its tokens; rounds after its last token are ``invalid``; the other steps of the
    worker, prefills of others and rounds without it, are ``other_prefill``. A free client waits for
    prefill while the worker is at work; while it is not, a client has no request to serve. After
    its last request a client is in the tail.
    """
    total = sum(w.clients for w in line.instance.workers) * int(line.end_ns.max(initial=0))
    invalid = exact_sum(line.row_time_ns[line.invalids])
    busy = exact_sum(line.row_time_ns) - invalid
    begin, end = line.visits
    first, last = line.first[begin], line.last[end]
    held = exact_sum(line.end_ns[last] - line.start_ns[first])
    steps = exact_sum(line.time_before[last + 1] - line.time_before[first])
    # Before each visit: the time since its client's last one, or since the start.
    client, worker = line.client[begin], line.row_worker[begin]
    follows = np.zeros(len(begin), bool)
    follows[1:] = (client[1:] == client[:-1]) & (worker[1:] == worker[:-1])
    later = np.flatnonzero(follows)
    free_from, ran_before = np.zeros(len(begin), np.int64), line.time_before[line.heads()[worker]]
    free_from[later] = line.end_ns[last[later - 1]]
    ran_before[later] = line.time_before[last[later - 1] + 1]
    gaps = exact_sum(line.start_ns[first] - free_from)
    waiting = exact_sum(line.time_before[first] - ran_before)
    return busy, {
        "waiting_for_prefill": waiting,
        "other_prefill": steps - busy - invalid,
        "no_request": (held - steps) + (gaps - waiting),
        "tail": total - held - gaps,
        "invalid": invalid,
    }
