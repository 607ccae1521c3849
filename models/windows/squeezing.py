"""Squeezes: a state that asks for a little less than one that is a schedule."""

from __future__ import annotations

from itertools import pairwise

from orsched.models.windows.structure import Windows


def earlier_end(state: Windows, step: int) -> Windows:
    """Return the state with its end some rounds earlier; it is changed in place."""
    end = state.times[-1] - step
    state.times = [min(time, end) for time in state.times]
    state.recount()
    return state


def fewer_stages(state: Windows, step: int) -> Windows:
    """Return a state without the stage that has fewest starts (one, whatever the step)."""
    stage = min(range(1, state.stages), key=lambda k: (len(state.at[k]), k))
    before, after = stage - 1, stage + 1
    later = after < state.stages and len(state.at[after]) < len(state.at[before])
    paths = []
    for path in state.paths():
        stages = [state.start[w] for w in path]
        if stage in stages:
            choices = [
                k for k in ((after, before) if later else (before, after)) if k not in stages
            ]
            free = [k for k in choices if k < state.stages]
            stages[stages.index(stage)] = free[0] if free else before
        paths.append(sorted(k - (k > stage) for k in stages))
    times = [time for k, time in enumerate(state.times[:-1]) if k != stage]
    return Windows(state.lengths.tolist(), times, state.times[-1], paths)


def more_stages(state: Windows, step: int) -> Windows:
    """Return a state with some stages more, in the widest gaps, and an end twice that earlier."""
    times, end = list(state.times), state.times[-1] - 2 * step
    paths = [[state.start[w] for w in path] for path in state.paths()]
    for _ in range(step):
        gaps = [later - now for now, later in pairwise(times)]
        stage = gaps.index(max(gaps))
        paths = [[k + (k > stage) for k in path] for path in paths]
        times.insert(stage + 1, times[stage] + gaps[stage] // 2)
    starts = [min(time, end) for time in times[:-1]]
    return Windows(state.lengths.tolist(), starts, end, paths)
