"""Instances and schedules written by hand, row by row."""

from __future__ import annotations

from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.schedule import Schedule, Steps, Work
from orsched.data.workers import Worker
from tests.in_order import in_order

COST = in_order(AffineCost, 30, 2, 17, 5)
"""Prefill: 30 + 2 a token. Round: 17 + 5 a request. Mixed step: 30 + 2 a token + 5 a request."""


def problem(
    prompts=(4, 5, 6), outputs=(2, 3, 2), *, arrivals=None, rule="decode", many=1, **worker
):
    """Return an instance on a worker, or on several equal ones, with two clients each."""
    requests = Requests(list(prompts), list(outputs), arrival_ns=arrivals and list(arrivals))
    workers = tuple(
        Worker(**{"clients": 2, "cost": COST, "name": f"worker-{i}", **worker}) for i in range(many)
    )
    return Instance(requests, workers, first_token=rule)


def built(instance, steps, work, **fields):
    """Return a schedule.

    Steps are (worker, phase, idle time of the worker before, duration, rounds), work rows
    (request, client, phase, first step, last step, tokens[, stay]).
    """
    rows, now = [], {}
    for worker, phase, idle, duration, rounds in steps:
        start = now.get(worker, 0) + idle
        now[worker] = start + duration
        rows.append((worker, phase, start, now[worker], rounds))
    columns = zip(*rows, strict=True) if rows else [[]] * 5
    work = [(*row, 0)[:7] for row in work]
    work_columns = zip(*work, strict=True) if work else [[]] * 7
    fields = {"method": "by hand", "information": "none", **fields}
    return Schedule(
        instance.sha256,
        in_order(Steps, *(list(c) for c in columns)),
        Work(*(list(c) for c in work_columns)),
        **fields,
    )


def edited(rows, **changes):
    """Rows with some of them replaced: ``r2=(...)``; None leaves a row out."""
    result = [changes.get(f"r{i}", row) for i, row in enumerate(rows)]
    return tuple(row for row in result if row is not None) + tuple(changes.get("more", ()))


def kinds(violations):
    """Return the kinds of violations, as texts."""
    return {violation.kind.value for violation in violations}
