"""Makespan bounds by what requests are charged (docs/bounds.md): all workers are one machine."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.aggregate_machine import OneWorker, joined, on_worker
from orsched.certificates.jobs import jobs_on
from orsched.certificates.scope import PLAIN, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance


class Option(NamedTuple):
    """A worker that can serve a request: earliest end, and what it charges on the machine."""

    end_ns: int
    time: int
    stage: int


@dataclass(frozen=True)
class Workers:
    """The workers that can serve a request at all, as parts of one machine.

    Attributes:
        numbers: their numbers in the instance.
        parts: their charges.
    """

    numbers: list[int]
    parts: list[OneWorker]
    scope: Scope = PLAIN

    @classmethod
    def of(
        cls, instance: Instance, choices: list[dict[str, Any]], scope: Scope, first: bool = False
    ) -> Workers:
        """Return the workers onto which a request fits, their steps shared as chosen.

        ``first``: with the rounds until a request's first token, one or none.

        Raises:
            ValueError: the choices are not one for each of these workers, or prove nothing.
        """
        numbers, parts = [], []
        until_first = int(instance.first_token == "decode")
        chosen = {choice["worker"]: choice for choice in choices}
        for number, worker in enumerate(instance.workers):
            rows, jobs = jobs_on(instance, worker, scope.chunks)
            if rows:
                rounds = np.full(len(rows), until_first) if first else jobs.rounds
                numbers.append(number)
                named = ("stage_share", "round_share", "line")
                own = {name: chosen[number][name] for name in named if name in chosen[number]}
                parts.append(on_worker(worker, jobs, rows, rounds, scope, own))
        if [choice["worker"] for choice in choices] != numbers:
            raise ValueError(f"the workers listed are not {numbers}")
        return cls(numbers, parts, scope)

    @cached_property
    def times(self) -> list[list[int]]:
        """Machine times, by worker and row of its charges."""
        return [part.charges.machine_times(part.rounds) for part in self.parts]

    @cached_property
    def scale(self) -> int:
        """Common scale of all charges."""
        return lcm(*(part.charges.scale for part in self.parts))

    @property
    def clients(self) -> int:
        """Most requests that are on clients at one time, of all workers together."""
        return sum(part.charges.clients for part in self.parts)

    def factors(self, weights: Sequence[int]) -> list[int]:
        """Return by what a worker's charges are multiplied on the machine."""
        pairs = zip(weights, self.parts, strict=True)
        return [weight * (self.scale // part.charges.scale) for weight, part in pairs]

    def choices(self, weights: Sequence[int]) -> list[dict[str, Any]]:
        """Return how the workers' steps are shared, as it stands in a certificate."""
        rows = zip(self.numbers, weights, self.parts, strict=True)
        return [{"worker": k, "weight": w, **part.charges.choices} for k, w, part in rows]


class Charged:
    """What is charged of the requests released at or after a moment, for given weights."""

    def __init__(self, instance: Instance, workers: Workers, weights: list[int]) -> None:
        self.workers, self.weights = workers, weights
        arrivals = instance.requests.arrival_ns.tolist()
        restarts = workers.scope.restarts
        self.late_are_elsewhere = len(weights) > 1 and not restarts
        parts, factors = workers.parts, workers.factors(weights)
        if restarts and len(weights) > 1:
            parts, factors = [joined(instance, parts, weights)], [1]
        options: list[list[Option]] = [[] for _ in arrivals]
        for part, factor in zip(parts, factors, strict=True):
            charges, times = part.charges, part.charges.machine_times(part.rounds)
            # Where prefills yield tokens, all of a request may be charged in stages.
            stages = times if workers.scope.yielding else charges.stages
            columns = zip(charges.rows, part.alone_ns, times, stages, strict=True)
            for row, alone, time, stage in columns:
                options[row].append(Option(arrivals[row] + alone, factor * time, factor * stage))
        order = sorted(range(len(arrivals)), key=arrivals.__getitem__)
        self.arrivals = [arrivals[row] for row in order]
        self.options = [options[row] for row in order]
        self.speed = workers.scale * sum(weights)
        least = (min(option.time for option in each) for each in reversed(self.options))
        ends = (min(option.end_ns for option in each) for each in reversed(self.options))
        self.needed_from = list(accumulate(least))[::-1]
        self.last_end_from = list(accumulate(ends, max))[::-1]

    def proven(self, moment: int, claimed: int) -> int:
        """Return the claimed makespan if no schedule is shorter, else one that is charged.

        A schedule that is shorter ends each request before it, on a worker where that is possible.
        """
        first = bisect_left(self.arrivals, moment)
        if first == len(self.arrivals):
            raise ValueError(f"no request arrives at {moment} or later")
        in_time = [[o.time for o in each if o.end_ns < claimed] for each in self.options[first:]]
        if not all(in_time):
            return claimed
        total = self.lost(first) + sum(map(min, in_time))
        return min(claimed, moment - (-total // self.speed))

    def lost(self, first: int) -> int:
        """Return what the machine loses while fewer have arrived than there are clients.

        Of the requests from ``first`` on, in order of arrival.

        With n there, a round of at most n takes more than it charges. Stages lose nothing, but
        prefill no more than what has arrived; taken as early as possible, that saves most.
        """
        lost = saved = there = 0
        most = max(part.charges.clients for part in self.workers.parts)
        for number, at in enumerate(range(first, len(self.arrivals) - 1), start=1):
            there += max(option.stage for option in self.options[at])
            span = self.arrivals[at + 1] - self.arrivals[at]
            if number >= most:
                break
            if span == 0:
                continue
            free = min(self.speed * span, there - saved)
            saved += free
            parts = [self._share_lost(part, number) for part in self.workers.parts]
            over, under = max(parts, key=lambda part: Fraction(*part))
            lost -= -(-free * over // under)
            for weight, (over, under) in zip(self.weights, parts, strict=True):
                lost += weight * self.workers.scale * span * over // under
        return max(0, lost)

    @staticmethod
    def _share_lost(part: OneWorker, there: int) -> tuple[int, int]:
        """Return the least share of a round's time that it does not charge, as a fraction."""
        charges = part.charges
        free = max(0, charges.clients - there) * charges.round_fixed
        return free, max(1, there * charges.clients * charges.round_most + free)
