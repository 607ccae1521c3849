"""Where a request is served, and when: what one decision of a worker asks of each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from orsched.heuristics.gittins.worker_model import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.heuristics.gittins.lengths import LengthModel
    from orsched.heuristics.gittins.worker_model import (
        GittinsBatch,
        GittinsParams,
        WaitingRequests,
        WorkerModel,
    )
    from orsched.simulator.policy import View

    Rival: TypeAlias = tuple[WorkerModel, int, int, int, float, float, float, float]


MANY = 32  # workers from which on columns are faster than lists

_NONE = -1


class Rivals:
    """What counts of each worker when a request could be served there, one column each. A worker's
    entries are made again before they are read if it has decided since, if a request has left it,
    or if it has come or gone: nothing else changes them. The arithmetic is that of single workers,
    in the same order, so that both agree to the last bit."""

    def __init__(self, workers: list[WorkerModel]) -> None:
        many = len(workers)
        self.workers = workers
        self.changed = set(range(many))
        self.space, self.slept, self.seen, self.until_ns = np.zeros((4, many), np.int64)
        self.count, self.pace_ns, self.weight, self.token_ns, self.client_ns = np.zeros((5, many))
        for index, worker in enumerate(workers):
            self.token_ns[index] = worker.prices.token_ns
            self.client_ns[index] = worker.prices.client_ns

    def update(self) -> None:
        """Make the entries that may have changed again."""
        if not self.changed:
            return
        for index in self.changed:
            worker = self.workers[index]
            running = len(worker.view.running)
            view = worker.view
            free = running < worker.clients and view.available and not view.draining
            room = worker.prompt_room() if free else 0
            self.space[index] = room if room > 0 else _NONE
            self.slept[index] = worker.slept
            # Rounds alone end when a request arrives: it waits for no more of them.
            self.seen[index] = UNLIMITED if worker.prefills else worker.seen
            self.until_ns[index] = worker.until_ns
            self.count[index] = running
            self.pace_ns[index] = pace_ns = worker.pace.ns
            self.weight[index] = pace_ns / worker.prices.round_ns
        self.changed.clear()

    def running(self) -> int:
        """Return how many requests all workers serve."""
        self.update()
        return int(self.count.sum())

    def cheaper(
        self,
        worker: WorkerModel,
        now_ns: int,
        theirs: float,
        left: int,
        stamp: int,
        tokens: float,
        work: float | None,
        own: float,
    ) -> Iterator[WorkerModel]:
        """Yield the workers that serve a request for less than ``own``, the cheapest first, but
        those without a free client or memory, and those that had the choice and nothing to do.
        ``work`` is None where it differs from worker to worker."""
        self.update()
        self.changed.add(worker.view.index)  # its own entries change by this decision
        costs = tokens * self.pace_ns
        # All further parts are at least 0: who is dearer by its pace alone is out of the question.
        able = (costs < own) & (self.space >= left) & (self.slept < stamp)
        able[worker.view.index] = False
        (few,) = able.nonzero()
        if not len(few):
            return
        costs = costs[few]
        late = self.seen[few] >= stamp
        if late.any():
            late_ns = np.maximum(0.0, (self.until_ns[few] - now_ns).astype(float))
            costs = np.where(late, late_ns + costs, costs)
        works: Any = work
        if works is None:
            works = self.token_ns[few] * left + self.client_ns[few] * tokens
        costs += (self.count[few] + theirs) * works * self.weight[few]
        if costs[best := int(costs.argmin())] < own:
            yield self.workers[few[best]]  # as a rule it takes the request
            for place in costs.argsort(kind="stable").tolist():
                if not costs[place] < own:
                    return
                yield self.workers[few[place]]


class Routed(Protocol):
    """What a decision reads of the policy."""

    params: GittinsParams
    patience_ns: int | None
    queue: WaitingRequests
    stamp: int
    tight: set[int]
    workers: list[WorkerModel]
    rivals: Rivals | None
    model: LengthModel
    outputs: memoryview | None
    alike: bool

    def able(self, worker: WorkerModel, request: int) -> bool:
        """Whether a worker could hold a request alone."""
        ...


class RoutingDecision:
    """One decision: whether its worker is the one to take a waiting request, and now.

    A request joins if that costs less than with any other worker, or if it has waited for
    ``ttft_s``; none overtakes one that finds no room. What serving a request costs: its rounds
    at the worker's present pace; and each of the others there is delayed by its prefill and by its
    part of each round, as much more as the pace is slower than rounds alone.

    Attributes:
        rivals: the other workers that have a free client and memory, at first only the one that
            took a request last: its model, the prompt tokens that it has room for, its ``slept``,
            the stamp up to which requests wait for its step to end, for how long, its pace, how
            many run there, and its time a round over that of rounds alone.
        due_ns: requests that came by then have waited long enough (``ttft_s``); -1: none has.
        open_ns: up to which delay the gate is open even for a request that has come now.
    """

    __slots__ = (
        "arrival_ns",
        "at",
        "complete",
        "due_ns",
        "finishes_ns",
        "gate",
        "gate_aging",
        "now_ns",
        "open_ns",
        "outputs",
        "policy",
        "rivals",
        "stage_round_ns",
        "worker",
    )  # fmt: skip

    def __init__(self, policy: Routed, view: View, worker: WorkerModel, decoding: int) -> None:
        prices, params = worker.prices, policy.params
        self.policy, self.worker = policy, worker
        self.now_ns, self.arrival_ns = worker.pace.now_ns, view.arrival_ns
        self.outputs = policy.outputs
        self.gate, self.gate_aging = params.gate, params.gate_aging
        self.finishes_ns = decoding / policy.model.all.mean * prices.token_ns
        self.stage_round_ns = prices.round_ns + prices.client_ns * decoding
        self.open_ns = self.gate * self.stage_round_ns
        patience_ns = policy.patience_ns
        self.due_ns = -1 if patience_ns is None else self.now_ns - patience_ns
        self.rivals = self._seen(worker.others[:1])
        self.complete = False  # whether all of them are among the rivals
        self.at = 0  # place in the queue of the next one to be looked at

    def join(self, before: tuple[int, int] | None, batch: GittinsBatch) -> bool:
        """Let waiting requests join, of those before a key; False: one finds no room."""
        policy, worker, outputs, rivals = self.policy, self.worker, self.outputs, self.rivals
        prices, pace_ns, tight, alike = worker.prices, worker.pace.ns, policy.tight, policy.alike
        token_ns, client_ns, round_ns = prices.token_ns, prices.client_ns, prices.round_ns
        finishes_ns, open_ns = self.finishes_ns, self.open_ns
        due_ns, arrival_ns = self.due_ns, self.arrival_ns
        queue, heads, workers = policy.queue, policy.queue.heads, len(policy.workers)
        room, at, joined = batch.room, self.at, len(batch.chunks)
        # What times are multiplied with are floats: products of two kinds take twice as long.
        beside = float(len(worker.view.running) + joined)
        theirs = float(min(joined, queue.count // workers))  # as many join each of the others
        while at < len(heads):
            head = heads[at]
            if before is not None and before < head:
                break
            _, request, _, left, stamp, yielded, lengths = head
            if tight and request in tight and not policy.able(worker, request):
                at += 1
                continue
            if left > room and not batch.has_room(request, left):
                return False
            if outputs is None:
                tokens = lengths.left(yielded) if yielded else lengths.mean
            else:
                tokens = float(outputs[request] - yielded)
            due = due_ns >= 0 and arrival_ns[request] <= due_ns
            if not due and finishes_ns * left > open_ns and self._delays(request, left, tokens):
                at += 1
                continue
            work = token_ns * left + client_ns * tokens
            own = tokens * pace_ns + beside * work * pace_ns / round_ns
            for rival in () if due else rivals:
                other, space, slept, seen, late_ns, each_ns, count, weight = rival
                if left > space or stamp <= slept:
                    continue
                if not alike:
                    work = other.prices.token_ns * left + other.prices.client_ns * tokens
                costs = tokens * each_ns
                if stamp <= seen:
                    costs = late_ns + costs
                costs += (count + theirs) * work * weight
                if costs < own and self._takes(rival, request, left):
                    at += 1
                    break
            else:
                if not (due or self.complete):
                    alone = work if alike else None
                    on = self._pass_on(request, theirs, left, stamp, tokens, alone, own)
                    if on is not None:
                        rivals, at = self.rivals, at + on
                        continue
                queue.pop(at)
                batch.admit(request, left)
                if not (batch.tokens and batch.clients):
                    break
                room, joined, beside = batch.room, joined + 1, beside + 1.0
                theirs = float(min(joined, queue.count // workers))
        self.at = at
        return True

    def _pass_on(
        self,
        request: int,
        theirs: float,
        left: int,
        stamp: int,
        tokens: float,
        work: float | None,
        own: float,
    ) -> int | None:
        """Return 0 to ask again, with all workers as rivals; 1 if another worker is to take it (in
        a large fleet the one asked first from then on); None: none is."""
        if self.policy.rivals is None:
            self.complete = True
            self.rivals = self._seen(self.worker.others)
            return 0
        worker = self.worker
        for other in self.policy.rivals.cheaper(
            worker, self.now_ns, theirs, left, stamp, tokens, work, own
        ):
            if self._holds(other, request, left):
                worker.others = [other]
                self.rivals = self._seen(worker.others)
                return 1
        return None

    def _seen(self, others: list[WorkerModel]) -> list[Rival]:
        """Return what counts of those that have a free client and memory."""
        found: list[Rival] = []
        for other in [each for each in others if len(each.view.running) < each.clients]:
            room = other.prompt_room()
            if room > 0:
                late_ns = max(0.0, float(other.until_ns - self.now_ns))
                # Rounds alone end when a request arrives: it waits for no more of them.
                seen = self.policy.stamp if other.prefills else other.seen
                count, pace_ns = float(len(other.view.running)), other.pace.ns
                weight = pace_ns / other.prices.round_ns
                found.append((other, room, other.slept, seen, late_ns, pace_ns, count, weight))
        return found

    def _takes(self, rival: Rival, request: int, left: int) -> bool:
        """Whether another worker can hold a request; if so it is asked first from now on."""
        other, others = rival[0], self.worker.others
        if not self._holds(other, request, left):
            return False
        if others[0] is not other:
            others.remove(other)
            others.insert(0, other)
            self.rivals.remove(rival)
            self.rivals.insert(0, rival)
        return True

    def _holds(self, other: WorkerModel, request: int, left: int) -> bool:
        """Whether another worker has the memory for a request whose tokens have room there."""
        tight = self.policy.tight
        if tight and request in tight and not self.policy.able(other, request):
            return False
        # Under paged memory the room for tokens says that it has.
        return other.size > 0 or other.has_room(request, left)

    def _delays(self, request: int, left: int, tokens: float) -> bool:
        """Whether the gate is closed: the prefill would cost those that decode too much. Before a
        round, it delays the finishes of that round by its own time; after it, the request is one
        round behind. Each loses the more, the longer it waits."""
        waited = (self.now_ns - self.arrival_ns[request]) / (tokens * self.worker.pace.ns)
        gate = self.gate * (1 + self.gate_aging * waited)
        return self.finishes_ns * left > gate * self.stage_round_ns
