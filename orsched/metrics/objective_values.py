"""The value of an objective from the times of requests, exactly; due dates, how late they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import exact_sum
from orsched.common.errors import InputError
from orsched.metrics.flat_figures import ratio
from orsched.metrics.timeline import Timeline, as_arrived
from orsched.metrics.timeline_rows import exact_product
from orsched.metrics.token_times import finishes_ns, first_tokens_ns
from orsched.solving.objectives import LINEAR, Objective, objective_named

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


WEIGHTED_TARDINESS, MAX_LATENESS = "weighted_tardiness_mean", "lateness_max"


@dataclass(frozen=True, eq=False)
class DueDates:
    """The requests of an instance that have a deadline.

    Attributes:
        rows: which they are.
        due_ns: when each is due, from time 0.
        weights: how much each counts; 1 each where the instance has no weights.
    """

    rows: IntColumn
    due_ns: IntColumn
    weights: IntColumn

    @classmethod
    def of(cls, instance: Instance) -> DueDates | None:
        """Return the due dates of an instance; None where no request has a deadline."""
        limits, requests = instance.deadlines_ns, instance.requests
        if limits is None or not (limits >= 0).any():
            return None
        rows = np.flatnonzero(limits >= 0)
        own = requests.weights
        weights = np.ones(len(rows), np.int64) if own is None else own[rows]
        return cls(rows, requests.arrival_ns[rows] + limits[rows], weights)

    @property
    def weight(self) -> int:
        """The sum of the weights."""
        return exact_sum(self.weights)

    def lateness(self, finish_ns: IntColumn) -> IntColumn:
        """Return by how much each is late, from when all requests are done."""
        late: IntColumn = finish_ns[self.rows] - self.due_ns
        return late

    def weighted_tardiness(self, finish_ns: IntColumn) -> int:
        """Return the sum of weights times tardiness."""
        return exact_product(self.weights, np.maximum(0, self.lateness(finish_ns)))

    def max_lateness(self, finish_ns: IntColumn) -> int:
        """Return the largest lateness; negative where all are early."""
        return int(self.lateness(finish_ns).max())


def required_due_dates(instance: Instance, objective: str) -> DueDates:
    """Return the due dates; ``InputError`` where there are none or none counts."""
    found = DueDates.of(instance)
    if found is None:
        raise InputError(
            f"{objective} without deadlines",
            field="objective",
            remedy="give requests a column deadline_s, or classes a deadline",
        )
    if objective == WEIGHTED_TARDINESS and found.weight == 0:
        raise InputError(
            "all weights of requests with a deadline are 0",
            field="weight",
            remedy="give at least one of them a weight above 0",
        )
    return found


def due_figures(instance: Instance, finish_ns: IntColumn) -> dict[str, Any]:
    """Return the figures of due dates, ``finish_ns`` by row; none where no request has one."""
    dates = DueDates.of(instance)
    if dates is None:
        return {}
    total = dates.weighted_tardiness(finish_ns)
    return {
        "due": {
            "requests": len(dates.rows),
            "weight": dates.weight,
            "weighted_tardiness_ns": ratio(total, dates.weight),
            "max_lateness_ns": dates.max_lateness(finish_ns),
        }
    }


@dataclass(frozen=True, eq=False)
class WeightedTimes:
    """An objective of an instance as a sum of times with whole coefficients.

    ``denominator * value = makespan * end + sum(finish * finish_ns) + sum(first * first_ns) -
    constant``, all in nanoseconds, where ``finish_ns`` is at least ``due`` if that is given. The
    coefficients have no common divisor with the denominator.

    Attributes:
        makespan: coefficient of the end of the last step.
        finish: coefficient of each request's last token.
        first: coefficient of each request's first token.
        constant: what arrivals take away: latencies count from them.
        denominator: at least 1, the same for every schedule of the instance.
        due: by row, until when the last token costs nothing: tardiness counts from then.
    """

    makespan: int
    finish: tuple[int, ...]
    first: tuple[int, ...]
    constant: int
    denominator: int
    due: IntColumn | None = None

    def total(
        self, finish_ns: IntColumn, first_ns: IntColumn, makespan_ns: int | None = None
    ) -> int:
        """Return the numerator, which is what a search minimises, from when each request has its
        last and its first token and the end of the last step (None: the last finish)."""
        end = int(finish_ns.max(initial=0)) if makespan_ns is None else makespan_ns
        finish_ns = finish_ns if self.due is None else np.maximum(finish_ns, self.due)
        ends = _product(self.finish, finish_ns) + _product(self.first, first_ns)
        return self.makespan * end + ends - self.constant

    def of(self, instance: Instance, schedule: Schedule) -> int:
        """Return the numerator of a complete schedule of the instance with these coefficients."""
        line = Timeline(instance, schedule)
        end = int(line.end_ns.max(initial=0))
        return self.total(finishes_ns(line), first_tokens_ns(line), end)

    def value_ns(self, total: int) -> Fraction:
        """Return the objective, in nanoseconds, of a numerator."""
        return Fraction(total, self.denominator)


def weighted_times(instance: Instance, objective: str | Objective) -> WeightedTimes:
    """Return an objective that is a sum of times, for an instance with requests, or the weighted
    mean tardiness. Raises ``InputError`` for an objective that is none, such as the attainment,
    without requests, and for weights that are all 0 where the weighted mean is asked for."""
    wanted, requests, n = objective_named(objective), instance.requests, len(instance)
    if wanted.name == WEIGHTED_TARDINESS:
        return _tardiness(instance)
    require_linear(wanted)
    if n == 0:
        raise InputError("no requests are given", field="objective", remedy="add some")
    shares = [(share.weight, share.objective.name) for share in wanted.shares]
    end, finish, first, heavy = Fraction(0), Fraction(0), Fraction(0), Fraction(0)
    counts = [1] * n
    for weight, name in shares or [(Fraction(1), wanted.name)]:
        if name == "makespan":
            end += weight
        elif name == "ttft_mean":
            first += weight / n
        elif name == "weighted_jct_mean":
            counts = _weights(instance)
            heavy += weight / sum(counts)
        else:
            finish += weight / n
    by_count = {count: finish + heavy * count for count in set(counts)}
    return _whole(end, by_count, first, counts, requests.arrival_ns)


def _tardiness(instance: Instance) -> WeightedTimes:
    dates = required_due_dates(instance, WEIGHTED_TARDINESS)
    due, counts = np.zeros(len(instance), np.int64), np.zeros(len(instance), np.int64)
    due[dates.rows], counts[dates.rows] = dates.due_ns, dates.weights
    finish = {int(count): Fraction(int(count), dates.weight) for count in set(counts.tolist())}
    return replace(_whole(Fraction(0), finish, Fraction(0), counts.tolist(), due), due=due)


def require_linear(objective: Objective) -> None:
    """Raise ``InputError`` for an objective that is not a sum of times."""
    if not objective.is_linear:
        raise InputError(
            f"{objective.name} is not a sum of times",
            field="objective",
            remedy=f"one of {', '.join(LINEAR)}, or a weighted sum of them",
        )


def objective_value(
    instance: Instance, schedule: Schedule, objective: str | Objective
) -> Fraction | None:
    """Return an objective of a complete schedule, a sum of times, exactly, in nanoseconds; None
    without requests. Raises as ``weighted_times`` does."""
    wanted = objective_named(objective)
    require_linear(wanted)
    if len(instance) == 0:
        return Fraction(0) if wanted.is_makespan else None
    times = weighted_times(as_arrived(instance, schedule), wanted)
    return times.value_ns(times.of(instance, schedule))


def _weights(instance: Instance) -> list[int]:
    """Return how much each request counts; refuse weights that are all 0."""
    column = instance.requests.weights
    if column is None:
        return [1] * len(instance)
    if exact_sum(column) == 0:
        raise InputError(
            "all weights are 0: the weighted mean is not defined",
            field="weight",
            remedy="give at least one request a weight above 0",
        )
    return [int(each) for each in column.tolist()]


def _whole(
    end: Fraction,
    finish: dict[int, Fraction],
    first: Fraction,
    counts: list[int],
    arrival_ns: IntColumn,
) -> WeightedTimes:
    """Return the coefficients over their least common denominator, without common divisor;
    ``finish`` has those of requests by how much they count (``counts``)."""
    every = {end, first, *finish.values()}
    denominator = math.lcm(*{each.denominator for each in every})
    common = math.gcd(denominator, *{int(each * denominator) for each in every})
    scale = Fraction(denominator, common)
    whole = {count: int(each * scale) for count, each in finish.items()}
    whole_finish = tuple(whole[count] for count in counts)
    whole_first = (int(first * scale),) * len(counts)
    constant = _product(whole_finish, arrival_ns) + _product(whole_first, arrival_ns)
    return WeightedTimes(int(end * scale), whole_finish, whole_first, constant, int(scale))


def _product(coefficients: tuple[int, ...], times_ns: IntColumn) -> int:
    """Return a sum of products, exactly: equal coefficients by one sum, others one by one."""
    kinds = set(coefficients)
    if kinds == {0}:
        return 0
    if len(kinds) == 1:
        return coefficients[0] * exact_sum(np.asarray(times_ns, np.int64))
    pairs = zip(coefficients, times_ns.tolist(), strict=True)
    return sum(coefficient * time for coefficient, time in pairs)
