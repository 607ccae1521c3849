"""Arrivals that follow from the ends of other requests: closed loops and turns of conversations.

With a delay, a turn arrives when its parent has ended and the delay has passed (think or tool
time), and never before its own arrival time. With a ``concurrency`` of N, first turns are sent in
order of arrival (then row), each as soon as fewer than N of the conversations before it are
unfinished.
"""

from __future__ import annotations

from dataclasses import fields
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from orsched.common.units import NEVER
from orsched.data.requests import NONE, conversations

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.requests import Requests

Changed = TypeVar("Changed")


def arrivals_from_ends(
    requests: Requests, concurrency: int | None, finish_ns: IntColumn
) -> IntColumn:
    """Return when each request arrives, given when each has ended (-1: it has not)."""
    arrival, n = requests.arrival_ns.copy(), len(requests)
    ended = np.where(finish_ns < 0, NEVER, finish_ns)
    parent, delay = requests.parent, requests.delay_ns
    if parent is not None and delay is not None:
        rows = np.flatnonzero(delay != NONE)
        since = np.minimum(ended[parent[rows]] + delay[rows], NEVER)
        arrival[rows] = np.maximum(arrival[rows], since)
    if concurrency is None:
        return arrival
    first = np.arange(n) if parent is None else conversations(parent)[0]
    end = np.zeros(n, np.int64)
    np.maximum.at(end, first, ended)
    latest: list[int] = []  # ends of the conversations before, the N latest
    for row in first_turns(requests):
        if len(latest) < concurrency:
            heappush(latest, int(end[row]))
        else:
            arrival[row] = max(int(arrival[row]), latest[0])
            heappushpop(latest, int(end[row]))
    return arrival


def with_arrivals(instance: Instance, arrival_ns: IntColumn) -> Instance:
    """Return the instance whose requests arrive at known times: an open loop, another problem."""
    arrival_ns.setflags(write=False)
    requests = _changed(instance.requests, arrival_ns=arrival_ns, delay_ns=None)
    return _changed(instance, requests=requests, concurrency=None)


def _changed(each: Changed, **changes: Any) -> Changed:
    """Return a copy, of which nothing is checked or derived yet."""
    copied = object.__new__(type(each))
    vars(copied).update({f.name: getattr(each, f.name) for f in fields(each)} | changes)  # type: ignore[arg-type]
    return copied


def earliest_arrivals(
    requests: Requests, concurrency: int | None, least_ns: list[int]
) -> IntColumn:
    """Return when requests arrive if each takes its least time, as if served alone: no schedule is
    ahead of it, for an arrival is never earlier when an end is later."""
    n = len(requests)
    parent = np.full(n, NONE) if requests.parent is None else requests.parent
    delay = np.full(n, NONE) if requests.delay_ns is None else requests.delay_ns
    first, depth = conversations(parent)
    rows = np.lexsort((depth, first))  # conversation by conversation, parents before their turns
    begin = np.searchsorted(first[rows], np.arange(n + 1))
    arrival: list[int] = requests.arrival_ns.tolist()
    parents, delays, latest = parent.tolist(), delay.tolist(), list[int]()
    for conversation in first_turns(requests):
        if concurrency is not None and len(latest) == concurrency:
            arrival[conversation] = max(arrival[conversation], latest[0])
        end = 0
        for row in rows[begin[conversation] : begin[conversation + 1]].tolist():
            if delays[row] != NONE:
                since = arrival[parents[row]] + least_ns[parents[row]] + delays[row]
                arrival[row] = max(arrival[row], since)
            end = max(end, arrival[row] + least_ns[row])
        if concurrency is not None:
            (heappush if len(latest) < concurrency else heappushpop)(latest, end)
    return np.array(arrival, np.int64)


def first_turns(requests: Requests) -> list[int]:
    """Return the first turns in the order in which they are sent."""
    parent = requests.parent
    rows = np.arange(len(requests)) if parent is None else np.flatnonzero(parent == NONE)
    order: list[int] = rows[np.argsort(requests.arrival_ns[rows], kind="stable")].tolist()
    return order
