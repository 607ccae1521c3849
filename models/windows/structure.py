"""The search state: stage times, paths of clients through the stages, and how short they fall.

Clients are interchangeable, so a schedule is a set of *paths*: each client starts a request at
some stages, and two starts in a row (or the last start and the end) span a *window*. Given the
times, the best assignment of requests to windows is by sorting both: requests fit if and only if
for every length L there are at least as many windows of length >= L as requests with N >= L.
The state keeps that surplus G[L] for every L; what falls short is V = sum over L of max(0, -G[L]),
the client-rounds that are missing under the best assignment. V = 0 means: a schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

END = -1


class Windows:
    """Stage times (in rounds), linked windows, and the surplus of windows over requests.

    Attributes:
        times: rounds done before each stage; the last entry is the end R.
        start: stage in which each window begins.
        following, previous: the next and the last window of the same client, or END.
        at: the windows that begin in each stage, in no order.
        last: the windows that end at the end, in no order.
        surplus: G[L] for L = 0 .. longest request.
        missing: V.
    """

    def __init__(
        self, lengths: Sequence[int], times: Sequence[int], end: int, paths: Sequence[Sequence[int]]
    ) -> None:
        self.lengths = np.asarray(lengths, np.int64)
        self.longest = int(self.lengths.max())
        self.times = [*times, end]
        self.stages = len(times)
        self.start: list[int] = []
        self.following: list[int] = []
        self.previous: list[int] = []
        self.at: list[list[int]] = [[] for _ in times]
        self.last: list[int] = []
        self._place: list[int] = []
        for path in paths:
            self._add_path(path)
        self.recount()

    def _add_path(self, path: Sequence[int]) -> None:
        last = END
        for stage in path:
            window = len(self.start)
            self.start.append(stage)
            self.previous.append(last)
            self.following.append(END)
            if last != END:
                self.following[last] = window
            self._place.append(len(self.at[stage]))
            self.at[stage].append(window)
            last = window
        self.last.append(last)

    def move_start(self, window: int, stage: int) -> None:
        """Note that a window begins in another stage."""
        here = self.at[self.start[window]]
        place, top = self._place[window], here.pop()
        if top != window:
            here[place] = top
            self._place[top] = place
        self._place[window] = len(self.at[stage])
        self.at[stage].append(window)
        self.start[window] = stage

    def set_last(self, old: int, new: int) -> None:
        """Note that another window of the same client ends at the end."""
        self.last[self.last.index(old)] = new

    def end_stage(self, window: int) -> int:
        """Return the stage at which a window ends; ``stages`` stands for the end."""
        after = self.following[window]
        return self.stages if after == END else self.start[after]

    def length(self, window: int) -> int:
        """Return the rounds of a window."""
        return self.times[self.end_stage(window)] - self.times[self.start[window]]

    def recount(self) -> None:
        """Compute surplus and missing client-rounds from scratch."""
        longest = self.longest
        spans = [max(0, min(longest, self.length(w))) for w in range(len(self.start))]
        windows = np.bincount(spans, minlength=longest + 1)
        requests = np.bincount(self.lengths, minlength=longest + 1)
        surplus = np.cumsum((windows - requests)[::-1])[::-1]
        self.surplus: list[int] = surplus.tolist()
        self.missing = -sum(g for g in self.surplus[1:] if g < 0)

    def resize(self, old: int, new: int) -> int:
        """Let one window's length change; update the surplus and return the change of V."""
        surplus, longest = self.surplus, self.longest
        old = 0 if old < 0 else min(old, longest)
        new = 0 if new < 0 else min(new, longest)
        change = 0
        if new > old:
            for length in range(old + 1, new + 1):
                if surplus[length] < 0:
                    change -= 1
                surplus[length] += 1
        else:
            for length in range(new + 1, old + 1):
                if surplus[length] <= 0:
                    change += 1
                surplus[length] -= 1
        return change

    def paths(self) -> list[list[int]]:
        """Return the windows of each client in order."""
        found = []
        for window, before in enumerate(self.previous):
            if before == END:
                path = [window]
                while self.following[path[-1]] != END:
                    path.append(self.following[path[-1]])
                found.append(path)
        return found
