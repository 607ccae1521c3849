"""Moves of the search: each tries one change and keeps it if V grows by at most a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.models.windows.structure import END, Windows

if TYPE_CHECKING:
    from collections.abc import Callable

NEAR = 3
LONG_SHIFT = 5


class Moves:
    """The four moves on a state, with the limit on starts in a stage.

    Every move keeps the number of windows and the paths; the state's V is up to date after it.
    """

    def __init__(self, state: Windows, limit: int, draw: Callable[[], float]) -> None:
        self.state = state
        self.limit = limit
        self.draw = draw

    def exchange_tails(self, threshold: float) -> bool:
        """Let two clients swap what they do after two windows that end at about the same time."""
        state, draw = self.state, self.draw
        start, following, times = state.start, state.following, state.times
        one = int(draw() * len(start))
        after_one, end_one = following[one], state.end_stage(one)
        end_two = end_one + int(draw() * (2 * NEAR + 1)) - NEAR
        if end_two == end_one or not 0 < end_two <= state.stages:
            return False
        two, after_two = self._ending(end_two)
        if two == END or end_two <= start[one] or end_one <= start[two]:
            return False
        from_one, from_two = times[start[one]], times[start[two]]
        to_one, to_two = times[end_one], times[end_two]
        change = state.resize(to_one - from_one, to_two - from_one)
        change += state.resize(to_two - from_two, to_one - from_two)
        if change > threshold:
            state.resize(to_one - from_two, to_two - from_two)
            state.resize(to_two - from_one, to_one - from_one)
            return False
        state.missing += change
        self._link(one, after_two)
        self._link(two, after_one)
        if END in (after_one, after_two):
            state.set_last(one if after_one == END else two, two if after_one == END else one)
        return True

    def _ending(self, stage: int) -> tuple[int, int]:
        """Return a random window that ends at a stage and the one after it; END if there is none.

        Both are END where the window drawn has none before it.
        """
        state = self.state
        if stage == state.stages:
            return state.last[int(self.draw() * len(state.last))], END
        here = state.at[stage]
        if not here:
            return END, END
        after = here[int(self.draw() * len(here))]
        return state.previous[after], after

    def _link(self, window: int, after: int) -> None:
        """Let one window follow another."""
        self.state.following[window] = after
        if after != END:
            self.state.previous[after] = window

    def shift_start(self, threshold: float) -> bool:
        """Let a client start a request a few stages earlier or later."""
        state, draw = self.state, self.draw
        times = state.times
        window = int(draw() * len(state.start))
        before = state.previous[window]
        if before == END:
            return False
        stage, first, last = state.start[window], state.start[before], state.end_stage(window)
        target = stage + int(draw() * (2 * NEAR + 1)) - NEAR
        if target == stage or not first < target < last or len(state.at[target]) >= self.limit:
            return False
        begin, end = times[first], times[last]
        old, new = times[stage], times[target]
        change = state.resize(old - begin, new - begin) + state.resize(end - old, end - new)
        if change > threshold:
            state.resize(new - begin, old - begin)
            state.resize(end - new, end - old)
            return False
        state.missing += change
        state.move_start(window, target)
        return True

    def relocate(self, threshold: float) -> bool:
        """Join a window with the one before it, and split another client's window instead."""
        state, draw = self.state, self.draw
        start, previous, times = state.start, state.previous, state.times
        n = len(start)
        window, host = int(draw() * n), int(draw() * n)
        before = previous[window]
        if before == END or host in (window, before):
            return False
        begin, end = start[host], state.end_stage(host)
        if end - begin < 2:
            return False
        stage = begin + 1 + int(draw() * (end - begin - 1))
        if stage != start[window] and len(state.at[stage]) >= self.limit:
            return False
        t_before, t_window = times[start[before]], times[start[window]]
        t_end = times[state.end_stage(window)]
        t_begin, t_split, t_close = times[begin], times[stage], times[end]
        change = state.resize(t_window - t_before, t_end - t_before)
        change += state.resize(t_end - t_window, t_close - t_split)
        change += state.resize(t_close - t_begin, t_split - t_begin)
        if change > threshold:
            state.resize(t_split - t_begin, t_close - t_begin)
            state.resize(t_close - t_split, t_end - t_window)
            state.resize(t_end - t_before, t_window - t_before)
            return False
        state.missing += change
        self._relink(window, before, host, stage)
        return True

    def _relink(self, window: int, before: int, host: int, stage: int) -> None:
        """Take a window out of its path and put it behind another, starting at a stage."""
        state = self.state
        after, host_after = state.following[window], state.following[host]
        self._link(before, after)
        self._link(host, window)
        state.previous[window] = host
        self._link(window, host_after)
        if END in (after, host_after):
            if after == END:
                state.set_last(window, before)
            if host_after == END:
                state.set_last(host, window)
        state.move_start(window, stage)

    def shift_stage(self, threshold: float) -> bool:
        """Let a whole stage take place some rounds earlier or later."""
        state, draw = self.state, self.draw
        times = state.times
        stage = 1 + int(draw() * (state.stages - 1))
        step = 1 if draw() < 0.8 else 2 + int(draw() * (LONG_SHIFT - 1))
        old = times[stage]
        new = old + step if draw() < 0.5 else old - step
        if not times[stage - 1] <= new <= times[stage + 1]:
            return False
        change = self._move_stage(stage, old, new)
        if change > threshold:
            self._move_stage(stage, new, old)
            return False
        state.missing += change
        times[stage] = new
        return True

    def _move_stage(self, stage: int, old: int, new: int) -> int:
        """Resize every window that ends or begins in a stage; times[stage] itself stays."""
        state = self.state
        start, previous, times, resize = state.start, state.previous, state.times, state.resize
        change = 0
        for window in state.at[stage]:
            before = previous[window]
            if before != END:
                begin = times[start[before]]
                change += resize(old - begin, new - begin)
            end = times[state.end_stage(window)]
            change += resize(end - old, end - new)
        return change
