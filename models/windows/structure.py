"""The search state: stage times, paths of clients through the stages, and how short they fall.

Clients are interchangeable, so a schedule is a set of *paths*: each client starts a request at
some stages, and two starts in a row (or the last start and the end) span a *window*. Given the
times, the best assignment of requests to windows is by sorting both: requests fit if and only if
for every length L there are at least as many windows of length >= L as requests with N >= L.
The state keeps that surplus G[L] for every L; what falls short is V = sum over L of max(0, -G[L]),
the client-rounds that are missing under the best assignment. V = 0 means: a schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.windows.moves import price_of
from orsched.models.windows.tables import END, Tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn


class Windows:
    """Paths through stages, in flat tables, and V.

    Attributes:
        lengths: rounds of the requests.
        tables: see ``Tables``; lists.
        missing: V.
    """

    def __init__(
        self,
        lengths: IntColumn,
        times: Sequence[int],
        end: int,
        paths: Sequence[Sequence[int]],
        price: Sequence[int] = (),
        late_price: Sequence[int] = (),
    ) -> None:
        """Take stage times, the end, the stages of each path, and prices by starts, if any.

        Late stages have the prices of all where none are given for them.
        """
        self.lengths = lengths
        start = [stage for path in paths for stage in path]
        n, stages = len(start), len(times)
        counts = np.bincount(start, minlength=stages).tolist()
        width = max(len(paths), *counts)
        self.tables = Tables(
            width, [*times, end], start, [END] * n, [END] * n, [0] * (stages * width), [0] * stages,
            [0] * n, [], [0] * n, [0] * stages, list(price) or [0] * (width + 1),
            list(late_price or price) or [0] * (width + 1), [0], [],
        )  # fmt: skip
        window = 0
        for path in paths:
            self._add_path(window, len(path))
            window += len(path)
        self.recount()

    def _add_path(self, first: int, count: int) -> None:
        """Link windows that follow each other, and enter them into their stages."""
        tables = self.tables
        for window in range(first, first + count):
            stage = tables.start[window]
            if window > first:
                tables.previous[window] = window - 1
                tables.following[window - 1] = window
            tables.place[window] = tables.counts[stage]
            tables.at[stage * tables.width + tables.counts[stage]] = window
            tables.counts[stage] += 1
        tables.last_place[first + count - 1] = len(tables.last)
        tables.last.append(first + count - 1)

    def copy(self) -> Windows:
        """Return a state that can be changed without this one."""
        other = object.__new__(Windows)
        other.lengths, other.missing = self.lengths, self.missing
        width, *lists = self.tables
        copies: list[Any] = [list(table) for table in lists]
        other.tables = Tables(width, *copies)
        return other

    @property
    def stages(self) -> int:
        """K."""
        return len(self.tables.counts)

    @property
    def end(self) -> int:
        """R."""
        return self.tables.times[-1]

    def spans(self) -> IntColumn:
        """Return the rounds of every window."""
        tables = self.tables
        times, start = np.array(tables.times), np.array(tables.start, np.int64)
        ends = np.append(start, self.stages)[tables.following]
        return np.asarray(times[ends] - times[start], np.int64)

    def recount(self) -> None:
        """Compute surplus, missing client-rounds and what stages cost from scratch."""
        longest = int(self.lengths.max())
        windows = np.bincount(np.clip(self.spans(), 0, longest), minlength=longest + 1)
        requests = np.bincount(self.lengths, minlength=longest + 1)
        surplus = np.cumsum((windows - requests)[::-1])[::-1]
        self.tables.surplus[:] = surplus.tolist()
        counts = self.tables.counts
        self.tables.spent[0] = sum(price_of(self.tables, k, counts[k]) for k in range(len(counts)))
        self.missing = -sum(g for g in self.tables.surplus[1:] if g < 0)

    def paths(self) -> list[list[int]]:
        """Return the windows of each client in order."""
        found, following = [], self.tables.following
        for window, before in enumerate(self.tables.previous):
            if before == END:
                path = [window]
                while following[path[-1]] != END:
                    path.append(following[path[-1]])
                found.append(path)
        return found

    def paths_of_stages(self) -> list[list[int]]:
        """Return the stages in which each client starts, in order."""
        start = self.tables.start
        return [[start[window] for window in path] for path in self.paths()]
