"""A search for prices that prove how few requests can be in time.

A linear program over ways to be in time, a start and an end for each request: at most one of each
request, as many at each moment as there are clients, and of each window no more than its time. Its
columns are made as they are needed, by the duals: the cheapest way of each request. What the duals
prove is worked out in ``orsched.certificates.in_time``. Percentiles are bisected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.in_time import cheapest, needs_of
from orsched.certificates.one_machine import Workers
from orsched.checker.due_bounds import ATTAINMENT, in_time, judged, rank_of, within
from orsched.common.errors import unavailable
from orsched.common.units import NEVER, NS_PER_S
from orsched.models.bounds.makespan_certificates import balanced_weights, best_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from orsched.certificates.context import Context
    from orsched.certificates.in_time import Found, Needs

    Numbers = NDArray[Any]

MOMENTS, FEWER, ROUNDS = 96, 48, 60
"""Moments for one question, and for each of several; and times that ways are added."""
MOST_CELLS = 400_000
"""Requests times moments, at the most."""

_SMOOTH = 0.6  # of the best prices so far, where ways are priced
_EPSILON = 1e-6
_PRECISION = 500


class Prices(NamedTuple):
    """Prices of a client at each moment, and of a second of the machine in each window."""

    held: Numbers
    time: Numbers

    def towards(self, other: Prices, share: float) -> Prices:
        """Return these prices, and of others a share."""
        pairs = zip(self, other, strict=True)
        return Prices(*(own * (1 - share) + each * share for own, each in pairs))


def glop() -> Any:
    """Return an empty linear program; ``MissingDependencyError`` where ortools is missing."""
    try:
        from ortools.linear_solver import pywraplp
    except ImportError as error:
        raise unavailable(error, "this bound needs ortools: pip install ortools") from None
    return pywraplp.Solver.CreateSolver("GLOP")


class _Program:
    """The linear program of the ways that are known."""

    def __init__(self, needs: Needs, moments: Numbers) -> None:
        self.needs, self.moments = needs, moments
        self.solver = glop()
        self.known: set[tuple[int, ...]] = set()
        clients = float("inf") if needs.clients is None else float(needs.clients)
        self.once = [self._row(1.0) for _ in needs.arrivals]
        self.clients = [self._row(clients) for _ in moments]
        self.time = [self._row(length / NS_PER_S) for length in np.diff(moments).tolist()]
        self.objective = self.solver.Objective()
        self.objective.SetMaximization()

    def _row(self, most: float) -> Any:
        return self.solver.Constraint(-float("inf"), most)

    def add(self, found: Found) -> bool:
        """Add the ways that are not known yet; return whether there was one."""
        before, needs = len(self.known), self.needs
        first = needs.first / NS_PER_S
        rest = np.maximum(needs.whole - needs.first, 0) / NS_PER_S
        for row, way in enumerate(zip(*(place.tolist() for place in found[1:]), strict=True)):
            if way[0] < 0 or (row, *way) in self.known:
                continue
            self.known.add((row, *way))
            column = self.solver.NumVar(0.0, float("inf"), "")
            self.objective.SetCoefficient(column, 1.0)
            self.once[row].SetCoefficient(column, 1.0)
            for moment in range(way[0] + 1, way[1] + 1):
                self.clients[moment].SetCoefficient(column, 1.0)
            spent = dict.fromkeys(way[2:], 0.0)
            for window, seconds in zip(way[2:], (first[row], rest[row]), strict=True):
                spent[window] += float(seconds)
            for window, seconds in spent.items():
                if window < len(self.time):
                    self.time[window].SetCoefficient(column, seconds)
        return len(self.known) > before

    def solved(self) -> tuple[float, Prices] | None:
        """Return how many these ways have in time, and the duals; None where the solver fails."""
        if self.solver.Solve() != self.solver.OPTIMAL:
            return None
        held = np.array([row.dual_value() for row in self.clients])
        time = np.array([*(row.dual_value() for row in self.time), 0.0])
        return self.objective.Value(), Prices(np.maximum(held, 0), np.maximum(time, 0))

    def proven(self, prices: Prices) -> tuple[float, Found]:
        """Return how many are in time at most by some prices, and the cheapest ways."""
        found = cheapest(self.needs, self.moments, prices.held, prices.time / NS_PER_S)
        total = np.maximum(0, 1 - found.cost).sum() + (self.needs.clients or 0) * prices.held.sum()
        return float(total + prices.time[:-1] @ np.diff(self.moments) / NS_PER_S), found


def best_prices(
    needs: Needs, moments: Numbers, enough: int | None, out_of_time: Callable[[], bool]
) -> tuple[int, Prices]:
    """Return how many requests are in time at most, and the prices that say so. The search ends
    where fewer than ``enough`` are, or where it cannot prove that; None: with the least number."""
    program, free = _Program(needs, moments), np.zeros(len(moments))
    center = Prices(free, free)
    least, found = program.proven(center)
    program.add(found)
    for _ in range(ROUNDS):
        most = int(least + _EPSILON)
        limit = most if enough is None else enough
        if most < limit or out_of_time():
            break
        solved = program.solved()
        if solved is None or solved[0] >= limit - _EPSILON:
            break
        for share in (1 - _SMOOTH, 1.0):
            prices = center.towards(solved[1], share)
            value, found = program.proven(prices)
            new = program.add(found)
            if value < least:
                least, center = value, prices
            if new:
                break
        else:
            break
    return int(least + _EPSILON), center


def moments_of(needs: Needs, most: int = MOMENTS) -> Numbers:
    """Return where windows begin: 0, and moments at which requests arrive or are due."""
    many = max(1, min(most, MOST_CELLS // len(needs.arrivals)))
    known = np.concatenate([needs.arrivals, needs.first_due, needs.due])
    known = np.unique(known[known < NEVER])
    if len(known) > many:
        known = np.quantile(known, np.linspace(0, 1, many), method="lower")
    apart, kept = int(known[-1]) // (8 * many), [int(known[-1])]
    for moment in known[::-1].tolist():  # short windows make duals that the solver does not find
        if kept[-1] - moment > apart < moment:
            kept.append(moment)
    return np.unique(np.array([0, *kept]))


def stated(needs: Needs, moments: Numbers, prices: Prices) -> dict[str, Any]:
    """Return prices as whole numbers, as large as 64 bits have room for."""
    largest = 2.0 * float(max(needs.whole.max(), needs.first.max())) / NS_PER_S
    most = largest * float(prices.time.max()) + float(prices.held.sum()) + 1
    one = 2 ** min(50, int(np.log2(NEVER / 4 / most)))
    return {
        "moments": moments.tolist(),
        "held": [round(each * one) for each in prices.held.tolist()],
        "time": [round(each * one / NS_PER_S) for each in prices.time.tolist()],
        "one": one,
    }


def in_time_certificates(
    context: Context, objective: str, out_of_time: Callable[[], bool], enough: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield certificates of lower bounds on a percentile, or on the share of requests that miss
    their limits, each above the last; arguments as in ``latency_certificates``."""
    head: dict[str, Any] = {"bound": "arrivals", "objective": objective}
    best = in_time(context, head)
    yield best
    if not (enough and context.has_floors) or context.instance.link is not None:
        return
    shares = best_shares(context)
    workers = Workers.of(context, shares)
    weights = balanced_weights(workers, None)
    head |= {**context.scope.stated(), "bound": "in_time", "workers": workers.choices(weights)}
    try:
        needs = needs_of(context, shares, weights)
    except ValueError:  # times beyond 64 bits
        return
    if objective == ATTAINMENT:
        needs = judged(context.instance, needs)
        _, prices = best_prices(needs, moments_of(needs), None, out_of_time)
        proposed = iter([{**head, **stated(needs, moments_of(needs), prices)}])
    else:
        proposed = _percentiles(needs, objective, head, out_of_time)
    for claim in proposed:
        found = in_time(context, claim)
        if found["value_ns"] > best["value_ns"]:
            best = found
            yield found


def _percentiles(
    needs: Needs, objective: str, head: dict[str, Any], out_of_time: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Yield growing claims: first what requests take alone, then values up to where none holds."""
    alone = needs.first_alone if objective.startswith("ttft") else needs.alone
    rank = rank_of(objective, len(alone))
    low, high = int(np.sort(alone)[rank - 1]), None
    free = {"moments": [0], "held": [0], "time": [0], "one": 1}
    yield {**head, **free, "value_ns": low}
    while not out_of_time() and (high is None or high - low > 1 + low // _PRECISION):
        value = 2 * low + 1 if high is None else (low + high) // 2
        late = within(needs, objective, value - 1)
        moments = moments_of(late, FEWER)
        most, prices = best_prices(late, moments, rank, out_of_time)
        if most < rank:
            yield {**head, **stated(late, moments, prices), "value_ns": value}
            low = value
        else:
            high = value
