"""All workers as one machine: sums on it, and makespans by charges (docs/proofs.md has proofs)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, cmp_to_key
from heapq import heappop, heappush
from itertools import accumulate
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.charges import Charges, OneWorker, Shares, on_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.certificates.context import Context


@dataclass(frozen=True)
class Machine:
    """All workers as one machine of their summed speed, and each request's least time on it.

    ``arrivals``, ``after_ns`` (least distance of an end from the mean time at which it is charged)
    and ``alone_ns`` (least time until the end if served alone) are in nanoseconds, ``times`` on the
    machine in 1 / ``scale`` of one.
    """

    scale: int
    arrivals: list[int]
    times: list[int]
    after_ns: list[int]
    alone_ns: list[int]

    def releases(self) -> list[int]:
        """Arrivals in the machine's unit."""
        return [arrival * self.scale for arrival in self.arrivals]

    @cached_property
    def ends(self) -> list[int]:
        """Earliest k-th ends, for each k: of requests served alone, and of the machine.

        Shortest remaining time first has at every moment the most requests done (Schrage 1968).
        """
        alone = sorted(a + t for a, t in zip(self.arrivals, self.alone_ns, strict=True))
        ends = shortest_remaining_first(self.releases(), self.times)
        return [max(one, -(-end // self.scale)) for one, end in zip(alone, ends, strict=True)]


def least_sum(kind: str, machine: Machine, whole: Machine | None = None, clients: int = 0) -> int:
    """Return what a relaxation proves of the sum of times from arrivals on.

    For the queues the machine is that until first tokens, and ``whole`` that until the ends, which
    starts wait for.
    """
    arrivals = sum(machine.arrivals)
    if kind == "ranked":
        return sum(machine.ends) - arrivals
    if kind == "mean_busy":
        return mean_busy(machine) - arrivals
    assert whole is not None
    starts = (queue if kind == "queue" else queue_busy)(whole, clients)
    return starts - arrivals + sum(machine.alone_ns)


def queue(whole: Machine, clients: int) -> int:
    """Sum of starts: the k-th start is no earlier than the (k - J)-th end."""
    ends = whole.ends[: max(0, len(whole.arrivals) - clients)]
    earliest = [0] * (len(whole.arrivals) - len(ends)) + ends
    return sum(max(a, e) for a, e in zip(sorted(whole.arrivals), earliest, strict=True))


def queue_busy(whole: Machine, clients: int) -> int:
    """Sum of starts: all but J of them wait for ends, whose sum mean busy times bound.

    Of all sets of n - J requests that may end first, the shortest have the least mean busy times
    (all there at the first arrival), and what must lie after these is least for some such set.
    """
    n = len(whole.arrivals)
    ending = max(0, n - clients)
    twice_busy = clock = 0
    for time in sorted(whole.times)[:ending]:
        twice_busy += 2 * clock + time
        clock += time
    ends = twice_busy // (2 * whole.scale) + sum(sorted(whole.after_ns)[:ending])
    return n * min(whole.arrivals) + ends


def shortest_remaining_first(releases: Sequence[int], times: Sequence[int]) -> list[int]:
    """Return the ends, in order, of shortest remaining processing time first on one machine."""
    order = sorted(zip(releases, times, strict=True))
    ends: list[int] = []
    open_jobs: list[int] = []
    now = at = 0
    while at < len(order) or open_jobs:
        if not open_jobs:
            now = max(now, order[at][0])
        while at < len(order) and order[at][0] <= now:
            heappush(open_jobs, order[at][1])
            at += 1
        left = heappop(open_jobs)
        if at == len(order) or now + left <= order[at][0]:
            now += left
            ends.append(now)
        else:
            heappush(open_jobs, left - (order[at][0] - now))
            now = order[at][0]
    return ends


def mean_busy(machine: Machine, weights: Sequence[int] | None = None) -> int:
    """Sum over requests of mean busy time on the machine and what must lie after it, by weights.

    The sum of mean busy times is least when the machine always serves the shortest request there
    is, for its weight (Goemans 1996). Each mean is rounded down.
    """
    weights = [1] * len(machine.times) if weights is None else weights
    columns = (machine.times, machine.releases(), machine.after_ns, weights)
    kept = (row for row in zip(*columns, strict=True) if row[3])
    rows = sorted(kept, key=None if min(weights) == max(weights) else cmp_to_key(_before))
    squares = _busy_squares([row[1] for row in rows], [row[0] for row in rows])
    total = 0
    for (time, release, after, weight), square in zip(rows, squares, strict=True):
        mean = square // (2 * machine.scale * time) if time else release // machine.scale
        total += weight * (mean + after)
    return total


def _before(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> int:
    """Order requests by their time over their weight; equal ones are served in any order."""
    return one[0] * other[3] - other[0] * one[3] or (one > other) - (one < other)


def _busy_squares(releases: Sequence[int], times: Sequence[int]) -> list[int]:
    """Return the sum of end^2 - start^2 over each job's pieces, the first job there is first."""
    order = sorted(range(len(times)), key=lambda job: (releases[job], job))
    left, squares = list(times), [0] * len(times)
    open_jobs: list[int] = []
    now = at = 0
    while at < len(order) or open_jobs:
        if not open_jobs:
            now = max(now, releases[order[at]])
        while at < len(order) and releases[order[at]] <= now:
            heappush(open_jobs, order[at])
            at += 1
        job = open_jobs[0]
        end = now + left[job]
        if at < len(order):
            end = min(end, releases[order[at]])
        squares[job] += end * end - now * now
        left[job] -= end - now
        if not left[job]:
            heappop(open_jobs)
        now = end
    return squares


class Part(NamedTuple):
    """Workers with equal charges, and the least and most that multiply them on the machine."""

    worker: OneWorker
    least: int
    most: int


@dataclass(frozen=True)
class Workers:
    """The workers that can serve a request at all, as parts of one machine.

    ``numbers`` are theirs in the instance; ``parts``, their charges, are equal for equal workers.
    """

    context: Context
    numbers: list[int]
    parts: list[OneWorker]
    _machines: dict[tuple[int, ...], Machine] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, context: Context, shares: dict[int, Shares], first: bool = False) -> Workers:
        """Return the workers onto which a request fits, their steps shared as chosen.

        ``first``: with the rounds until a request's first token, one or none.
        """
        parts = [on_worker(context, number, own, first) for number, own in shares.items()]
        return cls(context, list(shares), parts)

    @cached_property
    def scale(self) -> int:
        """Common scale of all charges."""
        return lcm(*(part.charges.scale for part in self.parts))

    @property
    def clients(self) -> int:
        """Most requests that are on clients at one time, of all workers together."""
        return sum(part.charges.clients for part in self.parts)

    def choices(self, weights: Sequence[int]) -> list[dict[str, Any]]:
        """Return how the workers' steps are shared, as a certificate has it."""
        rows = zip(self.numbers, weights, self.parts, strict=True)
        return [{"worker": k, "weight": w, **part.charges.shares.stated()} for k, w, part in rows]

    def weighted(self, weights: Sequence[int]) -> list[Part]:
        """Return the workers by what they charge, for given weights; all as one with restarts."""
        found: dict[int, Part] = {}
        for part, weight in zip(self.parts, weights, strict=True):
            factor = weight * (self.scale // part.charges.scale)
            known = found.get(id(part), Part(part, factor, factor))
            found[id(part)] = Part(part, min(known.least, factor), max(known.most, factor))
        if self.context.scope.restarts and len(self.parts) > 1:
            return [Part(self._joined(list(found.values())), 1, 1)]
        return list(found.values())

    def _joined(self, parts: list[Part]) -> OneWorker:
        """Return all workers as one for requests that may change between them.

        Of each part of a request's time, prefill or round, the least on any worker, charged at that
        worker's speed; so the scale is that of the machine with a speed of 1.
        """
        n, rounds = len(self.context.arrivals), dict[int, int]()
        columns: list[list[Column]] = [[] for _ in range(5)]
        for worker, factor, _ in parts:
            charges, rows = worker.charges, worker.rows
            rounds |= zip(rows, worker.rounds, strict=True)
            stages = [factor * each for each in charges.stages]
            tokens = [factor * (each + charges.growth) for each in charges.first]
            times = (stages, tokens, worker.stage_ns, worker.round_ns, worker.alone_ns)
            for column, values in zip(columns, times, strict=True):
                column.append((rows, values))
        stages, tokens, stage_ns, round_ns, alone_ns = (least_of(each, n) for each in columns)
        every, counts = list(range(n)), [rounds[row] for row in range(n)]
        if not self.context.equal:
            each_ns = zip(stage_ns, counts, round_ns, strict=True)
            alone_ns = [stage + d * a_round for stage, d, a_round in each_ns]
        growth = min(part.least * part.worker.charges.growth for part in parts)
        first, terms = [token - growth for token in tokens], self.parts[0].charges.terms
        whole, no_shares = self.scale // terms.unit, Shares("", "")
        charges = Charges(no_shares, terms, n, whole, stages, first, growth, 0, 1)
        scope = self.context.scope
        return OneWorker(charges, every, counts, stage_ns, round_ns, alone_ns, scope)

    def machine(self, weights: Sequence[int]) -> Machine:
        """Return all workers as one machine, worker w with the speed ``weights[w]``.

        A request's time is the least of its times on the workers, each at that worker's speed; with
        restarts that of each part of it.
        """
        if tuple(weights) not in self._machines:
            self._machines[tuple(weights)] = self._machine(weights)
        return self._machines[tuple(weights)]

    def _machine(self, weights: Sequence[int]) -> Machine:
        speed, n = self.scale * sum(weights), len(self.context.arrivals)
        parts = self.weighted(weights)
        times = [(part.rows, [factor * time for time in part.times]) for part, factor, _ in parts]
        after = [(part.rows, part.after_ns) for part, *_ in parts]
        alone = [(part.rows, part.alone_ns) for part, *_ in parts]
        columns = (least_of(each, n) for each in (times, after, alone))
        return Machine(speed, self.context.arrivals, *columns)


Column = tuple[list[int], list[int]]
"""Some rows, and a value of each."""


def by_request(columns: list[Column], count: int) -> list[tuple[int, ...]]:
    """Return the values that each of so many requests has in some columns."""
    if all(len(rows) == count for rows, _ in columns):
        return list(zip(*(values for _, values in columns), strict=True))
    found: list[tuple[int, ...]] = [()] * count
    for rows, values in columns:
        for row, value in zip(rows, values, strict=True):
            found[row] += (value,)
    return found


def least_of(columns: list[Column], count: int) -> list[int]:
    """Return the least value of each request, of which each has one."""
    return list(map(min, by_request(columns, count)))


class Charged:
    """What is charged of the requests released at or after a moment, for given weights.

    ``arrivals`` give the order. ``ends`` and ``times``: earliest ends, and charges on the machine,
    of a request on the workers that can serve it, equal ones once; ``stages``: the most
    that its stage is charged.
    """

    def __init__(self, workers: Workers, weights: list[int]) -> None:
        self.workers, self.weights, scope = workers, weights, workers.context.scope
        self.late_are_elsewhere = len(weights) > 1 and not scope.restarts
        arrivals, n = workers.context.arrivals, len(workers.context.arrivals)
        ends, times, stages = list[Column](), list[Column](), list[Column]()
        for part, least, most in workers.weighted(weights):
            rows = part.rows
            own = zip(rows, part.alone_ns, strict=True)
            ends.append((rows, [arrivals[row] + alone for row, alone in own]))
            times.append((rows, [least * time for time in part.times]))
            # Where prefills yield tokens, all of a request may be charged in stages.
            charged = part.times if scope.yielding else part.charges.stages
            stages.append((rows, [most * stage for stage in charged]))
        order = sorted(range(n), key=arrivals.__getitem__)
        self.arrivals = [arrivals[row] for row in order]
        self.ends, self.times = (
            [each[row] for row in order] for each in (by_request(ends, n), by_request(times, n))
        )
        by_row = by_request(stages, n)
        self.stages = [max(by_row[row]) for row in order]
        self.speed = workers.scale * sum(weights)
        self.needed_from = list(accumulate(map(min, reversed(self.times))))[::-1]
        self.last_end_from = list(accumulate(map(min, reversed(self.ends)), max))[::-1]

    def proven(self, moment: int, claimed: int) -> int:
        """Return the claimed makespan if no schedule is shorter, else one that is charged.

        A schedule that is shorter ends each request before it, on a worker where that is possible.
        """
        first = bisect_left(self.arrivals, moment)
        if first == len(self.arrivals):
            raise ValueError(f"no request arrives at {moment} or later")
        in_time = [self.in_time(at, claimed) for at in range(first, len(self.arrivals))]
        if not all(in_time):
            return claimed
        total = self.lost(first) + sum(map(min, in_time))
        return min(claimed, moment - (-total // self.speed))

    def in_time(self, at: int, makespan: int) -> list[int]:
        """Return what a request is charged on the workers that can end it before a makespan."""
        pairs = zip(self.times[at], self.ends[at], strict=True)
        return [time for time, end in pairs if end < makespan]

    def lost(self, first: int) -> int:
        """Return what the machine loses while fewer have arrived than there are clients.

        Of the requests from ``first`` on, in order of arrival.

        With n there, a round of at most n takes more than it charges. Stages lose nothing, but
        prefill no more than what has arrived; taken as early as possible, that saves most.
        """
        lost = saved = there = 0
        most = max(part.charges.clients for part in self.workers.parts)
        for number, at in enumerate(range(first, len(self.arrivals) - 1), start=1):
            there += self.stages[at]
            span = self.arrivals[at + 1] - self.arrivals[at]
            if number >= most:
                break
            if span == 0:
                continue
            free = min(self.speed * span, there - saved)
            saved += free
            parts = [_share_lost(part.charges, number) for part in self.workers.parts]
            over, under = max(parts, key=lambda part: Fraction(*part))
            lost -= -(-free * over // under)
            for weight, (over, under) in zip(self.weights, parts, strict=True):
                lost += weight * self.workers.scale * span * over // under
        return max(0, lost)


def _share_lost(charges: Charges, there: int) -> tuple[int, int]:
    """Return the least share of a round's time that it does not charge, as a fraction."""
    free = max(0, charges.clients - there) * charges.round_fixed
    return free, max(1, there * charges.clients * charges.round_most + free)
