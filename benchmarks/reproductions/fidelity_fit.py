"""Least squares on measured spans: what a cost model says of the steps between two tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.reproductions.fidelity_setting import FITTED
from orsched.costs.least_squares import solve
from orsched.schedule import PREFILL
from orsched.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from benchmarks.reproductions.fidelity_setting import Measured, Times
    from orsched.costs import CostModel
    from orsched.costs.least_squares import FloatArray
    from orsched.instance import Instance
    from orsched.schedule import Schedule

MOST_ITERATIONS = 20
LONG_S = 10.0
"""Seconds of a span of which one step is a few per cent at most."""


@dataclass(frozen=True)
class Family:
    """Cost models that differ in a few constants, in which the time of a step is linear.

    ``row(prompts, active, context_sum)`` is what each constant counts for in a step; it is linear
    in the context sum. What else a step takes may be given and is the same for all of them.
    ``units`` are those in which the constants are shown, in nanoseconds.
    """

    name: str
    constants: list[str]
    units: list[float]
    start: list[float]
    row: Callable[[list[int], int, float], list[float]]
    cost: Callable[[Sequence[float]], CostModel]


def step_rows(instance: Instance, schedule: Schedule, family: Family) -> FloatArray:
    """Return a row a step: what each constant counts for in it."""
    steps, work = schedule.steps, schedule.work
    prompts: list[list[int]] = [[] for _ in range(len(steps))]
    chunks = work.phase == PREFILL
    for step, tokens in zip(work.first_step[chunks], work.tokens[chunks], strict=True):
        prompts[step].append(int(tokens))
    decodes = np.flatnonzero(steps.phase != PREFILL)
    caches = Timeline(instance, schedule).caches
    loads = (decodes, caches.active[decodes], caches.context_sum[decodes])
    found = np.zeros((len(steps), len(family.constants)))
    for step in np.flatnonzero(steps.phase == PREFILL).tolist():
        found[step] = family.row(prompts[step], 0, 0)
    for step, active, total in zip(*(column.tolist() for column in loads), strict=True):
        rounds = int(steps.rounds[step])
        mean = total + active * (rounds - 1) / 2  # contexts grow by one a round
        found[step] = rounds * np.array(family.row(prompts[step], active, mean))
    return found


class Fitted(NamedTuple):
    """Constants, and the root mean square error of the spans (weighted) that they leave."""

    values: list[float]
    error: float


def spans(times: Times, requests: int) -> NDArray[np.int64]:
    """Return the (from, to) of what is fitted to, over the first requests.

    From each request's first to its last token, and from the first request's first token to each
    other's.
    """
    first, last = times.first[:requests], times.last[:requests]
    own = np.stack([first, last], axis=1)
    starts = np.stack([np.full(requests - 1, first[0]), first[1:]], axis=1)
    return np.concatenate([own, starts])


def fit_spans(
    measured: Measured,
    family: Family,
    requests: int = FITTED,
    weighting: str = "relative",
    least_s: float = 0.0,
) -> Fitted:
    """Return the constants: least squares on the spans of the first requests, all at least 0.

    ``weighting`` is "relative" or "seconds"; spans of ``least_s`` seconds or less are left out.

    Which steps lie in a span is what a simulation says: it is repeated with the new constants
    until they stay as they are, or ``MOST_ITERATIONS`` times, and those of the least error are
    taken. It knows all requests' arrivals and lengths, and no measured times.
    """
    true = spans(measured.times, requests)
    target = (true[:, 1] - true[:, 0]).astype(np.float64)
    # Requests that got their first token with the very first one tell nothing of its time.
    keep = target > least_s * 1e9
    weight = np.where(keep, 1 / np.maximum(target, 1) if weighting == "relative" else 1e-9, 0)
    values, best = family.start, Fitted(family.start, np.inf)
    for _ in range(MOST_ITERATIONS):
        instance, schedule, times = measured.simulate(family.cost(values))
        found = spans(times, requests)
        took = (found[:, 1] - found[:, 0]).astype(np.float64)
        error = float(np.sqrt(np.mean((weight * (took - target))[keep] ** 2)))
        if error < best.error:
            best = Fitted(values, error)
        rows = step_rows(instance, schedule, family)
        total = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])
        at = np.searchsorted(schedule.steps.end_ns, found, side="right")
        design = total[at[:, 1]] - total[at[:, 0]]
        given = took - design @ np.array(values)
        new = solve(
            (design * weight[:, None])[keep],
            ((target - given) * weight)[keep],
            family.constants,
            nonnegative=True,
        ).tolist()
        if np.allclose(new, values, rtol=1e-9):
            break
        values = new
    return best


def long_error(measured: Measured, times: Times, requests: int = FITTED) -> float:
    """Return the root mean square relative error of the fitted spans over ``LONG_S``."""
    true, found = (
        np.diff(spans(each, requests), axis=1)[:, 0].astype(np.float64)
        for each in (measured.times, times)
    )
    long = true > LONG_S * 1e9
    return float(np.sqrt(np.mean((found[long] / true[long] - 1) ** 2)))


def fit_decode_time(measured: Measured, family: Family, most_ns: int, step_ns: int) -> Fitted:
    """Return the one constant with which the first requests' decode times add up as measured.

    A decode time is that from the first to the last token. Single requests tell less: which of
    them are preempted, and wait, depends on single blocks. Found by bisection from 0 to
    ``most_ns``, to ``step_ns``; the error is that of the sum.
    """

    def excess(value: int) -> float:
        times = measured.simulate(family.cost([value * step_ns]))[2]
        both = [(t.last - t.first)[:FITTED].sum() for t in (times, measured.times)]
        return float(both[0] / both[1]) - 1

    low, high = 0, most_ns // step_ns
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(middle) <= 0 else (low, middle)
    best = min((low, high), key=lambda value: abs(excess(value)))
    return Fitted([float(best * step_ns)], excess(best))
