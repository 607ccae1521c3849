"""A snapshot of a run: copied in a decision, worked out in the background."""

from __future__ import annotations

from array import array
from heapq import heapreplace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from orsched.heuristics.rolling.remaining import Remaining, Stage
from orsched.heuristics.rolling.waiting import Copy, entry_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OVERDUE_PART = 8
"""A request beyond its predicted end is expected to take one part in this of its rounds more."""


class Running(NamedTuple):
    """The requests that run.

    Attributes:
        begin: of each request a list that begins with the round of its start.
        started: others, as rounds of the start and who started then.
    """

    begin: Mapping[int, Sequence[int]]
    started: Sequence[tuple[int, Sequence[int]]] = ()


class DueStage(NamedTuple):
    """A stage of a plan that is followed.

    Attributes:
        round: rounds of the worker before it.
        requests: those that start.
        spare: clients that are free then and stay free.
        tokens: prompt tokens of all of them.
        rounds: of them, in order.
    """

    round: int
    requests: Sequence[int]
    spare: int
    tokens: int = 0
    rounds: Sequence[int] = ()


class Plan(NamedTuple):
    """A plan, ready to be followed.

    Attributes:
        stages: by rounds of the worker, the next one last.
        everyone: entries of all that waited at the snapshot, the longest last.
        spare: those of them that are in no stage.
    """

    stages: list[DueStage]
    everyone: array[int]
    spare: array[int]


class Snapshot(NamedTuple):
    """What a decision copies.

    Attributes:
        now: rounds of the worker.
        base: round from which the plan will be followed.
        running: those that run, since when.
        idle: free clients.
        clients: most requests that can run (memory may hold fewer than there are clients).
        waiting: requests in the queue; until it is worked out, the copy that knows them.
        stages: of the plan that is followed, the next one last; with what it owes first.
        lengths, prompts: columns of the view; of requests that wait or run they do not change.
        limit: output limit.
        first: whether prefill yields the first token.
        stage_ns, round_ns, cap: of the worker.
        horizon: most waiting requests of a plan.
    """

    now: int
    base: int
    running: Running
    idle: int
    clients: int
    waiting: list[int] | Copy
    stages: list[DueStage]
    lengths: Sequence[int] | dict[int, int]
    prompts: Sequence[int] | memoryview | dict[int, int]
    limit: int
    first: int
    stage_ns: int
    round_ns: int
    cap: int | None
    horizon: int

    def own(self) -> Snapshot:
        """Return the snapshot without the view's columns: what it needs of them is copied.

        In few calls, since the policy may be deciding meanwhile.
        """
        rows = self.rows()
        known = chain(rows, self.running.begin, *(each for _, each in self.running.started))
        lengths = {request: self.lengths[request] for request in known}
        prompts = dict(zip(rows, map(self.prompts.__getitem__, rows), strict=True))
        return self._replace(waiting=rows, lengths=lengths, prompts=prompts)

    def rows(self) -> list[int]:
        """Return the requests in the queue."""
        return self.waiting.requests() if isinstance(self.waiting, Copy) else self.waiting

    def plan(self, stages: Sequence[Stage]) -> Plan:
        """Return stages, by rounds from ``base``, as a plan by rounds of the worker."""
        timed = [self._due(stage) for stage in reversed(stages)]
        planned = {request for stage in stages for request in stage.requests}
        rows = self.rows()
        keys = [-(self.prompts[request] + self.lengths[request]) for request in rows]
        everyone = sorted(zip(map(entry_of, rows, keys), rows, strict=True), reverse=True)
        return Plan(
            timed,
            array("q", [entry for entry, _ in everyone]),
            array("q", [entry for entry, request in everyone if request not in planned]),
        )

    def _due(self, stage: Stage) -> DueStage:
        requests = stage.requests
        tokens = sum(self.prompts[request] for request in requests)
        rounds = sorted(map(self.rounds_of, requests))
        return DueStage(self.base + stage.round, requests, stage.spare, tokens, rounds)

    def rounds_of(self, request: int) -> int:
        """Return the rounds of a request as far as known, at least 1."""
        return max(1, min(self.lengths[request], self.limit) - self.first)

    def remaining(self) -> Remaining | None:
        """Return what will be left at ``base``, or None if none will wait."""
        free = self._free_at()
        waiting = set(self.rows())
        kept: list[Stage] = []
        for stage in reversed(self.stages):
            chosen = tuple(request for request in stage.requests if request in waiting)
            if stage.round > self.base:
                kept.append(Stage(stage.round - self.base, chosen, stage.spare))
                continue
            for request in chosen:
                waiting.remove(request)
                heapreplace(free, max(free[0], stage.round) + self.rounds_of(request))
        order = sorted(waiting, key=lambda request: (-self.rounds_of(request), request))
        if len(order) > self.horizon:
            order = [order[k * len(order) // self.horizon] for k in range(self.horizon)]
        if not order:
            return None
        return Remaining(
            tuple(max(0, end - self.base) for end in sorted(free)),
            tuple(order),
            tuple(map(self.rounds_of, order)),
            tuple(self.prompts[request] for request in order),
            self.stage_ns,
            self.round_ns,
            self.cap,
            tuple(kept),
        )

    def _free_at(self) -> list[int]:
        """Return the rounds at which clients are free, in order."""
        moments = [self.now] * self.idle
        for request, (begin, *_) in self.running.begin.items():
            end = begin + self.rounds_of(request)
            if end <= self.now:
                took = self.now - begin
                most = begin + self.limit
                end = max(self.now + 1, min(self.now + 1 + took // _OVERDUE_PART, most))
            moments.append(end)
        for begin, stage in self.running.started:
            moments += [begin + self.rounds_of(request) for request in stage]
        return sorted(moments)[: self.clients]
