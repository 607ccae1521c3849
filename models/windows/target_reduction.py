"""Target reductions: a state that asks for a little less than one that is a schedule.

Each changes the stages; how far the end then has to come forward follows from the makespan asked
for, by ``Terms.end``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from orsched.models.windows.structure import Windows

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    Reduction = Callable[[Windows, Random], Windows | None]


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

    Each round is put in where V falls most: all stages from there on, and the end, move.
    """
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

    The state itself where a client starts twice at one time: a request may need no round.
    """
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
    """Return the state without a stage; its starts move to the stages beside it.

    None where a client starts requests in all of these.
    """
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
