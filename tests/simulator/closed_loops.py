"""Random instances whose arrivals follow from ends, and a literal account of when each is sent."""

from __future__ import annotations

import numpy as np

from orsched import AffineCost, Instance, Requests, Worker
from tests.in_order import in_order

NEVER = 10**30


def closed_instance(seed, *, workers=None, turns=True, limit=True, answers=False):
    """Return a small instance with turns, a limit on conversations in flight, or both."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    parent, delay = np.full(n, -1), np.full(n, -1)
    order = rng.permutation(n)
    for place in range(1, n if turns else 1):
        if rng.random() < 0.7:
            row = order[place]
            parent[row] = order[rng.integers(0, place)]
            if rng.random() < 0.8:
                delay[row] = int(rng.choice([0, 1, 12, 977]))
    arrivals = rng.integers(0, 500, n) * int(rng.random() < 0.5)
    requests = Requests(
        rng.integers(1, 30, n), rng.integers(1, 12, n), arrival_ns=arrivals, parent=parent,
        delay_ns=delay, predicted_tokens=rng.integers(1, 12, n),
    )  # fmt: skip
    many = int(rng.integers(1, 4)) if workers is None else workers
    fleet = tuple(
        Worker(int(rng.integers(1, 5)), in_order(AffineCost, 3, 1, 5, 2), name=f"w{index}")
        for index in range(many)
    )
    most = int(rng.integers(1, 6)) if limit else None
    rule = ("prefill", "decode")[seed % 2]
    return Instance(requests, fleet, first_token=rule, concurrency=most)


def finishes(instance, schedule):
    """Return when each request's last row of work ends, row by row."""
    found = [NEVER] * len(instance)
    for request, last in zip(
        schedule.work.request.tolist(), schedule.work.last_step.tolist(), strict=True
    ):
        end = int(schedule.steps.end_ns[last])
        found[request] = end if found[request] == NEVER else max(found[request], end)
    return found


def sent_at(instance, schedule):
    """Return when each request is sent, literally: moment by moment, whoever may be, in order."""
    requests, ends = instance.requests, finishes(instance, schedule)
    n, most = len(instance), instance.concurrency
    parent = [-1] * n if requests.parent is None else requests.parent.tolist()
    delay = [-1] * n if requests.delay_ns is None else requests.delay_ns.tolist()
    own = requests.arrival_ns.tolist()
    sent = [own[r] if delay[r] < 0 else max(own[r], ends[parent[r]] + delay[r]) for r in range(n)]
    if most is None:
        return sent

    def root(row):
        return row if parent[row] < 0 else root(parent[row])

    over = {
        row: max(ends[r] for r in range(n) if root(r) == row) for row in range(n) if parent[row] < 0
    }
    queue = sorted(over, key=lambda row: (own[row], row))
    for place, row in enumerate(queue):
        moments = sorted({own[row], *(over[each] for each in queue[:place])})
        sent[row] = next(
            t
            for t in moments
            if t >= own[row] and sum(over[each] > t for each in queue[:place]) < most
        )
    return sent


def starts(instance, schedule):
    """Return when each request's first step starts."""
    found = [NEVER] * len(instance)
    for request, first in zip(
        schedule.work.request.tolist(), schedule.work.first_step.tolist(), strict=True
    ):
        found[request] = min(found[request], int(schedule.steps.start_ns[first]))
    return found
