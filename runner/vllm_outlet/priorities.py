"""A plan's rank as vLLM's ``priority``: lower goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.data.schedule import as_schedule

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Scheduled


def in_order(instance: Instance, schedule: Scheduled) -> list[int]:
    """Return the rows of all requests in the order in which a schedule admits them to stay.

    A request that is evicted counts from its last admission: the plan would have done without the
    ones before. Ties, requests of one step, go by arrival, then row. Requests that a partial
    schedule does not serve come last.

    Raises:
        InputError: the schedule names requests or steps that are not there.
    """
    schedule = as_schedule(schedule)
    work, steps, n = schedule.work, schedule.steps, len(instance)
    if len(work) and (int(work.request.max()) >= n or int(work.first_step.max()) >= len(steps)):
        raise InputError(
            "the schedule is not one of this instance",
            field="schedule",
            remedy="give the instance that it was made for",
        )
    head = np.ones(len(work), bool)
    head[1:] = (work.request[1:] != work.request[:-1]) | (work.stay[1:] != work.stay[:-1])
    start = np.full(n, -1, np.int64)
    np.maximum.at(start, work.request[head], steps.start_ns[work.first_step[head]])
    start[start < 0] = np.iinfo(np.int64).max
    order: list[int] = np.lexsort((np.arange(n), instance.requests.arrival_ns, start)).tolist()
    return order


def priorities(instance: Instance, schedule: Scheduled) -> list[int]:
    """Return each request's place, from 0, in the order of ``in_order``.

    As ``priority`` of a request it makes vLLM (``--scheduling-policy priority``) take waiting
    requests in the plan's order. All are different, so that vLLM never decides by arrival.

    Raises:
        InputError: as ``in_order``.
    """
    ranks = [0] * len(instance)
    for rank, row in enumerate(in_order(instance, schedule)):
        ranks[row] = rank
    return ranks
