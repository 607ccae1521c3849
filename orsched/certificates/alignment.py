"""What is proven of the rounds by where clients begin and end (docs/proofs.md).

Requests have roles on a client: its first and last short request, those between, those alone, and
longs; each weighs something in its role, and besides in its window. If all requests weigh more than
J clients can hold, however few lengths the ends and the windows are rounded up to, the rounds are
too few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.fields import STEP, Budget

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Numbers = NDArray[Any]

_NONE, _MOST, _LARGEST_SUM = -(2**60), 2**60, 2**58


def short_windows(stages: int, fitting: int) -> int:
    """Most different lengths of windows shorter than L, where some client serves ``fitting`` longs.

    Their starts and the end are L or more apart: any other stage is closer than L to two at most.
    """
    others = max(0, stages - fitting)
    return others * (others + 3) // 2


@dataclass(frozen=True, eq=False)
class Shorts:
    """The requests by length: ``longs`` of the greatest length L (``long``), and shorter ones.

    ``lengths`` below L ascend; ``counts`` are the requests of each.
    """

    lengths: Ints
    counts: Ints
    long: int
    longs: int
    clients: int

    @classmethod
    def of(cls, rounds: Ints, clients: int) -> Shorts | None:
        """Return them, of the requests that need rounds; None where all need as many."""
        lengths, counts = np.unique(rounds[rounds > 0], return_counts=True)
        if len(lengths) < 2 or clients < 1:
            return None
        found = lengths[:-1].astype(np.int64), counts[:-1].astype(np.int64)
        return cls(*found, int(lengths[-1]), int(counts[-1]), clients)

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
    def read(cls, entry: dict[str, Any], lengths: int) -> Weights:
        """Return those of a certificate; ``ValueError`` for others than one for each length."""
        end, middle, single, window = parts = [entry[name] for name in cls._fields[:4]]
        if any(len(part) != lengths for part in parts):
            raise ValueError("not one weight for each length")
        if any(sorted(part) != part for part in parts):
            raise ValueError("weights fall")
        return cls(
            np.array(end), np.array(middle), np.array(single), np.array(window), entry["long"]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return them as they stand in a certificate."""
        names = ("end", "middle", "single", "window")
        lists = {name: part.tolist() for name, part in zip(names, self[:4], strict=True)}
        return lists | {"long": int(self.long)}


class Contents:
    """What a client's content weighs at most, by how many rounds it takes at most."""

    def __init__(
        self, shorts: Shorts, weights: Weights, rounds: int, budget: Budget | None = None
    ) -> None:
        self.shorts, self.weights, self.sizes = shorts, weights, shorts.sizes.tolist()
        self.items = self._middles(rounds)
        if budget is not None:
            budget.hold((len(self.items) + 6) * (rounds + 1))
            each = 3 * len(self.items) + 6 * len(self.sizes)
            budget.spend(each * (rounds + 1 + STEP) + STEP * (rounds // shorts.long))
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
            other = self.one[left] if longs else self.only[left]
            shorter = max(self.two[left].item(), other.item(), 0)
            found.append(longs * self.weights.long + shorter)
        return found


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
    never = _MOST if each.dtype == np.int64 else np.inf
    sums = np.vstack([np.zeros((1, n + 1), each.dtype), np.cumsum(each, axis=0)])
    tops = np.arange(1, n + 1)
    spans = sums[tops, tops - 1][None, :] - sums[:, :n]
    spans[np.arange(n + 1)[:, None] >= tops[None, :]] = never
    least = np.full(n + 1, never)
    least[0] = 0
    tables, chosen = [least], []
    for _ in range(min(values, n)):
        options = tables[-1][:, None] + spans
        chosen.append(np.argmin(options, axis=0))
        best = np.minimum(options[chosen[-1], np.arange(n)], never)
        tables.append(np.concatenate([[never], best]))
    totals = np.array(tables) + (sums[n, n] - sums[:, n])[None, :]
    table, top = np.unravel_index(int(np.argmin(totals)), totals.shape)
    rounded, at = np.full(n, n), int(top)
    for number in range(int(table) - 1, -1, -1):
        below = int(chosen[number][at - 1])
        rounded[below:at] = at - 1
        at = below
    return Rounded(totals[table, top].item(), rounded)


def least_weight(
    shorts: Shorts, weights: Weights, places: int, windows: int
) -> tuple[Rounded, Rounded, float]:
    """Return the least weight by role and by window, how it is reached, and that of all longs."""
    other = np.minimum(weights.middle, weights.single)
    by_role = lightest(shorts, weights.end, other, places)
    by_window = lightest(shorts, weights.window, None, windows)
    return by_role, by_window, shorts.longs * weights.long


def too_few(shorts: Shorts, weights: Weights, stages: int, rounds: int, contents: Contents) -> bool:
    """Whether so many stages need more rounds than these (the contents are of as many or more)."""
    known = shorts.places(stages, rounds)
    if known is None:
        return False
    by_role, by_window, longs = least_weight(shorts, weights, *known)
    total = by_role.total + by_window.total + longs
    return total > shorts.clients * max(contents.by_longs(rounds))


def proven_rounds(
    rounds: list[int], clients: int, entries: list[dict[str, Any]], budget: Budget
) -> list[tuple[int, int]]:
    """Return all claims (stages, rounds) of the entries; ``ValueError`` if one is not proven."""
    shorts = Shorts.of(np.array(rounds, np.int64), clients)
    if shorts is None:
        raise ValueError("there is nothing to prove")
    n, found = len(shorts.sizes), []
    for entry in entries:
        weights = Weights.read(entry, n)
        heaviest = max(entry[name][-1] for name in ("end", "middle", "single", "window"))
        if max(heaviest, weights.long) * len(rounds) >= _LARGEST_SUM:
            raise ValueError("weights are beyond what is verified")
        for stages, needed in entry["proves"]:
            budget.spend(2 * n * n * (min(2 * stages, n) + n) + n * STEP)
            contents = Contents(shorts, weights, needed - 1, budget)
            if not too_few(shorts, weights, stages, needed - 1, contents):
                raise ValueError(f"it is not proven that {stages} stages need {needed} rounds")
            found.append((stages, needed))
    return found
