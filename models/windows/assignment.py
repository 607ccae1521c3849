"""Requests into windows: by sorting, then by swaps so that the stages' tokens fill levels well.

Sorting both by length fits every request if any assignment does. It leaves prompts to chance, so
requests that hold in each other's windows are swapped. The time of a stage is a staircase of its
tokens, which shows swaps no way until one of them leaves a step. So they are annealed on a worth
that is concave between two steps: one stage fills up while another empties, and falls below its
step. How much of the step that is, differs from run to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.models.windows import moves as plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.common.columns import IntColumn
    from orsched.models.windows.prices import Prices
    from orsched.models.windows.structure import Windows

SWAPS_A_REQUEST = 1_000
TEMPERATURES, COLDEST = 40, 0.01
"""Temperatures of a run, and the last as a share of the first, which is half of a highest step."""
SQUEEZED, FITTING_SWAPS, HOTTEST_FIT = 4, 2_000, 40.0
"""Moments at which a stage less is tried, swaps a request for each, and the first temperature in
tokens above capacity."""
FILLS = (0.5, 0.8, 0.65, 0.8, 1.0)
"""What the fill counts for, as a share of the step, by run."""


class Assigned(NamedTuple):
    """A request for each window.

    Attributes:
        request: request of each window.
        stage: stage in which each window begins.
        time_ns: time of the stages with these tokens.
    """

    request: IntColumn
    stage: IntColumn
    time_ns: int


def assign(
    state: Windows,
    lengths: IntColumn,
    prompts: IntColumn,
    prices: Prices,
    rng: np.random.Generator,
    fast: Any = None,
    give_up: Callable[[], bool] = lambda: False,
    swaps: int = SWAPS_A_REQUEST,
) -> Assigned | None:
    """Return an assignment whose stages take little time, or None where V > 0.

    ``fast`` as for ``anneal``; where ``give_up`` says so, the best one so far. ``swaps`` are tried
    a request.
    """
    spans = state.spans()
    stage = np.array(state.tables.start, np.int64)
    request = np.empty(len(spans), np.int64)
    request[np.argsort(-spans, kind="stable")] = np.argsort(-lengths, kind="stable")
    if (lengths[request] > spans).any():
        return None
    load = np.bincount(stage, weights=prompts[request], minlength=state.stages).astype(np.int64)
    times = prices.least_ns
    best = Assigned(request, stage, int(times[load].sum()))
    floor = _least_time(prompts, state.tables.counts, times)
    tables = [request, load, spans, stage, lengths, prompts]
    for fill in FILLS:
        if best.time_ns <= floor or give_up():
            break
        copies = [np.array(table, np.int64) for table in tables]
        best = _anneal(copies, best, times, _worth(times, fill), floor, rng, fast, give_up, swaps)
    return best


def _least_time(prompts: IntColumn, counts: list[int], times: IntColumn) -> int:
    """Return what stages of this many requests take at least: each with the shortest prompts."""
    shortest = np.append(0, np.cumsum(np.sort(prompts)))
    return int(times[shortest[counts]].sum())


def _worth(times: IntColumn, fill: float) -> IntColumn:
    """Return the worth of the tokens of one stage: concave from each step of the times to the next.

    At the steps it is their time; just above one it is less than that by a share of the step.
    """
    steps = np.flatnonzero(np.diff(times))
    worth = times.copy()
    for first, last in zip(steps, [*steps[1:], len(times) - 1], strict=True):
        part = np.arange(1, last - first + 1) / (last - first)
        jump = times[last] - times[first]
        worth[first + 1 : last + 1] += (fill * jump * (np.sqrt(part) - 1)).astype(np.int64)
    return worth


def _anneal(
    tables: list[IntColumn],
    best: Assigned,
    times: IntColumn,
    worth: IntColumn,
    floor: int,
    rng: np.random.Generator,
    fast: Any,
    give_up: Callable[[], bool],
    swaps: int,
) -> Assigned:
    """Swap at falling temperatures; return the best assignment on the way."""
    swap: Any = None if fast is None else fast.swap_requests
    arrays: Any = [*tables, worth]
    if swap is None:
        swap, arrays = plain.swap_requests, [table.tolist() for table in arrays]
    hot = float(np.diff(np.unique(times)).max()) / 2
    count = swaps * len(best.request) // TEMPERATURES
    for step in range(TEMPERATURES):
        temperature = hot * COLDEST ** (step / (TEMPERATURES - 1))
        draws = rng.random((count, 3))
        thresholds = (-temperature * np.log1p(-draws[:, 2])).astype(np.int64)
        swap(*arrays, draws[:, :2].ravel(), thresholds)
        now = int(times[arrays[1]].sum())
        if now < best.time_ns:
            best = Assigned(np.array(arrays[0]), best.stage, now)
        if best.time_ns <= floor or give_up():
            break
    return best


def squeezed(
    found: Assigned,
    spans: IntColumn,
    lengths: IntColumn,
    prompts: IntColumn,
    prices: Prices,
    rng: np.random.Generator,
    fast: Any,
    give_up: Callable[[], bool],
    planned: Sequence[int] = (),
) -> Assigned:
    """Return an assignment with fewer stages of the one capacity, as far as swaps find it.

    One stage less is asked for at one of the moments whose last stage holds least; what is
    above the capacities that are left is annealed away. ``planned``: stages that each moment should
    have, if they are known; this is tried first.
    """
    (capacity, stage_ns), *_ = prices.levels
    load = np.bincount(found.stage, weights=prompts[found.request], minlength=len(planned))
    if planned and sum(planned) * stage_ns < found.time_ns:
        tables = [found.request, load, spans, found.stage, lengths, prompts]
        made = _fitted(tables, np.array(planned) * capacity, prices, rng, fast, give_up)
        if made is not None:
            found = Assigned(made, found.stage, sum(planned) * stage_ns)
    while True:
        load = np.bincount(found.stage, weights=prompts[found.request]).astype(np.int64)
        stages = -(-load // capacity)
        spare = (stages.sum() - 1) * capacity >= prompts.sum()
        last = np.where(stages > 1, load - (stages - 1) * capacity, capacity + 1)
        better = None
        for at in np.argsort(last, kind="stable")[:SQUEEZED] if spare else []:
            if last[at] > capacity or give_up():
                break
            fewer = stages.copy()
            fewer[at] -= 1
            tables = [found.request, load, spans, found.stage, lengths, prompts]
            better = _fitted(tables, fewer * capacity, prices, rng, fast, give_up)
            if better is not None:
                break
        if better is None:
            return found
        found = Assigned(better, found.stage, found.time_ns - stage_ns)


def _fitted(
    tables: list[IntColumn],
    capacity: IntColumn,
    prices: Prices,
    rng: np.random.Generator,
    fast: Any,
    give_up: Callable[[], bool],
) -> IntColumn | None:
    """Swap until the tokens of each moment fit in its capacity; return the requests, or None."""
    above = int(capacity.max())
    request, load, *others = (np.array(table, np.int64) for table in tables)
    load = load - capacity + above
    worth = np.maximum(0, np.arange(above + len(prices.least_ns)) - above)
    count = FITTING_SWAPS * len(request) // TEMPERATURES
    for step in range(TEMPERATURES):
        temperature = HOTTEST_FIT * COLDEST ** (step / (TEMPERATURES - 1))
        draws = rng.random((count, 3))
        thresholds = (-temperature * np.log1p(-draws[:, 2])).astype(np.int64)
        fast.swap_requests(request, load, *others, worth, draws[:, :2].ravel(), thresholds)
        if (load <= above).all():
            return request
        if give_up():
            break
    return None
