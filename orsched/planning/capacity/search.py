"""The search for the fewest workers, or the cheapest fleet, among those that could be enough."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from orsched.planning.capacity.question import Fleet, price_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from fractions import Fraction

    from orsched.planning.capacity.estimate import Estimate
    from orsched.planning.capacity.evaluation import Evaluation

_FEW = 3


def fewest_workers(
    evaluation: Evaluation, lower: int, most: int, exhaustive: bool
) -> Estimate | None:
    """Return the estimate of the fewest workers of one machine that suffice, or None up to most.

    Below ``lower`` none suffices, by proof. Upwards in growing steps until a number suffices, then
    between by bisection, several numbers at once where processes are free. The number below the
    answer has been simulated and does not suffice, or is excluded by proof. Attainment need not
    grow with the workers: where few numbers below the answer are left, they are simulated as well;
    ``exhaustive``: all of them.
    """
    low, high = lower - 1, None
    step = 1
    while high is None:
        if low >= most:
            return None
        numbers, at = [], low
        for _ in range(evaluation.at_once):
            at = min(most, at + step)
            if at not in numbers:
                numbers.append(at)
            step = 1 if exhaustive else 2 * step
        for found in evaluation.estimates((number,) for number in numbers):
            if found.suffices:
                high = found.workers
                break
            low = found.workers
    while high - low > 1:
        for found in evaluation.estimates((m,) for m in _between(low, high, evaluation.at_once)):
            if found.suffices:
                high = found.workers
                break
            low = found.workers
    untried = [m for m in range(lower, high) if (m,) not in evaluation.known]
    if len(untried) <= _FEW:
        for found in evaluation.estimates((m,) for m in untried):
            if found.suffices:
                high = min(high, found.workers)
    return evaluation.known[(high,)]


def _between(low: int, high: int, count: int) -> list[int]:
    """Return some numbers that cut what lies between two others into equal parts."""
    gap = high - low
    cuts = {low + gap * k // (count + 1) for k in range(1, count + 1)}
    return sorted(m for m in cuts if low < m < high) or [low + gap // 2]


def cheapest_fleet(
    evaluation: Evaluation,
    hopeless: Callable[[Fleet], bool],
    most: int,
    exhaustive: bool,
) -> Estimate | None:
    """Return the estimate of the cheapest fleet of several machines that suffices, or None.

    ``hopeless``: whether a fleet is proven to be too small. Each machine alone comes first. Then,
    for each choice of the other machines that is cheaper than the best so far, the number of the
    last one by bisection: more workers of any machine are taken to do no harm. ``exhaustive``: all
    fleets in order of price, until one suffices.
    """
    if exhaustive:
        for fleet in _in_order(evaluation, most):
            if not hopeless(fleet) and evaluation.estimate(fleet).suffices:
                return evaluation.known[fleet]
        return None
    search = _Staircase(evaluation, hopeless, most)
    count = len(evaluation.question.machines)
    for number in range(count):
        search.along(tuple(0 for _ in range(count)), number)
    for prefix in search.prefixes():
        search.along(prefix, count - 1)
    return None if search.best is None else evaluation.known[search.best]


def _in_order(evaluation: Evaluation, most: int) -> Iterator[Fleet]:
    machines = evaluation.question.machines
    fleets = (f for f in product(range(most + 1), repeat=len(machines)) if 0 < sum(f) <= most)
    yield from sorted(fleets, key=lambda fleet: (price_of(machines, fleet), sum(fleet), fleet))


class _Staircase:
    """The border between fleets that suffice and those that do not, as far as it matters."""

    def __init__(
        self, evaluation: Evaluation, hopeless: Callable[[Fleet], bool], most: int
    ) -> None:
        self.evaluation, self.hopeless, self.most = evaluation, hopeless, most
        self.machines = evaluation.question.machines
        self.best: Fleet | None = None
        self.price: Fraction | None = None

    def suffices(self, fleet: Fleet) -> bool:
        """Say if a fleet suffices: by proof, by a smaller or larger one, or by simulation."""
        if self.hopeless(fleet):
            return False
        for other, found in self.evaluation.known.items():
            if found.suffices and all(a >= b for a, b in zip(fleet, other, strict=True)):
                return True
            if not found.suffices and all(a <= b for a, b in zip(fleet, other, strict=True)):
                return False
        return self.evaluation.estimate(fleet).suffices

    def along(self, fleet: Fleet, number: int) -> None:
        """Find the fewest workers of one machine beside the others of a fleet, if it is cheaper."""

        def with_count(count: int) -> Fleet:
            return (*fleet[:number], count, *fleet[number + 1 :])

        others = sum(fleet) - fleet[number]
        most = self.most - others
        if self.price is not None:
            left = self.price - price_of(self.machines, with_count(0))
            if left <= 0:
                return
            most = min(most, -(-left // self.machines[number].price) - 1)
        if most < 0:
            return
        low, high, step = -1 if others else 0, None, 1
        while high is None:
            if low >= most:
                return
            # Beside a price to beat the largest number says at once if there is anything to find.
            at = most if self.price is not None else min(most, low + step)
            if self.suffices(with_count(at)):
                high = at
            else:
                low, step = at, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.suffices(with_count(middle)) else (middle, high)
        self._take(with_count(high))

    def _take(self, fleet: Fleet) -> None:
        if not self.evaluation.estimate(fleet).suffices:  # a smaller one did: it stays the answer
            return
        price = price_of(self.machines, fleet)
        if self.price is None or price < self.price:
            self.best, self.price = fleet, price

    def prefixes(self) -> Iterator[Fleet]:
        """Yield the choices of all machines but the last, cheap ones first."""
        if self.price is None:
            return
        *others, last = self.machines
        ranges = [range(int(self.price / machine.price) + 1) for machine in others]
        del last
        chosen = [(*counts, 0) for counts in product(*ranges) if any(counts)]
        chosen = [f for f in chosen if price_of(self.machines, f) < self.price]
        yield from sorted(chosen, key=lambda fleet: price_of(self.machines, fleet))
