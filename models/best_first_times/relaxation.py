r"""A lower bound on what is still to come of a sum of times, from a state.

Over the *events of the next stage*: it begins now, or behind the x-th round, where the running
request with x rounds left finishes. Those that have more rounds left then wait for it. The bound is
the least over these of a sum whose terms are counted by different clocks, so they add up:

* **rounds**: on clients that are busy until then or longer. With equal coefficients of those that
  wait, shortest first on the client that is free first has the least sum of ends on parallel
  machines with such times [1]. With others, the bound of [2] on the sum of weighted ends.
* **fixed times of stages**: the k-th of those that wait to be done is behind 1 + ceil((k - f) / J)
  stages, if the next one finds f clients free; the greatest coefficients count as the first ones.
* **tokens** prefilled: no less than on one machine that prefills one request after the other, most
  coefficient for a token first (Smith's rule).
* **clients in rounds**: the same of rounds left, of all that are not done.

With arrivals also, where that is more, the times of prefills alone, one after the other on a
machine that may interrupt them, the shortest rest first, behind the arrivals and the event; then
each request's own rounds. And always, where that is more, the bound of ``pairs``.

[1] Kaspi and Montreuil, "On the scheduling of identical parallel processes with arbitrary initial
processor available time", 1988. [2] Eastman, Even and Isaacs, "Bounds for the optimal scheduling of
n jobs on m processors", Management Science 11, 1964: at least the sum on one machine that is m
times as fast, and (m - 1) / 2m of the jobs' own weighted lengths.
"""

from __future__ import annotations

from functools import cmp_to_key
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.models.best_first_times.epochs import Counts, Epochs, Kind, State


