"""A makespan bound by what requests are charged: arrivals that ramp up, and unequal workers.

All workers are one machine (``bound_charges``). What is released at or after a moment is charged
after it; while few requests have arrived, rounds have few active requests and take more than they
charge; and a request that would end too late on a worker must be served by another.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import gcd, lcm
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.jobs import jobs_on
from orsched.certificates.scope import PLAIN, Scope
from orsched.models.bound_charges import OneWorker, joined, on_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from orsched.instance import Instance

_STEPS, _SAMPLE, _WHOLE = 300, 4_000, 1 << 20
_FEWEST_MOMENTS, _MOST_MOMENTS, _ROWS_IN_ALL = 4, 24, 100_000


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
    def of(cls, instance: Instance, scope: Scope = PLAIN) -> Workers:
        """Return the workers onto which at least one request fits."""
        numbers, parts = [], []
        for number, worker in enumerate(instance.workers):
            rows, jobs = jobs_on(instance, worker, scope.chunks)
            if rows:
                numbers.append(number)
                parts.append(on_worker(worker, jobs, rows, jobs.rounds, scope))
        return cls(numbers, parts, scope)

    @cached_property
    def times(self) -> list[list[int]]:
        """Machine times, by worker and row of its charges."""
        return [part.charges.machine_times(part.rounds) for part in self.parts]

    @cached_property
    def scale(self) -> int:
        """Common scale of all charges."""
        return lcm(*(part.charges.scale for part in self.parts))

    def factors(self, weights: Sequence[int]) -> list[int]:
        """Return by what a worker's charges are multiplied on the machine."""
        pairs = zip(weights, self.parts, strict=True)
        return [weight * (self.scale // part.charges.scale) for weight, part in pairs]

    def choices(self, weights: Sequence[int]) -> list[dict[str, Any]]:
        """Return how the workers' steps are shared, as it stands in a certificate."""
        rows = zip(self.numbers, weights, self.parts, strict=True)
        return [{"worker": k, "weight": w, **part.charges.choices} for k, w, part in rows]


def balanced_weights(workers: Workers, instance: Instance, makespan: int | None) -> list[int]:
    """Return a weight for each worker that makes the sum of least times on the machine large.

    Such weights are the dual of assigning requests, in parts, to workers so that the largest load
    is least; they are found by multiplicative steps. A worker that cannot end a request before
    the makespan, if one is given, does not serve it.
    """
    if len(workers.parts) == 1:
        return [1]
    times = np.full((len(workers.parts), len(instance)), np.inf)
    arrivals = instance.requests.arrival_ns.tolist()
    for k, part in enumerate(workers.parts):
        rows, scale = part.charges.rows, part.charges.scale
        times[k, rows] = [time / scale for time in workers.times[k]]
        if makespan is not None:
            alone = zip(rows, part.alone_ns, strict=True)
            times[k, [row for row, time in alone if arrivals[row] + time >= makespan]] = np.inf
    times = times[:, np.isfinite(times).any(axis=0)]
    if times.shape[1] > _SAMPLE:
        times = times[:, :: -(-times.shape[1] // _SAMPLE)]
    best = _ascend(times)
    whole = [max(1, round(float(weight) * _WHOLE)) for weight in best / best.max()]
    divisor = gcd(*whole)
    return [weight // divisor for weight in whole]


def _ascend(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Maximise the sum of least weighted times over the sum of weights."""
    count, columns, finite = times.shape[0], np.arange(times.shape[1]), np.isfinite(times)
    best, most = np.ones(count), -1.0
    if not len(columns):
        return best
    known = np.where(finite, times, 0.0)
    sums = known[:, finite.all(axis=0)].sum(axis=1)
    speeds = np.where(
        sums > 0, sums.min(initial=np.inf, where=sums > 0) / np.maximum(sums, 1e-9), 1.0
    )
    for start in (np.ones(count), speeds):
        now = np.where(finite.any(axis=1), start, 0.0)
        for step in range(_STEPS):
            weighted = np.where(finite, now[:, None] * known, np.inf)
            chosen = np.argmin(weighted, axis=0)
            value = float(weighted[chosen, columns].sum() / now.sum())
            if value > most:
                best, most = now, value
            loads = np.bincount(chosen, weights=times[chosen, columns], minlength=count)
            if not loads.max() > 0:
                break
            now = now * (1.0 + 0.5 / (1.0 + 0.2 * step) * (loads / loads.max()))
            now = now / now.max()
    return best


def charged_certificates(
    instance: Instance, out_of_time: Callable[[], bool], scope: Scope = PLAIN
) -> Iterator[dict[str, Any]]:
    """Yield certificates of bounds by charges, at several moments and for several weights."""
    workers = Workers.of(instance, scope)
    weights = balanced_weights(workers, instance, None)
    bounds = ChargedBound(instance, workers, weights)
    best: dict[str, Any] | None = None
    for moment in bounds.likely_moments():
        if best is not None and out_of_time():
            return
        found = bounds.certificate(moment)
        if best is None or found["value_ns"] > best["value_ns"]:
            best = found
            yield found
    if best is not None and bounds.late_are_elsewhere and not out_of_time():
        weights = balanced_weights(workers, instance, best["value_ns"])
        yield ChargedBound(instance, workers, weights).certificate(best["released_ns"])


class ChargedBound:
    """Makespan bounds over the requests released at or after a moment, for given weights."""

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

    def certificate(self, moment: int) -> dict[str, Any]:
        """Return the certificate of the bound by what is released at or after a moment."""
        first = bisect_left(self.arrivals, moment)
        lost = self.lost(first)
        value = moment + -(-(lost + self.needed_from[first]) // self.speed)
        value = max(value, self.last_end_from[first])
        if self.late_are_elsewhere:
            value = self._without_late(moment, lost, self.options[first:], value)
        return {
            "bound": "charged",
            **self.workers.scope.stated(),
            "released_ns": moment,
            "workers": self.workers.choices(self.weights),
            "value_ns": value,
        }

    def _without_late(self, moment: int, lost: int, options: list[list[Option]], value: int) -> int:
        """Return the largest makespan bound that proves itself.

        Below a makespan V no worker serves a request that it cannot end before V. If what is left
        needs at least V, no schedule is shorter.
        """
        contested = [each for each in options if max(option.end_ns for option in each) >= value]
        settled = lost + sum(
            min(option.time for option in each)
            for each in options
            if max(option.end_ns for option in each) < value
        )

        def needed(makespan: int) -> int:
            total = settled
            for each in contested:
                in_time = [option.time for option in each if option.end_ns < makespan]
                if not in_time:
                    return makespan
                total += min(in_time)
            return moment - (-total // self.speed)

        # Beyond all ends nothing is late.
        low = high = value
        if contested:
            high = max(value, max(option.end_ns for each in contested for option in each))
        while low < high:
            middle = (low + high + 1) // 2
            if needed(middle) >= middle:
                low = middle
            else:
                high = middle - 1
        return low

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

    def likely_moments(self) -> list[int]:
        """Return the moments whose later requests need most, the first one always."""
        needed = np.array([total / self.speed for total in self.needed_from])
        moments, first = np.unique(np.array(self.arrivals, np.int64), return_index=True)
        estimate = moments + needed[first]
        tried = max(_FEWEST_MOMENTS, min(_MOST_MOMENTS, _ROWS_IN_ALL // len(self.arrivals)))
        likely = moments[np.argsort(-estimate, kind="stable")[:tried]]
        return list(dict.fromkeys([int(moments[0]), *likely.tolist()]))
