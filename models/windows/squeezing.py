"""Squeezes: a state that asks for a little less than one that is a schedule.

Each changes the stages; how far the end then has to come forward follows from the makespan asked
for, by ``Terms.end``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from orsched.models.windows.moves import move_start
from orsched.models.windows.structure import Windows

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    Squeeze = Callable[[Windows, Random], Windows | None]


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
    return with_stage(state, order[int(rng.random() ** 2 * len(order))], rng)


def other_level(state: Windows, rng: Random) -> Windows | None:
    """Return the state with a stage one level up or down."""
    levels = len(state.tables.room)
    stage = rng.randrange(state.stages)
    level = state.tables.level[stage] + rng.choice((-1, 1))
    if not 0 <= level < levels:
        return None
    changed = list(state.tables.level)
    changed[stage] = level
    times = state.tables.times
    return _like(state, times[:-1], times[-1], state.paths_of_stages(), changed)


def split_stage(state: Windows, rng: Random) -> Windows | None:
    """Return the state with a stage replaced by two of the level below."""
    stage = rng.randrange(state.stages)
    if state.tables.level[stage] == 0:
        return None
    more = with_stage(state, stage, rng)
    levels = list(more.tables.level)
    levels[stage] = levels[stage + 1] = state.tables.level[stage] - 1
    times = more.tables.times
    return _like(more, times[:-1], times[-1], more.paths_of_stages(), levels)


SQUEEZES: dict[str, Squeeze | None] = {
    "same_stages": same_stages,
    "fewer_stages": fewer_stages,
    "two_fewer": two_fewer,
    "more_stages": more_stages,
    "other_level": other_level,
    "split_stage": split_stage,
    "fresh": None,
}
"""Ways to ask for less; None: a new first state."""


def with_end(state: Windows, end: int) -> Windows:
    """Return the state with another end; stages after it take place at the end."""
    times = [min(time, end) for time in state.tables.times[:-1]]
    return _like(state, times, end, state.paths_of_stages(), state.tables.level)


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
    return _like(state, times, tables.times[-1], paths, [tables.level[k] for k in keep])


def with_stage(state: Windows, stage: int, rng: Random) -> Windows:
    """Return the state with an empty stage more, in the middle of the gap after a stage."""
    times, levels = list(state.tables.times), list(state.tables.level)
    paths = [[k + (k > stage) for k in path] for path in state.paths_of_stages()]
    levels.insert(stage + 1, rng.choice(levels))
    times.insert(stage + 1, (times[stage] + times[stage + 1]) // 2)
    return _like(state, times[:-1], times[-1], paths, levels)


def _like(
    state: Windows, times: list[int], end: int, paths: list[list[int]], levels: list[int]
) -> Windows:
    """Return a state with the same requests, with no stage over its room where that is possible."""
    made = Windows(state.lengths, times, end, paths, levels, state.tables.room)
    if relieve(made):
        made.recount()
    return made


def relieve(state: Windows) -> bool:
    """Move starts out of stages with more than their room, to the nearest that take them."""
    tables, moved = state.tables, False
    for stage in range(state.stages):
        surplus = tables.counts[stage] - tables.room[tables.level[stage]]
        if surplus <= 0:
            continue
        first = stage * tables.width
        for window in tables.at[first : first + tables.counts[stage]]:
            target = _nearest(state, window, stage) if surplus > 0 else None
            if target is not None:
                move_start(tables, window, target)
                surplus, moved = surplus - 1, True
    return moved


def _nearest(state: Windows, window: int, stage: int) -> int | None:
    """Return the nearest stage with room between the window's neighbours, or None."""
    tables = state.tables
    before, after = tables.previous[window], tables.following[window]
    first = 0 if before < 0 else tables.start[before] + 1
    last = state.stages if after < 0 else tables.start[after]
    free = [k for k in range(first, last) if tables.counts[k] < tables.room[tables.level[k]]]
    return min(free, key=lambda k: abs(k - stage)) if free else None
