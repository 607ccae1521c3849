"""Requests into windows: by sorting, then by swaps; and the plan of that, with who follows it.
Sorting both by length fits every request if any assignment does. It leaves prompts to chance, so
requests that hold in each other's windows are swapped. The time of a stage is a staircase of its
tokens, which shows swaps no way until one of them leaves a step. So they are annealed on a worth
that is concave between two steps: one stage fills up while another empties, and falls below its
step. How much of the step that is, differs from run to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.data.step import FOREVER, Step, decode_rounds, prefill_stage
from orsched.models.windows import window_moves as plain
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from orsched.models.windows.window_state import Windows

    Floats = NDArray[np.float64]
    Divide = Callable[[list[int]], list[list[int]]]
    from collections.abc import Callable

    from orsched.common.columns import IntColumn
    from orsched.models.compiled_kernels import Kernels
    from orsched.models.windows.stage_prices import Prices


SWAPS_A_REQUEST = 1_000
TEMPERATURES, COLDEST = 40, 0.01
"""Temperatures of a run, and the last as a share of the first, which is half of a highest step."""
SQUEEZED, FITTING_SWAPS, HOTTEST_FIT = 4, 2_000, 40.0
"""Moments at which a stage less is tried, swaps a request for each, and the first temperature in
tokens above capacity."""
FILLS = (0.5, 0.8, 0.65, 0.8, 1.0)  # what the fill counts for, as a share of the step, by run


class Assigned(NamedTuple):
    """A request for each window."""

    request: IntColumn  # request of each window
    stage: IntColumn  # stage in which each window begins
    time_ns: int  # time of the stages with these tokens


@dataclass
class RequestSwaps:
    """Fills windows with requests (rounds, prompt tokens), by swaps at falling temperatures."""

    lengths: IntColumn
    prompts: IntColumn
    prices: Prices  # times of stages by their tokens
    rng: np.random.Generator  # of the draws
    fast: Kernels | None = None  # the compiled moves, or None
    give_up: Callable[[], bool] = lambda: False  # whether to end with the best so far

    def assigned(self, state: Windows, swaps: int = SWAPS_A_REQUEST) -> Assigned | None:
        """Return an assignment whose stages take little time, or None where V > 0. ``swaps`` are
        tried a request."""
        spans = state.spans()
        stage = np.array(state.tables.start, np.int64)
        request = np.empty(len(spans), np.int64)
        by_length = np.argsort(-self.lengths, kind="stable")
        request[np.argsort(-spans, kind="stable")] = by_length
        if (self.lengths[request] > spans).any():
            return None
        weights = self.prompts[request]
        load = np.bincount(stage, weights=weights, minlength=state.stages).astype(np.int64)
        times = self.prices.least_ns
        best = Assigned(request, stage, int(times[load].sum()))
        floor = _least_time(self.prompts, state.tables.counts, times)
        tables = [request, load, spans, stage, self.lengths, self.prompts]
        for fill in FILLS:
            if best.time_ns <= floor or self.give_up():
                break
            copies = [np.array(table, np.int64) for table in [*tables, _worth(times, fill)]]
            best = self._annealed(copies, best, floor, swaps)
        return best

    def _cooling(self, hot: float, count: int) -> Iterator[tuple[Floats, IntColumn]]:
        """Yield the draws and thresholds of so many swaps at each temperature."""
        for step in range(TEMPERATURES):
            temperature = hot * COLDEST ** (step / (TEMPERATURES - 1))
            draws = self.rng.random((count, 3))
            thresholds = (-temperature * np.log1p(-draws[:, 2])).astype(np.int64)
            yield draws[:, :2].ravel(), thresholds

    def _annealed(
        self, tables: list[IntColumn], best: Assigned, floor: int, swaps: int
    ) -> Assigned:
        """Return the best assignment on the way."""
        swap: Any = None if self.fast is None else self.fast.entry("swap_requests")
        arrays: Any = tables
        if swap is None:
            swap, arrays = plain.swap_requests, [table.tolist() for table in tables]
        times = self.prices.least_ns
        hot = float(np.diff(np.unique(times)).max()) / 2
        for draws, thresholds in self._cooling(hot, swaps * len(best.request) // TEMPERATURES):
            swap(*arrays, draws, thresholds)
            now = int(times[arrays[1]].sum())
            if now < best.time_ns:
                best = Assigned(np.array(arrays[0]), best.stage, now)
            if best.time_ns <= floor or self.give_up():
                break
        return best

    def squeezed(self, found: Assigned, spans: IntColumn, planned: Sequence[int] = ()) -> Assigned:
        """Return an assignment with fewer stages of the one capacity, as far as swaps find it. One
        stage less is asked for at one of the moments whose last stage holds least; what is above
        the capacities that are left is annealed away, by the compiled swaps. ``planned``: stages
        that each moment should have, if they are known; this is tried first."""
        (capacity, stage_ns), *_ = self.prices.levels
        prompts, stage = self.prompts, found.stage
        if planned and sum(planned) * stage_ns < found.time_ns:
            made = self._fitted(found, spans, np.array(planned) * capacity)
            if made is not None:
                found = Assigned(made, stage, sum(planned) * stage_ns)
        while True:
            load = np.bincount(stage, weights=prompts[found.request]).astype(np.int64)
            stages = -(-load // capacity)
            spare = (stages.sum() - 1) * capacity >= prompts.sum()
            last = np.where(stages > 1, load - (stages - 1) * capacity, capacity + 1)
            better = None
            for at in np.argsort(last, kind="stable")[:SQUEEZED] if spare else []:
                if last[at] > capacity or self.give_up():
                    break
                fewer = stages.copy()
                fewer[at] -= 1
                better = self._fitted(found, spans, fewer * capacity)
                if better is not None:
                    break
            if better is None:
                return found
            found = Assigned(better, stage, found.time_ns - stage_ns)

    def _fitted(self, found: Assigned, spans: IntColumn, capacity: IntColumn) -> IntColumn | None:
        """Swap until the tokens of each moment fit in its capacity; None where they do not."""
        assert self.fast is not None
        above = int(capacity.max())
        weights = self.prompts[found.request]
        load = np.bincount(found.stage, weights=weights, minlength=len(capacity))
        tables = [found.request, load, spans, found.stage, self.lengths, self.prompts]
        request, load, *others = (np.array(table, np.int64) for table in tables)
        load = load - capacity + above
        worth = np.maximum(0, np.arange(above + len(self.prices.least_ns)) - above)
        count = FITTING_SWAPS * len(request) // TEMPERATURES
        for draws, thresholds in self._cooling(HOTTEST_FIT, count):
            self.fast.module.swap_requests(request, load, *others, worth, draws, thresholds)
            if (load <= above).all():
                return request
            if self.give_up():
                break
        return None


def _least_time(prompts: IntColumn, counts: list[int], times: IntColumn) -> int:
    """Return what stages of this many requests take at least: each with the shortest prompts."""
    shortest = np.append(0, np.cumsum(np.sort(prompts)))
    return int(times[shortest[counts]].sum())


def _worth(times: IntColumn, fill: float) -> IntColumn:
    """Return the worth of the tokens of one stage: concave from each step of the times to the next.
    At the steps it is their time; just above one it is less than that by a share of the step."""
    steps = np.flatnonzero(np.diff(times))
    worth = times.copy()
    for first, last in zip(steps, [*steps[1:], len(times) - 1], strict=True):
        part = np.arange(1, last - first + 1) / (last - first)
        jump = times[last] - times[first]
        worth[first + 1 : last + 1] += (fill * jump * (np.sqrt(part) - 1)).astype(np.int64)
    return worth


@dataclass(frozen=True)
class PlannedStage:
    """One prefill stage of a plan."""

    round: int  # decode rounds before it
    requests: Sequence[int]  # rows of the instance
    clients: Sequence[int]  # the client of each


def plan_of(state: Windows, assigned: Assigned, divide: Divide | None = None) -> list[PlannedStage]:
    """Return the stages of a state with its requests; empty stages are left out. ``divide`` says
    which of the requests of one moment share a stage."""
    tables = state.tables
    client = [0] * len(tables.start)
    for number, path in enumerate(state.paths()):
        for window in path:
            client[window] = number
    stages = []
    for stage, count in enumerate(tables.counts):
        first = stage * tables.width
        chosen = sorted(tables.at[first : first + count])
        if chosen:
            requests = [int(assigned.request[w]) for w in chosen]
            of = {int(assigned.request[w]): client[w] for w in chosen}
            for part in [requests] if divide is None else divide(requests):
                stages.append(PlannedStage(tables.times[stage], part, [of[r] for r in part]))
    return stages


class FollowPlan(Policy):
    """Prefill each planned stage at its round; decode in between. Where nothing runs before a
    planned stage, the plan moves forward by the rounds saved."""

    information = Information.CLAIRVOYANT

    def __init__(self, stages: Sequence[PlannedStage], name: str = "plan") -> None:
        self.name = name
        self.stages = stages
        self.position = 0
        self.saved = 0

    def decide(self, view: View) -> Step | None:
        """Return the next planned stage, or the rounds until it."""
        if self.position == len(self.stages):
            return decode_rounds(FOREVER) if view.running else None
        stage = self.stages[self.position]
        wait = stage.round - self.saved - view.rounds
        if wait > 0 and view.running:
            return decode_rounds(wait, until=0)
        self.saved += max(0, wait)
        self.position += 1
        return prefill_stage(stage.requests, stage.clients)
