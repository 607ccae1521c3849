"""A linear program, by cutting planes, for weights that prove more rounds (``alignment_bound``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.certificates.alignment import Contents, Shorts, Weights, least_weight, too_few
from orsched.models.pcmax.master import linear_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.certificates.alignment import Floats, Numbers
    from orsched.certificates.context import Jobs


MOST_REQUESTS = 200
_NONE = -(2**60)
WHOLE = 1 << 26
"""Of weights in whole numbers: what is 1 in the linear program."""


def shorts_of(jobs: Jobs) -> Shorts | None:
    """Return the requests by length, or None where there are none or too many."""
    return None if len(jobs) > MOST_REQUESTS else Shorts.of(jobs.rounds, jobs.clients)


def from_row(row: Numbers) -> Weights:
    """Return the parts of a row of the linear program."""
    end, middle, single, window = row[:-1].reshape(4, -1)
    return Weights(end, middle, single, window, row[-1])


def whole(weights: Weights) -> Weights:
    """Return weights in whole numbers, not below 0."""
    parts = [np.rint(part * WHOLE).astype(np.int64) for part in weights[:4]]
    end, middle, single, window = (np.maximum.accumulate(part) for part in parts)
    return Weights(end, middle, single, window, round(float(weights.long) * WHOLE))


def heaviest_rows(contents: Contents, rounds: int) -> Iterator[Floats]:
    """Yield the heaviest content for each number of longs, as a row over the weights."""
    long, n = contents.shorts.long, len(contents.sizes)
    for longs in range(rounds // long + 1):
        row, left = np.zeros(4 * n + 1), rounds - longs * long
        row[-1] = longs
        other = contents.one[left] if longs else contents.only[left]
        if contents.two[left] >= max(other, 0):
            left = _add_end(contents, row, left, contents.last)
            left = _add_end(contents, row, left, contents.middles[-1])
            _add_middles(contents, row, left)
        elif longs and other > 0:
            _add_end(contents, row, left, np.zeros_like(contents.one))
        elif other > 0:
            fitting = sum(size <= left for size in contents.sizes)
            row[[2 * n + fitting - 1, 3 * n + fitting - 1]] += 1
        yield row


def _add_end(contents: Contents, row: Floats, left: int, before: Numbers) -> int:
    """Add the best first or last short to a row; return the rounds that are left."""
    n, rest = len(contents.sizes), left - contents.shorts.sizes
    values = before[np.maximum(rest, 0)] + contents.weights.end + contents.weights.window
    possible = (rest >= 0) & (before[np.maximum(rest, 0)] >= 0)
    at = int(np.argmax(np.where(possible, values, _NONE)))
    row[[at, 3 * n + at]] += 1
    return int(rest[at])


def _add_middles(contents: Contents, row: Floats, left: int) -> None:
    n = len(contents.sizes)
    for number in range(len(contents.items) - 1, -1, -1):
        at, times = contents.items[number]
        if contents.middles[number + 1][left] > contents.middles[number][left]:
            row[[n + at, 3 * n + at]] += times
            left -= times * contents.sizes[at]


def rounded_rows(
    shorts: Shorts, weights: Weights, places: int, windows: int
) -> tuple[float, Floats, Floats]:
    """Return the least weight of all requests, by role and by window, and a row for each."""
    n = len(shorts.sizes)
    by_role, by_window, longs = least_weight(shorts, weights, places, windows)
    roles, in_windows = np.zeros(4 * n + 1), np.zeros(4 * n + 1)
    for at, many in enumerate(shorts.counts.tolist()):
        up = int(by_role.lengths[at])
        options = (weights.end[up], weights.middle[at], weights.single[at])
        roles[(up, n + at, 2 * n + at)[int(np.argmin(options))]] += many
        in_windows[3 * n + int(by_window.lengths[at])] += many
    roles[-1] = shorts.longs
    return by_role.total + by_window.total + longs, roles, in_windows


MOST_SOLVES = 800
"""Linear programs solved for all proofs of an instance together."""
MOST_STAGES_MORE, MOST_ROUNDS_MORE = 6, 16
_MARGIN, _NEAR = 1e-5, 0.05
"""By how much weights must prove, and how near the last solution a cut must be to be kept."""


class Proof(NamedTuple):
    """Weights, and what they prove: (stages, rounds), so many stages need so many rounds."""

    weights: Weights
    proves: list[tuple[int, int]]


class Solver:
    """Finds weights by cutting planes: contents of a client, and roundings of all requests.

    The program maximizes what all requests weigh, where no client holds more than 1. Cuts are
    taken halfway between its solution and the best weights so far.
    """

    def __init__(self, shorts: Shorts, out_of_time: Callable[[], bool]) -> None:
        self.shorts, self.out_of_time, self.solves = shorts, out_of_time, MOST_SOLVES
        self._contents: dict[bytes, Floats] = {}
        self._roles: dict[bytes, tuple[int, Floats]] = {}
        self._windows: dict[bytes, tuple[int, Floats]] = {}
        self._last: tuple[Floats, tuple[float, float]] | None = None
        self._sizes = np.concatenate([*[shorts.sizes] * 3, 0 * shorts.sizes, [shorts.long]])
        self._inner = self._sizes

    def prove(self, stages: int, rounds: int) -> Proof | None:
        """Return a proof that this many stages need more rounds than these, or None."""
        known = self.shorts.places(stages, rounds)
        if known is None or known[0] >= len(self.shorts.lengths):
            return None
        row = self._weights(*known, rounds)
        self._forget()
        if row is None:
            return None
        weights = whole(from_row(row))
        proves = proven(self.shorts, weights, stages, rounds)
        return Proof(weights, proves) if proves else None

    def _weights(self, places: int, windows: int, rounds: int) -> Floats | None:
        """Return weights by which all requests are heavier than the clients' contents."""
        program, clients = _Program(len(self.shorts.sizes)), self.shorts.clients
        for row in self._contents.values():
            if float(row @ self._sizes) <= rounds:
                program.add_content(row)
        for kind, (rounded, limit) in enumerate(((self._roles, places), (self._windows, windows))):
            for values, row in rounded.values():
                if values <= limit:
                    program.add_rounding(kind, row)
        inner, best = self._start(places, windows, rounds)
        if best > clients * (1 + _MARGIN):
            return inner
        while self.solves > 0 and not self.out_of_time():
            outer, bounds = self._last = program.solve()
            self.solves -= 1
            if sum(bounds) <= clients * (1 + _MARGIN):
                return None
            for point in ((inner + outer) / 2, outer):
                weights = from_row(point)
                contents = Contents(self.shorts, weights, rounds)
                most = max(contents.by_longs(rounds))
                total, *rows = rounded_rows(self.shorts, weights, places, windows)
                if total > best * most:
                    inner, best = point / most, total / most
                    self._inner = inner
                if best > clients * (1 + _MARGIN):
                    return inner
                fresh = [
                    row for row in heaviest_rows(contents, rounds) if float(row @ outer) > 1 + 1e-9
                ]
                for row in fresh:
                    self._contents[row.tobytes()] = row
                    program.add_content(row)
                light = [k for k in (0, 1) if float(rows[k] @ outer) < bounds[k] - 1e-9]
                for kind in light:
                    known = (self._roles, self._windows)[kind]
                    known[rows[kind].tobytes()] = ((places, windows)[kind], rows[kind])
                    program.add_rounding(kind, rows[kind])
                if fresh or light:
                    break
            else:
                return None
        return None

    def _start(self, places: int, windows: int, rounds: int) -> tuple[Floats, float]:
        """Return the better of the lengths themselves and of the last weights, and its value."""
        found: list[tuple[float, Floats]] = []
        for point in (self._sizes / rounds, self._inner):
            weights = from_row(point)
            most = max(Contents(self.shorts, weights, rounds).by_longs(rounds))
            total, *_ = rounded_rows(self.shorts, weights, places, windows)
            found.append((total / most, point / most))
        best, inner = max(found, key=lambda pair: pair[0])
        return inner, best

    def _forget(self) -> None:
        """Keep the cuts that are near the last solution: programs of all of them are slow."""
        if self._last is None:
            return
        outer, bounds = self._last
        for row in list(self._contents.values()):
            if float(row @ outer) < 1 - _NEAR:
                del self._contents[row.tobytes()]
        for known, bound in zip((self._roles, self._windows), bounds, strict=True):
            for _, row in list(known.values()):
                if float(row @ outer) > bound + self.shorts.clients * _NEAR:
                    del known[row.tobytes()]


