"""All workers as one machine: their steps as chosen, and makespan bounds by what is charged.

docs/bounds.md has the proofs.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.aggregate_machine import Charges, OneWorker, Shares, on_worker
from orsched.certificates.single_machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.certificates.context import Context


class Part(NamedTuple):
    """Workers that charge alike, by how much is multiplied on the machine, at least and at most."""

    worker: OneWorker
    least: int
    most: int


@dataclass(frozen=True)
class Workers:
    """The workers that can serve a request at all, as parts of one machine.

    Attributes:
        numbers: their numbers in the instance.
        parts: their charges; workers that are alike have the same.
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
        """Return how the workers' steps are shared, as it stands in a certificate."""
        rows = zip(self.numbers, weights, self.parts, strict=True)
        return [{"worker": k, "weight": w, **part.charges.shares.stated()} for k, w, part in rows]

    def weighted(self, weights: Sequence[int]) -> list[Part]:
        """Return the workers by what they charge, for given weights.

        With restarts requests may change between workers: all are one then.
        """
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

    Attributes:
        arrivals: of the requests, in order; all that follows is in this order.
        ends, times: earliest ends, and charges on the machine, of a request on the workers that can
            serve it, those that are alike once.
        stages: the most that its stage is charged.
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
