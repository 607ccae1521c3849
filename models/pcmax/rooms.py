"""The rooms beside the most frequent size: what is left of a client that holds as many as fit. If N
jobs have size B, and a capacity C holds at most q of them, at least N - (q - 1) J clients hold q
(for their number alone). The others of their jobs come from the small ones, at most C - q B a
client; a linear program over the few patterns of so small a room says what those leave empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.models.pcmax.columns import linear_program
from orsched.models.pcmax.patterns import (
    LARGEST_TABLE,
    Pricer,
    Window,
    best_value,
    items_of,
    patterns_worth,
    table_cells,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.models.pcmax.patterns import Ints, Problem


PATTERNS = 3_000
_INFINITY = 1e20
_WHOLE = 1e-6


@dataclass(frozen=True)
class Rooms:
    """The rooms at a capacity."""

    problem: Problem
    frequent: int  # index of the most frequent size
    most: int  # how many of it a client holds at most
    number: int  # clients that hold so many, for their number alone
    room: int  # what else such a client can hold
    small: Ints  # indices of the sizes that fit there
    limit: Ints  # how many there are of each of those

    @classmethod
    def of(cls, problem: Problem, capacity: int) -> Rooms | None:
        """Return the rooms; None if no client need be so full, or nothing fits beside."""
        sizes, counts = problem.sizes, problem.counts
        frequent = int(counts.argmax())
        size, count = int(sizes[frequent]), int(counts[frequent])
        most = min(capacity // size, count)
        number, room = count - (most - 1) * problem.clients, capacity - most * size
        if number <= 0 or room >= size or problem.slack(capacity) < 0:
            return None
        small = np.flatnonzero(sizes <= room)
        if not len(small) or table_cells(sizes, counts, capacity) > LARGEST_TABLE:
            return None
        return cls(problem, frequent, most, number, room, small, counts[small])

    def patterns(self, waste: int) -> Ints | None:
        """Return the contents of a room that leave at most this empty; None if too many."""
        sizes = self.problem.sizes[self.small]
        items, nothing = items_of(sizes, self.limit, self.room), np.zeros_like(sizes)
        window = Window(self.room - waste, self.room)
        return patterns_worth(Pricer(), items, nothing, window, len(sizes), 0, PATTERNS)

    def fill(self, slack: int) -> list[Ints] | None:
        """Return contents of the clients with these rooms that waste at most the slack, or None.
        The linear program's solution is nearly whole; it is rounded down, and what is left solved
        again. Where the patterns are too many, those with less waste are enough."""
        if self.number > self.problem.clients:
            return None
        waste, patterns = slack, self.patterns(slack)
        while patterns is None and waste:
            waste //= 2
            patterns = self.patterns(waste)
        if patterns is None or not len(patterns):
            return None
        short = self.room - patterns @ self.problem.sizes[self.small]
        program = _Program(patterns, short, self.limit, self.number)
        limit, left, filled = self.limit.copy(), self.number, np.zeros(len(patterns), np.int64)
        while left > 0:
            fits: NDArray[np.bool_] = np.all(patterns <= limit, axis=1)
            program.leave(limit, left, fits)
            shares = program.solve().shares * fits
            wasted = float((filled + shares) @ short)
            if abs(shares.sum() - left) > _WHOLE or wasted > slack + _WHOLE:
                return None
            step = np.floor(shares + _WHOLE).astype(np.int64)
            if not step.any():
                step[int(shares.argmax())] = 1
            filled, limit, left = filled + step, limit - step @ patterns, left - int(step.sum())
        if left or (limit < 0).any():
            return None
        chosen = np.zeros((len(patterns), len(self.problem.sizes)), dtype=np.int64)
        chosen[:, self.small] = patterns
        chosen[:, self.frequent] = self.most
        return list(np.repeat(chosen, filled, axis=0))


class _Solved(NamedTuple):
    """What a number of rooms are short by at least, in what shares, and the duals of that."""

    value: float
    shares: NDArray[np.float64]
    duals: NDArray[np.float64]


class _Program:
    """Least waste of a number of rooms, by patterns, with no job more often than it is there."""

    def __init__(self, patterns: Ints, short: Ints, limit: Ints, number: int) -> None:
        self._kinds = kinds = len(limit)
        self._program: Any = linear_program("rooms")
        lowest, highest = [-_INFINITY] * kinds + [float(number)], [*map(float, limit), _INFINITY]
        self._program.addRows([[] for _ in range(kinds + 1)], lhss=lowest, rhss=highest)
        columns = [
            [*((int(k), float(p[k])) for k in np.flatnonzero(p)), (kinds, 1.0)] for p in patterns
        ]
        many, costs = len(columns), [float(s) for s in short]
        self._program.addCols(columns, objs=costs, lbs=[0.0] * many, ubs=[_INFINITY] * many)
        self._open = np.ones(many, dtype=bool)

    def leave(self, limit: Ints, number: int, fits: NDArray[np.bool_]) -> None:
        """Go on with just so many rooms, the jobs that are left and the patterns that fit them."""
        for column in np.flatnonzero(self._open & ~fits).tolist():
            self._program.chgBound(column, 0.0, 0.0)
        self._open &= fits
        for row, count in enumerate(limit.tolist()):
            self._program.chgSide(row, -_INFINITY, float(count))
        self._program.chgSide(self._kinds, float(number), float(number))

    def solve(self) -> _Solved:
        """Solve, from the last basis."""
        value = float(self._program.solve())
        shares = np.maximum(np.array(self._program.getPrimal()), 0.0)
        return _Solved(value, shares, np.array(self._program.getDual()))


def least_waste(rooms: Rooms, patterns: Ints, slack: int) -> tuple[float, NDArray[np.float64]]:
    """Return the least that the rooms are short by, and the duals of jobs and rooms. A room that is
    short by more than the slack costs one more than that: no pattern has it."""
    short = np.append(rooms.room - patterns @ rooms.problem.sizes[rooms.small], slack + 1)
    patterns = np.vstack([patterns, np.zeros((1, patterns.shape[1]), dtype=np.int64)])
    solved = _Program(patterns, short, rooms.limit, rooms.number).solve()
    return solved.value, solved.duals


_SCALE = 10**4


def prove_by_rooms(problem: Problem, capacity: int) -> Ints | None:
    """Return integer duals that prove the capacity too small, or None if this does not. The clients
    that hold that size as often as fits can fall short of the capacity by no more than all can
    waste.

    With theta for each such client and mu_s for each small job, the dual of that program, the
    lengths plus theta for B and minus mu_s for small s are integer duals of the whole problem: no
    client holds more than C + (q - 1) theta of them, for q of the size B."""
    sizes, counts, slack = problem.sizes, problem.counts, problem.slack(capacity)
    rooms = Rooms.of(problem, capacity)
    patterns = rooms.patterns(slack) if rooms else None
    if rooms is None or patterns is None:
        return None
    value, duals = least_waste(rooms, patterns, slack)
    if value <= slack:
        return None
    whole = sizes * _SCALE
    whole[rooms.frequent] += round(float(duals[-1]) * _SCALE)
    whole[rooms.small] += np.round(duals[:-1] * _SCALE).astype(np.int64)
    whole = np.maximum(whole, 0)
    best = best_value(items_of(sizes, counts, capacity), whole, problem.window(capacity))
    if best is None or int(whole @ counts) > problem.clients * best:
        return whole
    return None
