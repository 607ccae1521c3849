"""Requests in the roles that they have on a client, what these weigh, and what a client holds.

For ``ends_bound``: weights are given to a client's first and last short request, those between,
those alone, and longs; and to each short request's window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.models.joint_bound import short_windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from orsched.models.counts import Jobs

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Numbers = NDArray[Any]

MOST_REQUESTS = 200
_NONE = -(2**60)
WHOLE = 1 << 26
"""Of weights in whole numbers: what is 1 in the linear program."""


@dataclass(frozen=True, eq=False)
class Shorts:
    """The requests by length: some of the greatest length L, and shorter ones.

    Attributes:
        lengths, counts: different lengths below L, ascending, and how many requests have each.
        long, longs: L, and how many requests are that long.
        clients: J.
    """

    lengths: Ints
    counts: Ints
    long: int
    longs: int
    clients: int

    @classmethod
    def of(cls, jobs: Jobs) -> Shorts | None:
        """Return them, or None where there are none or too many."""
        if len(jobs) > MOST_REQUESTS or jobs.clients < 1 or int(jobs.rounds.max(initial=0)) < 1:
            return None
        lengths, counts = np.unique(jobs.rounds[jobs.rounds > 0], return_counts=True)
        if len(lengths) < 2:
            return None
        found = lengths[:-1].astype(np.int64), counts[:-1].astype(np.int64)
        return cls(*found, int(lengths[-1]), int(counts[-1]), jobs.clients)

    @cached_property
    def sizes(self) -> Ints:
        """All lengths, L the last."""
        return np.append(self.lengths, self.long)

    @cached_property
    def up_to(self) -> list[int]:
        """How many shorts are of a length or less; all of them for L."""
        return [*np.cumsum(self.counts).tolist(), int(self.counts.sum())]

    def places(self, stages: int, rounds: int) -> tuple[int, int] | None:
        """Return how many lengths below L ends can be rounded up to, and windows can have.

        Some client must serve as many longs as fit: then stages are in as many spans of L. None
        where that is not so, or there are more stages than requests.
        """
        fitting = rounds // self.long
        if fitting < 1 or self.longs <= (fitting - 1) * self.clients:
            return None
        if stages > self.longs + int(self.counts.sum()):
            return None
        return 2 * max(0, stages - fitting), short_windows(stages, fitting)


class Weights(NamedTuple):
    """What a request weighs by role and length, and its window by length; the last length is L.

    ``end``: a client's first or last short, by the length that it is rounded up to; ``middle``: a
    short between these; ``single``: a client's only request; ``window``: in addition, by the
    length of the window that a short is in. None of them falls. ``long``: a request of L.
    """

    end: Numbers
    middle: Numbers
    single: Numbers
    window: Numbers
    long: float

    @classmethod
    def from_row(cls, row: Numbers) -> Weights:
        """Return the parts of a row of the linear program."""
        end, middle, single, window = row[:-1].reshape(4, -1)
        return cls(end, middle, single, window, row[-1])

    def whole(self) -> Weights:
        """Return weights in whole numbers, not below 0."""
        parts = [np.rint(part * WHOLE).astype(np.int64) for part in self[:4]]
        end, middle, single, window = (np.maximum.accumulate(part) for part in parts)
        return Weights(end, middle, single, window, round(float(self.long) * WHOLE))

    def to_dict(self) -> dict[str, Any]:
        """Return them as they stand in a certificate."""
        names = ("end", "middle", "single", "window")
        lists = {name: part.tolist() for name, part in zip(names, self[:4], strict=True)}
        return lists | {"long": int(self.long)}


class Contents:
    """What a client's content weighs at most, by how many rounds it takes at most."""

    def __init__(self, shorts: Shorts, weights: Weights, rounds: int) -> None:
        self.shorts, self.weights, self.sizes = shorts, weights, shorts.sizes.tolist()
        self.items = self._middles(rounds)
        self.middles: list[Numbers] = [np.zeros(rounds + 1, weights.end.dtype)]
        for at, times in self.items:
            best = self.middles[-1].copy()
            weight = times * (weights.middle[at] + weights.window[at])
            _raise(best, self.middles[-1], times * self.sizes[at], weight)
            self.middles.append(best)
        nothing = np.zeros(rounds + 1, weights.end.dtype)
        self.one = self._with_end(nothing)
        self.last = self._with_end(self.middles[-1])
        self.two = self._with_end(self.last)
        self.only = np.zeros(rounds + 1, weights.end.dtype)
        for at, size in enumerate(self.sizes):
            _raise(self.only, nothing, size, weights.single[at] + weights.window[at])

    def _middles(self, rounds: int) -> list[tuple[int, int]]:
        """Return how often a length is added at a time: together, as often as there are shorts."""
        found = []
        for at, (size, many) in enumerate(zip(self.sizes, self.shorts.up_to, strict=True)):
            left, times = min(many, rounds // size), 1
            while left > 0:
                found.append((at, min(times, left)))
                left, times = left - times, 2 * times
        return found

    def _with_end(self, before: Numbers) -> Numbers:
        """Return the most with a first or last short besides; below 0 where there is no room."""
        best = np.full(len(before), _NONE, before.dtype)
        for at, size in enumerate(self.sizes):
            _raise(best, before, size, self.weights.end[at] + self.weights.window[at])
        return best

    def by_longs(self, rounds: int) -> list[float]:
        """Return the most that a content of 0, 1, 2, ... longs weighs."""
        found, long = [], self.shorts.long
        for longs in range(rounds // long + 1):
            left = rounds - longs * long
            shorter = max(self.two[left], self.one[left] if longs else self.only[left], 0)
            found.append(longs * self.weights.long + shorter)
        return found

    def rows(self, rounds: int) -> Iterator[Floats]:
        """Yield the heaviest content for each number of longs, as a row over the weights."""
        long, n = self.shorts.long, len(self.sizes)
        for longs in range(rounds // long + 1):
            row, left = np.zeros(4 * n + 1), rounds - longs * long
            row[-1] = longs
            other = self.one[left] if longs else self.only[left]
            if self.two[left] >= max(other, 0):
                left = self._add_end(row, left, self.last)
                left = self._add_end(row, left, self.middles[-1])
                self._add_middles(row, left)
            elif longs and other > 0:
                self._add_end(row, left, np.zeros_like(self.one))
            elif other > 0:
                fitting = sum(size <= left for size in self.sizes)
                row[[2 * n + fitting - 1, 3 * n + fitting - 1]] += 1
            yield row

    def _add_end(self, row: Floats, left: int, before: Numbers) -> int:
        """Add the best first or last short to a row; return the rounds that are left."""
        n, rest = len(self.sizes), left - self.shorts.sizes
        values = before[np.maximum(rest, 0)] + self.weights.end + self.weights.window
        possible = (rest >= 0) & (before[np.maximum(rest, 0)] >= 0)
        at = int(np.argmax(np.where(possible, values, _NONE)))
        row[[at, 3 * n + at]] += 1
        return int(rest[at])

    def _add_middles(self, row: Floats, left: int) -> None:
        n = len(self.sizes)
        for number in range(len(self.items) - 1, -1, -1):
            at, times = self.items[number]
            if self.middles[number + 1][left] > self.middles[number][left]:
                row[[n + at, 3 * n + at]] += times
                left -= times * self.sizes[at]


def _raise(best: Numbers, before: Numbers, size: int, weight: float) -> None:
    """Raise the best by what was there before and one more thing."""
    if size < len(best):
        np.maximum(best[size:], before[: len(before) - size] + weight, out=best[size:])


class Rounded(NamedTuple):
    """The least weight of all shorts, and the length that each is rounded up to."""

    total: float
    lengths: Ints


def lightest(shorts: Shorts, up: Numbers, other: Numbers | None, values: int) -> Rounded:
    """Round all shorts up to L or to so many other lengths; those that weigh less, not at all.

    ``up``: weights by the length rounded up to, and ``other``: without that, by length.
    """
    n = len(shorts.lengths)
    each = np.repeat(up[None, :], n, axis=0)
    if other is not None:
        each = np.minimum(each, other[:n, None])
    each = each * shorts.counts[:, None]
    sums = np.vstack([np.zeros((1, n + 1), each.dtype), np.cumsum(each, axis=0)])
    tops = np.arange(1, n + 1)
    spans = (sums[tops, tops - 1][None, :] - sums[:, :n]).astype(np.float64)
    spans[np.arange(n + 1)[:, None] >= tops[None, :]] = np.inf
    least = np.full(n + 1, np.inf)
    least[0] = 0
    tables, chosen = [least], []
    for _ in range(min(values, n)):
        options = tables[-1][:, None] + spans
        chosen.append(np.argmin(options, axis=0))
        tables.append(np.concatenate([[np.inf], options[chosen[-1], np.arange(n)]]))
    totals = np.array(tables) + (sums[n, n] - sums[:, n])[None, :]
    table, top = np.unravel_index(int(np.argmin(totals)), totals.shape)
    rounded, at = np.full(n, n), int(top)
    for number in range(int(table) - 1, -1, -1):
        below = int(chosen[number][at - 1])
        rounded[below:at] = at - 1
        at = below
    return Rounded(float(totals[table, top]), rounded)


def rounded_rows(
    shorts: Shorts, weights: Weights, places: int, windows: int
) -> tuple[float, Floats, Floats]:
    """Return the least weight of all requests, by role and by window, and a row for each."""
    n = len(shorts.sizes)
    other = np.minimum(weights.middle, weights.single)
    by_role = lightest(shorts, weights.end, other, places)
    by_window = lightest(shorts, weights.window, None, windows)
    roles, in_windows = np.zeros(4 * n + 1), np.zeros(4 * n + 1)
    for at, many in enumerate(shorts.counts.tolist()):
        up = int(by_role.lengths[at])
        options = (weights.end[up], weights.middle[at], weights.single[at])
        roles[(up, n + at, 2 * n + at)[int(np.argmin(options))]] += many
        in_windows[3 * n + int(by_window.lengths[at])] += many
    roles[-1] = shorts.longs
    total = by_role.total + by_window.total + shorts.longs * weights.long
    return total, roles, in_windows
