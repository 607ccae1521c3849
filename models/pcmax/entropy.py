"""Patterns drawn at random, each job as often in them as it must be.

Each job j gets a weight u_j, a pattern the product of its jobs' weights. Iterated scaling makes
J times the share of the patterns with j equal to 1 (the distribution of greatest entropy that
covers the jobs on average); exact, by dynamic programming over loads as in the pricing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.pcmax.knapsack import items_of, table_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.models.pcmax.problem import Problem

Patterns = np.ndarray[Any, np.dtype[np.int16]]

LARGEST_TABLE = 8_000_000
"""Most cells of the table of partial sums (8 bytes each)."""

_SCALINGS = 12
_DAMPING = 0.7
_LEAST = 1e-30


class Entropy:
    """The distribution of greatest entropy over the patterns of one capacity."""

    def __init__(self, problem: Problem, capacity: int) -> None:
        self.problem, self.capacity = problem, capacity
        items = items_of(problem.sizes, problem.counts, capacity)
        self._kind, self._size = items.kind, items.size.tolist()
        self._log = np.zeros(len(problem.sizes))
        mean = problem.slack(capacity) / problem.clients
        low = max(0, problem.window(capacity).low, capacity - int(8 * mean) - 3)
        self._low = low
        # Waste is drawn as if geometric, with the mean that there must be.
        waste = capacity - np.arange(low, capacity + 1)
        self._last = np.exp(-np.log1p(1 / (mean + 0.05)) * waste)
        self._table = np.empty((len(self._size) + 1, capacity + 1))

    @staticmethod
    def fits(problem: Problem, capacity: int) -> bool:
        """Whether the table is small enough."""
        return table_cells(problem.sizes, problem.counts, capacity) <= LARGEST_TABLE

    def fit(self, scalings: int = _SCALINGS) -> bool:
        """Scale the weights; False if no pattern holds some job."""
        counts, clients = self.problem.counts, self.problem.clients
        there = counts > 0
        for _ in range(scalings):
            self._forward()
            share = np.bincount(self._kind, self._shares(), minlength=len(counts))[there]
            if not (share > 0).all() or not np.isfinite(share).all():
                return False
            expected = np.maximum(share * clients, _LEAST)
            self._log[there] -= _DAMPING * np.log(expected / counts[there])
        return True

    def draw(self, number: int, rng: np.random.Generator) -> Patterns:
        """Return the different ones of a number of patterns drawn, as counts of each size."""
        self._forward()
        table, low, weights = self._table, self._low, self._weights()
        sums = np.cumsum(table[-1, low:] * self._last)
        load = low + np.searchsorted(sums, rng.random(number) * sums[-1])
        load = np.minimum(load, self.capacity)
        patterns = np.zeros((number, len(self._log)), dtype=np.int16)
        for k in range(len(self._size) - 1, -1, -1):
            before = load - self._size[k]
            with_item = np.where(before >= 0, weights[k] * table[k, np.maximum(before, 0)], 0.0)
            take = rng.random(number) * table[k + 1, load] < with_item
            patterns[take, self._kind[k]] += 1
            load = np.where(take, before, load)
        # Equal patterns have equal keys; different ones have not, but for a vanishing chance.
        _, first = np.unique(patterns @ rng.random(patterns.shape[1]), return_index=True)
        different: Patterns = patterns[first]
        return different

    def _weights(self) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = np.exp(self._log)[self._kind]
        return weights

    def _forward(self) -> None:
        """Fill row k with the weight of each load out of the first k items."""
        table = self._table
        table[0] = 0.0
        table[0, 0] = 1.0
        for k, (size, weight) in enumerate(zip(self._size, self._weights().tolist(), strict=True)):
            old, row = table[k], table[k + 1]
            row[:size] = old[:size]
            np.multiply(old[:-size], weight, out=row[size:])
            row[size:] += old[size:]

    def _shares(self) -> NDArray[np.float64]:
        """Return the share of the patterns that hold each item."""
        table, capacity = self._table, self.capacity
        after, with_item = np.zeros(capacity + 1), np.empty(capacity + 1)
        after[self._low :] = self._last
        total = float((table[-1] * after).sum())  # no @: its threads wait for one another
        shares, weights = np.zeros(len(self._size)), self._weights().tolist()
        for k in range(len(self._size) - 1 if total > 0 else -1, -1, -1):
            size, row = self._size[k], with_item[: capacity + 1 - self._size[k]]
            np.multiply(after[size:], weights[k], out=row)
            after[:-size] += row
            row *= table[k, :-size]
            shares[k] = float(row.sum()) / total
        return shares
