"""The packing problem by sizes, and the patterns (contents of one client) that are worth most. A
pattern at capacity C holds at most C, and at least C minus the slack (J C minus all the work): a
client that wastes more than the slack cannot be part of a packing. Exact, by dynamic programming
over loads in numpy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


Ints = np.ndarray[Any, np.dtype[np.int64]]

LARGEST_TABLE = 30_000_000
"""Most cells of a table with one row per item; beyond it, patterns are not priced."""

_NEVER = -(2**29)
_LARGEST_VALUE = 2**27


class Window(NamedTuple):
    """Loads that a client may have."""

    low: int
    high: int


class Items(NamedTuple):
    """Copies of the sizes, as far as a client can hold them: size index and size of each."""

    kind: Ints
    size: Ints


def items_of(sizes: Ints, counts: Ints, capacity: int) -> Items:
    """Return min(count, capacity // size) copies of each size."""
    copies = np.minimum(counts, capacity // sizes)
    kind = np.repeat(np.arange(len(sizes)), copies)
    return Items(kind, sizes[kind])


def table_cells(sizes: Ints, counts: Ints, capacity: int) -> int:
    """Return the cells of the tables that ``price`` builds."""
    return (int(np.minimum(counts, capacity // sizes).sum()) + 1) * (capacity + 1)


def best_value(items: Items, duals: Ints, window: Window) -> int | None:
    """Return the exact largest value of a pattern in the window; None if there is no pattern."""
    best = np.full(window.high + 1, -(2**62), dtype=np.int64)
    best[0] = 0
    for size, value in zip(items.size.tolist(), duals[items.kind].tolist(), strict=True):
        np.maximum(best[size:], best[:-size] + value, out=best[size:])
    top = int(best[max(0, window.low) :].max())
    return top if top >= 0 else None


def scaled(duals: NDArray[np.float64], items: Items, capacity: int) -> Ints:
    """Return duals as integers, as large as no pattern's value leaves 32 bits."""
    most = 1.0
    if len(items.size):
        # A pattern is worth at most its best value per unit of load.
        most = max(1.0, float((duals[items.kind] / items.size).max()) * capacity)
    scale = float(2 ** int(np.log2(_LARGEST_VALUE / most)))
    return np.floor(duals * scale).astype(np.int64)


class Priced(NamedTuple):
    """The best value (None: no pattern) and best patterns through sizes, by falling value."""

    best: int | None
    values: Ints
    patterns: Ints


class Pricer:
    """Prices at one capacity; keeps its tables between calls."""

    def __init__(self) -> None:
        self._before = np.empty((0, 0), dtype=np.int32)
        self._after = np.empty((0, 0), dtype=np.int32)

    def price(self, items: Items, duals: Ints, window: Window, kinds: int, most: int) -> Priced:
        """Return, for each of up to ``most`` sizes, a pattern of greatest value with that size.
        ``before[k][c]`` is the best value of load c out of the first k items, ``after[k][c]`` the
        best that items k onwards add to load c such that the sum ends in the window. Both together
        give the best pattern through each item."""
        before, after = self._fill(items, duals, window)
        values = duals[items.kind].tolist()
        if after[0, 0] < 0:
            return Priced(None, np.empty(0, np.int64), np.empty((0, kinds), np.int64))
        firsts = np.flatnonzero(np.diff(items.kind, prepend=-1))
        if len(firsts) > most:  # spread over the sizes; the best pattern of all is always there
            firsts = firsts[np.linspace(0, len(firsts) - 1, most).astype(np.int64)]
        return _through(items, values, before, after, firsts, kinds)

    def after(self, items: Items, duals: Ints, window: Window) -> NDArray[np.int32]:
        """Return the table of what items onwards add to a load; valid until the next call."""
        return self._fill(items, duals, window)[1]

    def _fill(
        self, items: Items, duals: Ints, window: Window
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        count, high = len(items.size), window.high
        if self._before.shape[0] <= count or self._before.shape[1] != high + 1:
            self._before = np.empty((count + 1, high + 1), dtype=np.int32)
            self._after = np.empty((count + 1, high + 1), dtype=np.int32)
        before, after = self._before[: count + 1], self._after[: count + 1]
        values = duals[items.kind].astype(np.int32).tolist()
        _fill(before, after, items.size.tolist(), values, max(0, window.low))
        return before, after


def _fill(
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    sizes: list[int],
    values: list[int],
    low: int,
) -> None:
    count, high = len(sizes), before.shape[1] - 1
    before[0] = _NEVER
    before[0, 0] = 0
    after[count] = _NEVER
    after[count, low:] = 0
    for k, (size, value) in enumerate(zip(sizes, values, strict=True)):
        row, old = before[k + 1], before[k]
        row[:size] = old[:size]
        with_item = row[size:]
        np.add(old[: high + 1 - size], value, out=with_item)
        np.maximum(with_item, old[size:], out=with_item)
    for k in range(count - 1, -1, -1):
        row, old, size = after[k], after[k + 1], sizes[k]
        row[high + 1 - size :] = old[high + 1 - size :]
        with_item = row[: high + 1 - size]
        np.add(old[size:], values[k], out=with_item)
        np.maximum(with_item, old[: high + 1 - size], out=with_item)


def _through(
    items: Items,
    values: list[int],
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    firsts: Ints,
    kinds: int,
) -> Priced:
    """Rebuild the best pattern through each of some items, and the best of all, side by side."""
    sizes, high = items.size.tolist(), before.shape[1] - 1
    count = len(sizes)
    middle = np.zeros(len(firsts) + 1, dtype=np.int64)
    worth = np.full(len(firsts) + 1, int(after[0, 0]), dtype=np.int64)
    for i, k in enumerate(firsts.tolist(), start=1):
        total = before[k, : high + 1 - sizes[k]] + after[k + 1, sizes[k] :]
        middle[i] = at = int(total.argmax())
        worth[i] = int(total[at]) + values[k]
    usable = np.flatnonzero(worth >= 0)
    usable = usable[np.argsort(-worth[usable], kind="stable")]
    # The best of all starts at load 0 before the first item and needs no item of its own.
    at_item = np.concatenate([[-1], firsts])[usable]
    middle, worth = middle[usable], worth[usable]
    patterns = np.zeros((kinds, len(usable)), dtype=np.int64)
    own = np.flatnonzero(at_item >= 0)
    patterns[items.kind[at_item[own]], own] = 1
    load = middle.copy()
    kinds_of = items.kind.tolist()
    for k in range(int(at_item.max()) - 1, -1, -1):
        some = np.flatnonzero((at_item > k) & (load >= sizes[k]))
        taken = some[before[k + 1, load[some]] != before[k, load[some]]]
        patterns[kinds_of[k], taken] += 1
        load[taken] -= sizes[k]
    load = middle + np.where(at_item >= 0, items.size[np.maximum(at_item, 0)], 0)
    for k in range(count):
        some = np.flatnonzero(at_item < k)
        taken = some[after[k, load[some]] != after[k + 1, load[some]]]
        patterns[kinds_of[k], taken] += 1
        load[taken] += sizes[k]
    return Priced(int(after[0, 0]), worth, patterns.T)


def patterns_worth(
    pricer: Pricer, items: Items, duals: Ints, window: Window, kinds: int, least: int, limit: int
) -> Ints | None:
    """Return all patterns in the window worth at least ``least``, None beyond a limit. Item by
    item, all partial patterns side by side; one is kept as long as ``after`` says that it can still
    reach ``least``. A second copy of a size is taken only after the first."""
    after = pricer.after(items, duals, window)
    load, worth = np.zeros(1, np.int64), np.zeros(1, np.int64)
    node, whole = np.zeros(1, np.int64), np.ones(1, dtype=bool)
    parents, taken_kind, nodes = [np.zeros(1, np.int64)], [np.full(1, -1)], 1
    kind_of, size_of = items.kind.tolist(), items.size.tolist()
    value_of = duals[items.kind].tolist()
    for k, (kind, size, value) in enumerate(zip(kind_of, size_of, value_of, strict=True)):
        if k and kind != kind_of[k - 1]:
            whole = np.ones(len(load), dtype=bool)
        fits = np.flatnonzero(whole & (load + size <= window.high))
        take = fits[worth[fits] + value + after[k + 1, load[fits] + size] >= least]
        keep = np.flatnonzero(worth + after[k + 1, load] >= least)
        if len(take) + len(keep) > limit:
            return None
        parents.append(node[take])
        taken_kind.append(np.full(len(take), kind))
        fresh = np.arange(nodes, nodes + len(take))
        nodes += len(take)
        whole = np.concatenate([np.ones(len(take), dtype=bool), np.zeros(len(keep), dtype=bool)])
        load = np.concatenate([load[take] + size, load[keep]])
        worth = np.concatenate([worth[take] + value, worth[keep]])
        node = np.concatenate([fresh, node[keep]])
    patterns = np.zeros((len(node), kinds), dtype=np.int64)
    parent, kind_at = np.concatenate(parents), np.concatenate(taken_kind)
    rows = np.flatnonzero(node)
    while len(rows):
        np.add.at(patterns, (rows, kind_at[node[rows]]), 1)
        node[rows] = parent[node[rows]]
        rows = rows[node[rows] > 0]
    return patterns


@dataclass(frozen=True, eq=False)
class Problem:
    """Sizes (falling, positive) with their counts, onto a number of identical clients. Clients of
    different speed would turn the window of a capacity into one window a client."""

    sizes: Ints
    counts: Ints
    clients: int

    @classmethod
    def of(cls, jobs: Sequence[int], clients: int) -> Problem:
        """Return the problem of some positive jobs."""
        sizes, counts = np.unique(np.array(jobs, dtype=np.int64), return_counts=True)
        return cls(sizes[::-1].copy(), counts[::-1].astype(np.int64), clients)

    @cached_property
    def total(self) -> int:
        """All the work."""
        return int(self.sizes @ self.counts)

    def slack(self, capacity: int) -> int:
        """Return what all clients together may waste at a capacity."""
        return self.clients * capacity - self.total

    def window(self, capacity: int) -> Window:
        """Return the loads that a client can have in a packing within a capacity."""
        return Window(capacity - self.slack(capacity), capacity)

    def certificate(self, capacity: int, duals: Ints, kind: str) -> dict[str, Any]:
        """Return the certificate that a capacity is too small: ``dual`` or ``cover``."""
        pairs = [[int(s), int(d)] for s, d in zip(self.sizes, duals, strict=True) if d]
        return {"bound": kind, "value": capacity + 1, "duals": pairs}

    def less(self, pattern: Ints, times: int) -> Problem:
        """Return what is left when some clients hold a pattern (as far as there are jobs)."""
        return Problem(
            self.sizes, np.maximum(self.counts - times * pattern, 0), self.clients - times
        )