class Pairs:
    """The bound, for a case."""

    def __init__(self, epochs: Epochs) -> None:
        self.epochs, self.case = epochs, epochs.case
        self.round = self.case.round_fixed + self.case.round_client
        token = self.case.prompt_token
        self.prompt = {kind: token * kind.prompt for kind in self.case.kinds}

    def least(self, kinds: tuple[Kind, ...], state: State, own: int) -> int:
        """Return the bound; ``own``: rounds alone of all, weighted."""
        epochs, case, clock = self.epochs, self.case, state.clock
        jobs = [
            (max(0, k.arrival - clock), self.prompt[k], k.rounds * self.round, k.weight, k.finish)
            for k in kinds
        ]
        total = own * self.round
        total += sum(u * (r + case.stage + p) for r, p, _, u, _ in jobs)
        running = state.running
        others = max(1, len(jobs) + len(running) - 1)
        share = case.stage // len(jobs)
        for entry in running:
            left = entry // epochs.many * self.round
            finish = epochs.roles[entry % epochs.many].finish
            for r, p, _, u, _ in jobs:
                if left > r:
                    total += min(finish * (p + share), u * (left - r) // others)
        jobs.sort()
        for place, one in enumerate(jobs):
            r, p, d, u, f = one
            for then, q, e, v, g in jobs[place + 1 :]:
                if then == r:
                    both = min(u * q + v * p, f * q + v * p, g * p + u * q)
                    total += min(both, v * p + v * d // others, u * q + u * e // others)
                else:
                    behind = d - max(0, then - r - case.stage - p)
                    if behind > 0:
                        total += min(f * q, v * behind // others)
        return total


class Waiting(NamedTuple):
    """What the bound needs to know of those that wait.

    Attributes:
        kinds: one entry a request, the fewest rounds first.
        equal: the coefficient that all of them have, or 0.
        weight: the sum of their coefficients.
        weights: these, the greatest first.
        stages: by clients that are free, the fixed times of stages, weighted.
        tokens: the times of tokens, weighted.
        ahead: rounds by which first tokens come before the last ones, weighted.
        own: rounds until their first and last tokens alone, weighted.
        shortest: the least time that a stage of one of them takes.
    """

    kinds: tuple[Kind, ...]
    equal: int
    weight: int
    weights: tuple[int, ...]
    stages: tuple[int, ...]
    tokens: int
    ahead: int
    own: int
    shortest: int


class Relaxation:
    """The bound, with what it has worked out of those that wait."""

    def __init__(self, epochs: Epochs) -> None:
        self.epochs, self.case, self._pairs = epochs, epochs.case, Pairs(epochs)
        self._known: dict[Counts, Waiting] = {}

    def least(self, state: State) -> int:
        """Return a lower bound on what is still to come, where a request waits."""
        epochs, case = self.epochs, self.case
        waiting = self._known.get(state.waiting)
        if waiting is None:
            waiting = self._known[state.waiting] = self._of(state.waiting)
        many, due = epochs.many, epochs.due
        left = [entry // many for entry in state.running]
        weights = [due[entry % many] for entry in state.running]
        own = self._running(state.running)
        rest = waiting.tokens
        if case.round_client:
            rest += case.round_client * self._client_rounds(state.running, waiting)
        alone = case.round_client * own
        pairs = self._pairs.least(waiting.kinds, state, own + waiting.own)
        best = -1
        for rounds, free, behind in self._events(state.running, left, weights):
            found = rest + self._behind(waiting, left, weights, rounds, free)
            if epochs.timed:
                found = max(found, alone + self._by_arrivals(waiting, state.clock, rounds))
            found += behind * waiting.shortest
            if best < 0 or found < best:
                best = found
                if best + own * case.round_fixed <= pairs:
                    break
        return max(best + own * case.round_fixed, pairs)

    def _events(
        self, running: tuple[int, ...], left: list[int], weights: list[int]
    ) -> list[tuple[int, int, int]]:
        """Return when the next stage may come: rounds, clients free, and what waits for it."""
        epochs = self.epochs
        free = self.case.clients - len(left)
        events = [(0, free, sum(weights))] if free else []
        finish = weights
        if epochs.any_pending:
            finish = [epochs.roles[entry % epochs.many].finish for entry in running]
            if free and left and left[0] > 1 and finish != weights:
                events.append((1, free, sum(finish)))
        behind = sum(finish)
        for j, rounds in enumerate(left):
            behind -= finish[j]
            if j + 1 == len(left) or left[j + 1] > rounds:
                events.append((rounds, free + j + 1, behind))
        return events

    def _running(self, running: tuple[int, ...]) -> int:
        """Return the rounds of those that run, weighted: a first token comes with the next one."""
        epochs = self.epochs
        total = 0
        for entry in running:
            role = epochs.roles[entry % epochs.many]
            total += role.finish * (entry // epochs.many) + role.first
        return total

    def _behind(
        self,
        waiting: Waiting,
        left: list[int],
        weights: list[int],
        event: int,
        free: int,
    ) -> int:
        """Return rounds and fixed times, and the end, if the next stage is behind an event."""
        case = self.case
        number = len(waiting.kinds)
        if waiting.equal:
            ends = self._shortest_first(waiting.kinds, left, event)
            rounds = waiting.equal * ends - waiting.ahead
        else:
            rounds = waiting.weight * event + waiting.own
            shared = self._weighted(waiting.kinds, left, weights) - waiting.ahead
            rounds = max(rounds, shared)
        found = rounds * case.round_fixed + waiting.stages[free]
        if case.makespan:
            longest = max(waiting.kinds[-1].rounds + event, left[-1] if left else 0)
            work = sum(left) + sum(kind.rounds for kind in waiting.kinds)
            last = max(longest, -(-work // case.clients)) * case.round_fixed
            stages = 1 + max(0, -(-(number - free) // case.clients))
            tokens = sum(kind.prompt for kind in waiting.kinds)
            last += stages * case.stage + tokens * case.prompt_token
            last += case.round_client * work
            found += case.makespan * last
        return found

    def _shortest_first(self, kinds: tuple[Kind, ...], left: list[int], event: int) -> int:
        """Return the least sum of ends, in rounds, on clients busy until then or longer."""
        clients = [max(each, event) for each in left]
        clients += [event] * (self.case.clients - len(clients))
        clients.sort()
        total = 0
        for kind in kinds:
            end = clients[0] + kind.rounds
            total += end
            heapreplace(clients, end)
        return total

    def _weighted(self, kinds: tuple[Kind, ...], left: list[int], weights: list[int]) -> int:
        """Return a bound on the weighted sum of ends of those that wait, in rounds [2]."""
        jobs = [(kind.rounds, kind.weight) for kind in kinds]
        jobs += list(zip(left, weights, strict=True))
        clients, own = self.case.clients, sum(length * weight for length, weight in jobs)
        both = 2 * smith(jobs) + (clients - 1) * own
        of_running = sum(length * weight for length, weight in zip(left, weights, strict=True))
        return -(-both // (2 * clients)) - of_running

    def _client_rounds(self, running: tuple[int, ...], waiting: Waiting) -> int:
        """Return the least sum of rounds of all clients before each last token, weighted."""
        epochs = self.epochs
        jobs = [(kind.rounds, kind.finish) for kind in waiting.kinds]
        jobs += [(e // epochs.many, epochs.roles[e % epochs.many].finish) for e in running]
        total = smith(jobs)
        if self.case.in_round:
            total += sum(kind.first for kind in waiting.kinds)
            total += sum(epochs.roles[entry % epochs.many].first for entry in running)
        return total

    def _by_arrivals(self, waiting: Waiting, clock: int, event: int) -> int:
        """Return what those that wait cost by arrivals, prefills one by one, and own rounds."""
        case = self.case
        a_round = case.round_fixed + case.round_client
        since = event * a_round
        share, token = case.stage // case.clients, case.prompt_token
        jobs, alone = [], 0
        for kind in waiting.kinds:
            begins = max(since, kind.arrival - clock)
            prompt = token * kind.prompt
            jobs.append((begins, share + prompt))
            alone += kind.weight * (begins + case.stage + prompt)
        ends = shortest_rest_first(jobs)
        queued = sum(w * end for w, end in zip(waiting.weights, ends, strict=True))
        return max(alone, queued) + waiting.own * a_round

    def _of(self, counts: Counts) -> Waiting:
        case = self.case
        kinds = [k for k, count in zip(case.kinds, counts, strict=True) for _ in range(count)]
        weights = sorted((kind.weight for kind in kinds), reverse=True)
        stages = []
        for free in range(case.clients + 1):
            count = [1 + max(0, -(-(k + 1 - free) // case.clients)) for k in range(len(kinds))]
            stages.append(case.stage * sum(w * c for w, c in zip(weights, count, strict=True)))
        early = int(case.in_round)
        ahead = sum(kind.first * (kind.rounds - early) for kind in kinds)
        return Waiting(
            tuple(kinds),
            weights[0] if weights[0] == weights[-1] else 0,
            sum(weights),
            tuple(weights),
            tuple(stages),
            case.prompt_token * smith((kind.prompt, kind.weight) for kind in kinds),
            ahead,
            sum(kind.weight * kind.rounds for kind in kinds) - ahead,
            case.stage + case.prompt_token * min(kind.prompt for kind in kinds),
        )


def smith(jobs: Iterable[tuple[int, int]]) -> int:
    """Return the least weighted sum of ends of (length, weight) on one machine."""
    inside = sorted(job for job in jobs if job[1])
    if len({weight for _, weight in inside}) > 1:
        inside.sort(key=cmp_to_key(_longer_for_its_weight))
    now = total = 0
    for length, weight in inside:
        now += length
        total += weight * now
    return total


def shortest_rest_first(jobs: list[tuple[int, int]]) -> list[int]:
    """Return the ends of (release, length) on one machine that interrupts, in order: the k-th is as
    early as it can be, for no rule has more jobs done at any time."""
    coming, ready, ends = sorted(jobs), list[int](), list[int]()
    now, place = 0, 0
    while place < len(coming) or ready:
        if not ready:
            now = max(now, coming[place][0])
        while place < len(coming) and coming[place][0] <= now:
            heappush(ready, coming[place][1])
            place += 1
        until = coming[place][0] if place < len(coming) else None
        if until is None or now + ready[0] <= until:
            now += heappop(ready)
            ends.append(now)
        else:
            heapreplace(ready, ready[0] - (until - now))
            now = until
    return ends


def _longer_for_its_weight(one: tuple[int, int], other: tuple[int, int]) -> int:
    return one[0] * other[1] - other[0] * one[1]
