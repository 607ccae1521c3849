"""The steps of a schedule as a policy would ask for them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.data.schedule import DECODE, PREFILL
from orsched.data.step import Step

if TYPE_CHECKING:
    from orsched.data.schedule import Schedule


class PlannedStep(NamedTuple):
    """A step of a schedule.

    Attributes:
        step: what the worker is asked for.
        start_ns: when it was planned to start, if the worker idled before it; else 0.
        begins: request -> stay that begins with it.
    """

    step: Step
    start_ns: int
    begins: dict[int, int]


def planned_steps(schedule: Schedule, worker: int = 0) -> list[PlannedStep]:
    """Return the steps of a schedule on one worker; evictions are steps of their own."""
    rows = _Rows(schedule, worker)
    steps, found = schedule.steps, []
    own = np.flatnonzero(steps.worker == worker)
    phases, rounds = steps.phase[own].tolist(), steps.rounds[own].tolist()
    starts, ends = steps.start_ns[own].tolist(), steps.end_ns[own].tolist()
    active: dict[int, None] = {}
    index, before = 0, 0
    while index < len(phases):
        for request in rows.leave[index]:
            del active[request]
        for request in rows.enter[index]:
            active[request] = None
        if rows.evicted[index]:
            found.append(_eviction(rows.evicted[index]))
        start = starts[index] if starts[index] > before else 0
        if index in rows.held:
            last = rows.held[index]
            step = Step(rounds=sum(rounds[index : last + 1]), until=0, hold=True)
            for later in range(index + 1, last + 1):
                for request in rows.leave[later]:
                    del active[request]
                assert not rows.enter[later]
            found.append(PlannedStep(step, start, {}))
            index = last
        else:
            prefill, tokens, clients, stays = rows.prefill[index]
            step = Step(
                prefill=prefill,
                tokens=tokens or None,
                clients=clients,
                decode=() if phases[index] == PREFILL else list(active),
                rounds=rounds[index],
                until=0,
            )
            found.append(PlannedStep(step, start, dict(zip(prefill, stays, strict=False))))
        before = ends[index]
        index += 1
    if rows.evicted[index]:
        found.append(_eviction(rows.evicted[index]))
    return found


def _eviction(requests: list[int]) -> PlannedStep:
    return PlannedStep(Step(preempt=requests, decode=()), 0, {})


class _Rows:
    """The work of a worker in a schedule by its steps.

    Attributes:
        prefill: requests, tokens, and of those that are new, who come first, clients and stays.
        enter, leave: requests that begin to decode with a step, and those ended before it.
        evicted: whose stay has ended before a step with work left to do.
        held: first step of each static batch that holds requests -> its last step.
    """

    def __init__(self, schedule: Schedule, worker: int) -> None:
        steps, work = schedule.steps, schedule.work
        own = steps.worker == worker
        place = np.cumsum(own) - 1
        count = int(own.sum()) + 1
        self.prefill: list[tuple[list[int], list[int], list[int], list[int]]]
        self.prefill = [([], [], [], []) for _ in range(count)]
        self.enter: list[list[int]] = [[] for _ in range(count)]
        self.leave: list[list[int]] = [[] for _ in range(count)]
        self.evicted: list[list[int]] = [[] for _ in range(count)]
        opens, evicted = _stays(schedule)
        here = own[work.first_step]
        columns = (
            column[here].tolist()
            for column in (
                *(work.request, work.client, work.phase),
                *(place[work.first_step], place[work.last_step]),
                *(work.tokens, work.stay, opens, evicted),
            )
        )
        rows = sorted(zip(work.turn[here].tolist(), *columns, strict=True), key=itemgetter(0))
        held: list[tuple[int, int]] = []
        for _, *row in rows:
            request, client, phase, first, last, tokens, stay, new, cut = row
            if cut:
                self.evicted[last + 1].append(request)
            if phase == PREFILL:
                requests, chunks, clients, stays = self.prefill[first]
                # those that are new come first: only they are given clients
                where = len(clients) if new else len(requests)
                requests.insert(where, request)
                chunks.insert(where, tokens)
                if new:
                    clients.append(client)
                    stays.append(stay)
            elif phase == DECODE:
                self.enter[first].append(request)
                self.leave[last + 1].append(request)
            else:
                held.append((first - 1, last))
        self.held = _joined(held)


def _stays(schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Say of each row of work if a stay begins with it, and if one ends that another follows."""
    work = schedule.work
    same = work.request[1:] == work.request[:-1]
    later = same & (work.stay[1:] != work.stay[:-1])
    opens, evicted = np.ones(len(work), bool), np.zeros(len(work), bool)
    opens[1:] = ~same | later
    evicted[:-1] = later
    return opens, evicted


def _joined(spans: list[tuple[int, int]]) -> dict[int, int]:
    """Return spans that share a step as one."""
    found: dict[int, int] = {}
    first = last = -2
    for start, end in sorted(spans):
        if start > last:
            first = start
        last = max(last, end) if start <= last else end
        found[first] = last
    return found
