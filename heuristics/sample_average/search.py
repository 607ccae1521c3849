"""The first stage: the order and the gate with the least mean of an objective over scenarios."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from orsched.heuristics.sample_average.policy import GATES, Plan, PlannedOrder
from orsched.objective_values import weighted_times
from orsched.simulator import simulate_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.objectives import Objective
    from orsched.policy import Information

_REACH = 8
"""Most places that a request is moved by in half of the moves; the other half goes anywhere."""


class Value(NamedTuple):
    """What a plan costs on all scenarios.

    Attributes:
        total: sum of the objective's numerators: of two plans the smaller is better, exactly.
        makespan_ns: sum of the makespans.
    """

    total: int
    makespan_ns: int


class Scenarios:
    """Values plans on scenarios of an instance, by the simulator.

    Args:
        instance: all requests at one time, one worker.
        lengths: of shape (scenarios, requests).
        objective: a sum of times.
        information, risk: of the policy.
        known: lengths for the chance constraint; None: ``lengths``.
        deadline: called within simulations; it may raise.
    """

    def __init__(
        self,
        instance: Instance,
        lengths: IntColumn,
        objective: Objective,
        information: Information,
        risk: float,
        known: IntColumn | None = None,
        deadline: Callable[[], None] | None = None,
    ) -> None:
        self.information, self.risk, self.deadline = information, risk, deadline
        self.lengths = lengths
        self.known = lengths if known is None else known
        self.instances = [
            instance.replace(requests=instance.requests.replace(output_tokens=row))
            for row in lengths
        ]
        self.times = weighted_times(instance, objective)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.instances)

    def policy(self, plan: Plan) -> PlannedOrder:
        """Return a policy that follows a plan."""
        return PlannedOrder(plan, self.known, self.risk, self.information)

    def value(self, plan: Plan, most: int | None = None) -> Value | None:
        """Return what a plan costs; None once it is known to cost more than ``most``."""
        total = makespan = 0
        for instance in self.instances:
            found = simulate_policy(instance, self.policy(plan), deadline=self.deadline)
            ends = found.schedule.request_times(instance)
            total += self.times.total(
                ends["finish_ns"], ends["first_token_ns"], found.schedule.makespan_ns
            )
            makespan += found.schedule.makespan_ns
            if most is not None and total > most:
                return None
        return Value(total, makespan)


def first_plans(instance: Instance, lengths: IntColumn) -> list[Plan]:
    """Return plans to begin with: by mean and by 0.9 quantile, both ways, and as they are."""
    mean, most = lengths.mean(axis=0), lengths.max(axis=0)
    rows = range(len(instance))
    keys: list[Callable[[int], float]] = [
        lambda row: 0.0,
        lambda row: -mean[row],
        lambda row: -most[row],
        lambda row: mean[row],
        lambda row: most[row],
    ]
    orders = dict.fromkeys(tuple(sorted(rows, key=key)) for key in keys)
    return [Plan(order, gate) for order in orders for gate in GATES]


def neighbours(plan: Plan, seed: int) -> Iterator[Callable[[Plan], Plan]]:
    """Yield changes of a plan without end: a request moved, two exchanged, another gate."""
    draws, size = random.Random(seed), len(plan.order)
    while True:
        kind, first = draws.random(), draws.randrange(size)
        near = draws.random() < 0.5
        span = min(size - 1, _REACH) if near else size - 1
        second = min(max(first + draws.randint(-span, span), 0), size - 1) if size > 1 else first
        if kind < 0.05:
            yield lambda old: old._replace(gate=GATES[1 - GATES.index(old.gate)])
        elif kind < 0.5:
            yield lambda old, a=first, b=second: old._replace(  # type: ignore[misc]
                order=_exchanged(old.order, a, b)
            )
        else:
            yield lambda old, a=first, b=second: old._replace(  # type: ignore[misc]
                order=_moved(old.order, a, b)
            )


def _exchanged(order: tuple[int, ...], first: int, second: int) -> tuple[int, ...]:
    found = list(order)
    found[first], found[second] = found[second], found[first]
    return tuple(found)


def _moved(order: tuple[int, ...], first: int, second: int) -> tuple[int, ...]:
    found = list(order)
    found.insert(second, found.pop(first))
    return tuple(found)
