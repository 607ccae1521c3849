"""Bounds where requests arrive when others have ended: those of an open instance, never later.

A schedule in which each request arrives when it does is one of the *loosened* instance, in which
each arrives as early as it could if every request were served alone where it is fastest: a turn
after the least times and delays of the turns before it, a first turn behind as many ends as it
waits for. So every lower bound on the makespan there is one here. If no more than N requests can be
in flight, no worker serves more than N clients. Times from arrivals are shorter here, so that of
the bounds on their means those of requests alone hold, and no others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from orsched.certificates.arrivals import earliest_arrivals, with_arrivals
from orsched.certificates.charges import any_shares
from orsched.certificates.context import Context
from orsched.certificates.one_machine import Workers
from orsched.certificates.pools import alone_ns
from orsched.certificates.scope import Scope, prefills_grow, relaxed
from orsched.data.requests import NONE
from orsched.data.schedule_classes import ALLOWANCES

if TYPE_CHECKING:
    from orsched.data.instance import Instance


OF_ANY_ARRIVALS = ("empty", "arrivals", "alone")
"""Bounds on means that hold whenever requests arrive."""


def loosened(instance: Instance) -> Instance:
    """Return the instance for bounds: itself, or with arrivals that no schedule is ahead of."""
    if not instance.arrivals_follow:
        return instance
    least, most = _least_ns(instance), _most_in_flight(instance)
    if most is not None:
        cut = (replace(w, clients=min(w.clients, most)) for w in instance.workers)
        instance = instance.replace(workers=tuple(cut))
    arrivals = earliest_arrivals(instance.requests, instance.concurrency, least)
    return with_arrivals(instance, arrivals)


def _least_ns(instance: Instance) -> list[int]:
    """Return what each request takes at least, whatever schedules do; 0 where nothing is known."""
    found = relaxed(instance)
    context = Context(found, Scope.allowing(ALLOWANCES, found))
    if not context.has_floors or not (found is instance or prefills_grow(instance)):
        return [0] * len(instance)
    if instance.link is not None:
        return alone_ns(context, False)
    workers = Workers.of(context, any_shares(context))
    return workers.machine([1] * len(workers.parts)).alone_ns


def _most_in_flight(instance: Instance) -> int | None:
    """Return how many requests are in flight at most; None where any number may be.

    Conversations have one each where every turn follows the end of its parent, alone.
    """
    parent, delay = instance.requests.parent, instance.requests.delay_ns
    if parent is None or instance.concurrency is None:
        return instance.concurrency
    turns = np.flatnonzero(parent != NONE)
    alone = len(np.unique(parent[turns])) == len(turns)
    follow = delay is not None and bool((delay[turns] != NONE).all())
    return instance.concurrency if alone and follow else None
