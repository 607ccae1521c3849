"""First states, and what is made of a state: target reductions, states with more rounds. A target
reduction asks for a little less than a state that is a schedule. Each changes the stages; how far
the end then has to come forward follows from the makespan asked for. First states have stages at
given times, and clients that take the longest waiting request."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from orsched.common.errors import OrschedError
from orsched.models.exact_search.stage_plan import plan_of
from orsched.models.windows.window_state import Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.windows.stage_prices import Terms

    Reduction = Callable[[Windows, Random], Windows | None]


T = TypeVar("T")

SUCCESS, FAILURE = 1.6, 0.94
LEAST, MOST = 0.25, 4.0


class AdaptiveWeights(Generic[T]):
    """Named choices with a weight each."""

    def __init__(self, choices: Mapping[str, T]) -> None:
        self.choices = dict(choices)
        self.weights = dict.fromkeys(choices, 1.0)

    def draw(self, rng: Random) -> tuple[str, T]:
        """Return a name and its choice, by the weights."""
        (name,) = rng.choices(list(self.weights), list(self.weights.values()))
        return name, self.choices[name]

    def learn(self, name: str, success: bool) -> None:
        """Raise the weight of what succeeded, lower that of what failed, within limits."""
        weight = self.weights[name] * (SUCCESS if success else FAILURE)
        self.weights[name] = min(MOST, max(LEAST, weight))


def even_times(stages: int, end: int) -> list[int]:
    """Return times of stages: the first at 0, the others evenly spread before the end."""
    return [k * end // stages for k in range(stages)]


def aligned_times(stages: int, end: int, longest: int) -> list[int]:
    """Return times of stages: whole longest requests, the others evenly spread."""
    whole = list(range(0, end, longest))[:stages]
    rest = stages - len(whole)
    return sorted(whole + [(k + 1) * end // (rest + 1) for k in range(rest)])


def anchored_times(stages: int, end: int, longest: int) -> list[int]:
    """Return times of stages: whole longest requests from start and end, others between. Clients
    that serve nothing but longest requests until their last short ones, or from their first ones
    on, then lose no round."""
    anchors = {*range(0, end, longest), *range(end - longest, 0, -longest)}
    whole = sorted(anchors)[:stages]
    rest = stages - len(whole)
    return sorted(whole + [(k + 1) * end // (rest + 1) for k in range(rest)])


def construct(
    lengths: IntColumn,
    clients: int,
    times: Sequence[int],
    end: int,
    price: Sequence[int] = (),
    late_price: Sequence[int] = (),
) -> Windows:
    """Return a state in which every request has a window, though maybe too short a one. At each
    stage the free clients take the longest waiting requests. What is left at the last stage splits
    the paths further."""
    waiting: list[int] = sorted(lengths.tolist(), reverse=True)
    free = list(range(clients))
    busy: list[tuple[int, int]] = []
    paths: list[list[int]] = [[] for _ in range(clients)]
    taken = 0
    for stage, now in enumerate(times):
        while busy and busy[0][0] <= now:
            free.append(heappop(busy)[1])
        while free and taken < len(waiting):
            client = free.pop(0)
            paths[client].append(stage)
            heappush(busy, (now + waiting[taken], client))
            taken += 1
    _place_rest(len(waiting) - taken, paths, len(times))
    return Windows(lengths, times, end, [path for path in paths if path], price, late_price)


def state_of(instance: Instance, schedule: Schedule, terms: Terms) -> Windows | None:
    """Return the state of a schedule, with V = 0, or None where it is not made of whole stages."""
    try:
        plan = plan_of(instance, schedule)
    except OrschedError:
        return None
    assert plan.client is not None
    times = [0, *accumulate(plan.rounds)]
    paths: dict[int, list[int]] = {}
    for stage, client in sorted(zip(plan.stage, plan.client, strict=True)):
        paths.setdefault(client, []).append(stage)
    lengths, prices = instance.rounds_needed, terms.prices
    chosen = list(paths.values())
    return Windows(lengths, times[:-1], times[-1], chosen, prices.by_starts, prices.late)


def _place_rest(count: int, paths: list[list[int]], stages: int) -> None:
    """Give the requests that are left a start in the emptiest stages that a path can take."""
    starts = [0] * stages
    for path in paths:
        for stage in path:
            starts[stage] += 1
    for _ in range(count):
        stage, path = next(
            (k, p)
            for k in sorted(range(stages), key=starts.__getitem__)
            for p in sorted(paths, key=len)
            if k not in p
        )
        path.append(stage)
        path.sort()
        starts[stage] += 1


def same_stages(state: Windows, rng: Random) -> Windows | None:
    """Return a copy: all that is gained comes from the end."""
    return state.copy()


def fewer_stages(state: Windows, rng: Random) -> Windows | None:
    """Return the state without one of the stages with few starts."""
    if state.stages < 2:
        return None
    order = sorted(range(1, state.stages), key=lambda k: state.tables.counts[k])
    return without_stage(state, order[int(rng.random() ** 2 * len(order))])


def two_fewer(state: Windows, rng: Random) -> Windows | None:
    """Return the state without two stages."""
    fewer = fewer_stages(state, rng)
    return None if fewer is None else fewer_stages(fewer, rng)


def more_stages(state: Windows, rng: Random) -> Windows | None:
    """Return the state with an empty stage more in one of the wide gaps."""
    times = state.tables.times
    gaps = [later - now for now, later in pairwise(times)]
    order = sorted(range(len(gaps)), key=lambda k: -gaps[k])
    if gaps[order[0]] < 2:
        return None
    return with_stage(state, order[int(rng.random() ** 2 * len(order))])


REDUCTIONS: dict[str, Reduction | None] = {
    "same_stages": same_stages,
    "fewer_stages": fewer_stages,
    "two_fewer": two_fewer,
    "more_stages": more_stages,
    "fresh": None,
}
"""Ways to ask for less; None: a new first state."""


def with_end(state: Windows, end: int) -> Windows:
    """Return the state with another end; stages after it take place at the end."""
    times = [min(time, end) for time in state.tables.times[:-1]]
    return _like(state, times, end, state.paths_of_stages())


def stretched(state: Windows, most: int) -> Windows | None:
    """Return the state with up to ``most`` rounds more, and V = 0; None where that is not enough.
    Each round is put in where V falls most: all stages from there on, and the end, move."""
    return state.copy() if state.missing == 0 else _with_rounds(state, most, needed=True)


def lengthened(state: Windows, rounds: int) -> Windows:
    """Return the state with rounds put in in the same way, whether V is 0 then or not."""
    made = _with_rounds(state, rounds, needed=False)
    assert made is not None
    return made


def _with_rounds(state: Windows, most: int, needed: bool) -> Windows | None:
    """Put in up to ``most`` rounds until V = 0; None where it is not and that is needed."""
    tables, times = state.tables, np.array(state.tables.times)
    start = np.array(tables.start)
    stop = np.append(start, state.stages)[tables.following]
    needs = np.sort(state.lengths)
    for _ in range(most):
        spans = times[stop] - times[start]
        missing = [
            int(np.maximum(0, needs - np.sort(spans + ((start < k) & (k <= stop)))).sum())
            for k in range(1, state.stages + 1)
        ]
        best = min(range(len(missing)), key=missing.__getitem__)
        times[best + 1 :] += 1
        if needed and missing[best] == 0:
            break
    else:
        if needed:
            return None
    now = times.tolist()
    return _like(state, now[:-1], now[-1], state.paths_of_stages())


def merged(state: Windows) -> Windows:
    """Return a state with V = 0 with its stages of one time made one: prompts share its capacity.
    The state itself where a client starts twice at one time: a request may need no round."""
    times: list[int] = []
    stage_of = []
    for time in state.tables.times[:-1]:
        if not times or times[-1] != time:
            times.append(time)
        stage_of.append(len(times) - 1)
    paths = [[stage_of[stage] for stage in path] for path in state.paths_of_stages()]
    if any(len({*path}) < len(path) for path in paths):
        return state
    return _like(state, times, state.end, paths)


def without_stage(state: Windows, stage: int) -> Windows | None:
    """Return the state without a stage; its starts move to the stages beside it. None where a
    client starts requests in all of these."""
    tables = state.tables
    counts, before, after = tables.counts, stage - 1, stage + 1
    later = before < 0 or (after < state.stages and counts[after] < counts[before])
    order = [k for k in ((after, before) if later else (before, after)) if 0 <= k < state.stages]
    paths = []
    for path in state.paths_of_stages():
        if stage in path:
            free = [k for k in order if k not in path]
            if not free:
                return None
            path[path.index(stage)] = free[0]
        paths.append(sorted(k - (k > stage) for k in path))
    keep = [k for k in range(state.stages) if k != stage]
    times = [tables.times[k] for k in keep]
    return _like(state, times, tables.times[-1], paths)


def with_stage(state: Windows, stage: int) -> Windows:
    """Return the state with an empty stage more, in the middle of the gap after a stage."""
    times = list(state.tables.times)
    paths = [[k + (k > stage) for k in path] for path in state.paths_of_stages()]
    times.insert(stage + 1, (times[stage] + times[stage + 1]) // 2)
    return _like(state, times[:-1], times[-1], paths)


def _like(state: Windows, times: list[int], end: int, paths: list[list[int]]) -> Windows:
    """Return a state with the same requests and prices."""
    tables = state.tables
    return Windows(state.lengths, times, end, paths, tables.price, tables.late_price)
