"""What a MIP minimises, as whole numbers: from a schedule, and from the objective of its model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from orsched.metrics.class_metrics import request_limits
from orsched.metrics.objective_values import weighted_times
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import finishes_ns, first_tokens_ns

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.slo import SLO
    from orsched.metrics.class_metrics import RequestLimits
    from orsched.metrics.objective_values import WeightedTimes
    from orsched.models.full_mip.problem import Problem
    from orsched.solving.objectives import Objective


class MakespanAim:
    """The makespan in nanoseconds."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def of(self, schedule: Schedule) -> int:
        """Return the value of a schedule."""
        return schedule.makespan_ns

    def of_units(self, units: int) -> int:
        """Return the value that an objective of the model stands for."""
        return self._problem.to_ns(units)

    def shown_ns(self, value: int) -> int:
        """Return a value as callbacks see it, in whole nanoseconds."""
        return value


@dataclass(frozen=True)
class Terms:
    """What the model of an objective needs to know, in units of time.

    Attributes:
        makespan, finish, first: coefficients of the end, of last tokens and of first tokens.
        limits: by request the limits on the first token and from there to the last one, -1 for
            none, or None where the request is not judged; None for a sum of times.
    """

    makespan: int
    finish: tuple[int, ...]
    first: tuple[int, ...]
    limits: tuple[tuple[int, int] | None, ...] | None = None


class TimesAim:
    """A sum of weighted times in nanoseconds: the numerator of the objective."""

    def __init__(self, instance: Instance, problem: Problem, objective: Objective) -> None:
        self._instance, self._problem = instance, problem
        self.times: WeightedTimes = weighted_times(instance, objective)
        times = self.times
        several = times.makespan + sum(times.finish) + sum(times.first)
        self._constant = several * problem.first_ns - times.constant
        self.terms = Terms(times.makespan, times.finish, times.first)

    def of(self, schedule: Schedule) -> int:
        """Return the value of a schedule."""
        return self.times.of(self._instance, schedule)

    def of_units(self, units: int) -> int:
        """Return the value that an objective of the model stands for."""
        return units * self._problem.unit_ns + self._constant

    def shown_ns(self, value: int) -> int:
        """Return a value as callbacks see it, in whole nanoseconds, rounded up."""
        return math.ceil(self.fraction(value))

    def fraction(self, value: int) -> Fraction:
        """Return the objective that a value stands for, in nanoseconds."""
        return self.times.value_ns(value)

    def lower(self, makespan_ns: int, sums_ns: dict[str, int], alone: Alone) -> int:
        """Return a bound on the value: from the makespan, sums over requests and each one alone.

        A sum with unequal coefficients is at least the least of them times the bound on the plain
        sum, and what each has above it times the request alone.
        """
        total = self.times.makespan * makespan_ns
        arrivals = self._instance.requests.arrival_ns.tolist()
        for name, coefficients, least in (
            ("mean_jct", self.times.finish, alone.finish_ns),
            ("mean_ttft", self.times.first, alone.first_ns),
        ):
            common = min(coefficients)
            plain = max(sums_ns.get(name, 0), sum(least))
            above = zip(coefficients, least, strict=True)
            total += common * plain + sum((each - common) * time for each, time in above)
            total += sum(a * t for a, t in zip(coefficients, arrivals, strict=True))
        return total - self.times.constant


@dataclass(frozen=True)
class Alone:
    """How long each request takes from its arrival to its first and last token, served alone."""

    first_ns: tuple[int, ...]
    finish_ns: tuple[int, ...]


class MissesAim:
    """How many of the judged requests are beyond their limits."""

    def __init__(self, instance: Instance, problem: Problem, slo: SLO | None) -> None:
        self._instance = instance
        self.limits: RequestLimits = request_limits(instance, slo)
        self.judged = len(self.limits.judged)
        n, unit = len(instance), problem.unit_ns
        inside = set(self.limits.judged.tolist())
        pairs = zip(self.limits.ttft_ns.tolist(), self.limits.decode_ns.tolist(), strict=True)
        limits = tuple(
            (_units(ttft, unit), _units(decode, unit)) if row in inside else None
            for row, (ttft, decode) in enumerate(pairs)
        )
        self.terms = Terms(0, (0,) * n, (0,) * n, limits)

    def of(self, schedule: Schedule) -> int:
        """Return the value of a schedule."""
        line = Timeline(self._instance, schedule)
        met = self.limits.attained(self._instance, first_tokens_ns(line), finishes_ns(line))
        return self.judged - met

    def of_units(self, units: int) -> int:
        """Return the value that an objective of the model stands for."""
        return units

    def shown_ns(self, value: int) -> int:
        """Return a value as callbacks see it: requests, not times."""
        return value

    def fraction(self, value: int) -> Fraction | None:
        """Return the attainment that a value stands for; None where nobody is judged."""
        return Fraction(self.judged - value, self.judged) if self.judged else None

    def lower(self, alone: Alone) -> int:
        """Return how many requests would miss their limits even if they were served alone."""
        requests = self._instance.requests
        first = np.array(alone.first_ns, np.int64) + requests.arrival_ns
        finish = np.array(alone.finish_ns, np.int64) + requests.arrival_ns
        return self.judged - self.limits.attained(self._instance, first, finish)


def _units(ns: int, unit: int) -> int:
    """Return a limit in units: times are whole units, so what is left over says nothing."""
    return -1 if ns < 0 else ns // unit


Aim = MakespanAim | TimesAim | MissesAim
