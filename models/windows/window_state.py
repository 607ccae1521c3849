"""The state of the search: stage times, paths of clients, how short they fall; and its annealing.

Clients are interchangeable, so a schedule is a set of *paths*: each client starts a request at some
stages, and two starts in a row (or the last start and the end) span a *window*. Given the times,
the best assignment of requests to windows is by sorting both: requests fit if and only if for every
length L there are at least as many windows of length >= L as requests with N >= L. The state keeps
that surplus G[L] for every L; what falls short is V = sum over L of max(0, -G[L]), the
client-rounds that are missing under the best assignment. V = 0 means: a schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.models.compiled_kernels import Kernels, compiled_copies
from orsched.models.windows import window_moves as plain
from orsched.models.windows.window_moves import END, Tables, price_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.common.columns import IntColumn


class Windows:
    """Paths through stages in flat ``Tables`` of lists, and V (``missing``)."""

    def __init__(
        self,
        lengths: IntColumn,
        times: Sequence[int],
        end: int,
        paths: Sequence[Sequence[int]],
        price: Sequence[int] = (),
        late_price: Sequence[int] = (),
    ) -> None:
        """Take stage times, the end, the stages of each path, and prices by starts, if any. Late
        stages have the prices of all where none are given for them."""
        self.lengths = lengths  # rounds of the requests
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


CHUNK = 4096  # moves at one temperature, between two looks at the clock
PLAIN_PARTS = 16  # plain moves look at it this many times as often

_ENOUGH = 2**40  # more than can be missing: all moves are made, and kept


class Cooling(NamedTuple):
    """How a state is annealed: geometric temperatures, from ``hot`` to ``cold``."""

    moves: int  # at most so many
    hot: float
    cold: float
    shake: int = 0  # so many moves that are all kept come first
    budget: int = 0  # what stages may cost


@dataclass
class Task:
    """A state to anneal. ``arms``: reduction, warmth and shift of the end that were drawn to make
    it; ``moments``: the stages of each, of a state from their search, which is not annealed."""

    state: Windows  # changed in place
    aim_ns: int  # makespan of its stages and end
    moves: int  # at most so many
    hot: float  # first temperature
    budget: int  # what stages may cost, in units of ``Prices``
    arms: tuple[str, str, str] | None = None
    tries: int = 0  # how often rounds have been added
    long: bool = False  # it gets a good part of the time; rounds are then added one by one
    moments: Sequence[int] = ()
    made: int = 0  # moves made
    seconds: float = 0.0  # time taken

    def lacking(self) -> int:
        """Return the client-rounds that are missing, and what stages cost above the budget."""
        return self.state.missing + max(0, self.state.tables.spent[0] - self.budget)

    @property
    def kind(self) -> tuple[int, ...]:
        """End and times of the stages of a first state."""
        return tuple(self.state.tables.times)


def anneal(
    state: Windows,
    how: Cooling,
    rng: np.random.Generator,
    give_up: Callable[[], bool],
    fast: Kernels | None = None,
) -> int:
    """Search until V = 0, the moves are used up or ``give_up`` says so; return the moves made.
    Threshold form: a change of V is kept when it is at most ``-T log u``. The moves are the same
    whether the compiled ones are ready or not."""
    moves, hot, _, shake, budget = how
    if shake:
        _shake(state, rng.random(shake * plain.DRAWS).tolist(), give_up, budget)
    cooling = math.log(how.cold / hot)
    made, arrays = 0, None
    spent = state.tables.spent
    while (state.missing > 0 or spent[0] > budget) and made < moves and not give_up():
        count = min(CHUNK, moves - made)
        temperature = hot * math.exp(cooling * made / moves)
        draws = rng.random((count, plain.DRAWS))
        thresholds = (-temperature * np.log1p(-draws[:, -1])).astype(np.int64)
        run = None if fast is None else fast.entry("run_moves")
        if run is None:
            done = _run_plain(state, draws.ravel().tolist(), thresholds.tolist(), give_up, budget)
        else:
            arrays = as_arrays(state.tables) if arrays is None else arrays
            done, state.missing = run(arrays, state.missing, draws.ravel(), thresholds, budget)
            spent = arrays.spent
        made += done
    if arrays is not None:
        write_back(arrays, state)
    return made


def _shake(state: Windows, draws: list[float], give_up: Callable[[], bool], budget: int) -> None:
    """Make moves of which all are kept, looking at the clock now and then."""
    size = CHUNK // PLAIN_PARTS * plain.DRAWS
    for first in range(0, len(draws), size):
        part = draws[first : first + size]
        kept = [_ENOUGH] * (len(part) // plain.DRAWS)
        _, missing = plain.run_moves(state.tables, _ENOUGH, part, kept, budget)
        state.missing += missing - _ENOUGH
        if give_up():
            break


def _run_plain(
    state: Windows,
    draws: list[float],
    thresholds: list[int],
    give_up: Callable[[], bool],
    budget: int,
) -> int:
    """Make the moves of a chunk in plain Python, looking at the clock more often."""
    made, size = 0, CHUNK // PLAIN_PARTS
    for first in range(0, len(thresholds), size):
        done, state.missing = plain.run_moves(
            state.tables,
            state.missing,
            draws[first * plain.DRAWS : (first + size) * plain.DRAWS],
            thresholds[first : first + size],
            budget,
        )
        made += done
        if (state.missing == 0 and state.tables.spent[0] <= budget) or give_up():
            break
    return made


@cache
def compiled() -> Kernels:
    """Return the compiled moves of this process; the first call starts to load them."""
    return Kernels(_compiled_moves, "the moves, windows runs slower")


def _compiled_moves() -> Any:
    # Without nrt, which only allocation needs, no references are counted: six times faster.
    module: Any = compiled_copies(plain, _nrt=False)
    module.index = np.uint64
    empty: list[Any] = [[0] for _ in range(len(Tables._fields) - 1)]
    whole, draws = np.zeros(1, np.int64), np.zeros(plain.DRAWS)
    module.run_moves(as_arrays(Tables(1, *empty)), 0, draws, whole, 0)
    module.swap_requests(whole, whole, whole, whole, whole, whole, whole, draws, whole)
    return module


def as_arrays(tables: Tables) -> Tables:
    """Return the tables as arrays, which the compiled moves take."""
    width, *lists = tables
    arrays: list[Any] = [np.array(table, np.int64) for table in lists]
    arrays[-1] = arrays[-1].astype(np.int32)
    return Tables(width, *arrays)


def write_back(arrays: Any, state: Windows) -> None:
    """Copy the arrays into a state's lists."""
    for array, table in zip(arrays[1:], state.tables[1:], strict=True):
        table[:] = array.tolist()