def proven(shorts: Shorts, weights: Weights, stages: int, rounds: int) -> list[tuple[int, int]]:
    """Return what whole weights prove: (stages, rounds), for these stages or more."""
    found: list[tuple[int, int]] = []
    contents = Contents(shorts, weights, rounds + MOST_ROUNDS_MORE)
    for more in range(MOST_STAGES_MORE):
        needed = rounds
        while needed < rounds + MOST_ROUNDS_MORE:
            if not too_few(shorts, weights, stages + more, needed, contents):
                break
            needed += 1
        if needed == rounds:
            break
        if found and found[-1][1] == needed:
            found.pop()
        found.append((stages + more, needed))
    return found


class _Program:
    """The linear program over the contents and roundings known so far, solved by SoPlex."""

    def __init__(self, n: int) -> None:
        self._lp = linear_program("ends")
        self._total = 4 * n + 1
        objective = [0.0] * self._total + [-1.0, -1.0]
        upper = [1.0] * self._total + [1e6, 1e6]
        columns: list[list[tuple[int, float]]] = [[] for _ in objective]
        self._lp.addCols(columns, objs=objective, lbs=[0.0] * len(objective), ubs=upper)
        for at in range(4 * n):
            if (at + 1) % n:
                self._lp.addRow([(at, 1.0), (at + 1, -1.0)], lhs=-1e20, rhs=0.0)

    def add_content(self, row: Floats) -> None:
        """A client's content weighs 1 at most."""
        self._lp.addRow([(int(k), float(row[k])) for k in np.flatnonzero(row)], lhs=-1e20, rhs=1.0)

    def add_rounding(self, kind: int, row: Floats) -> None:
        """All requests together weigh no more than with this rounding, by role or by window."""
        entries = [(int(k), -float(row[k])) for k in np.flatnonzero(row)]
        self._lp.addRow([*entries, (self._total + kind, 1.0)], lhs=-1e20, rhs=0.0)

    def solve(self) -> tuple[Floats, tuple[float, float]]:
        """Return the best weights, and what all requests weigh with them, by role and window."""
        self._lp.solve(dual=True)
        values = np.array(self._lp.getPrimal())
        return np.maximum(values[:-2], 0.0), (float(values[-2]), float(values[-1]))
