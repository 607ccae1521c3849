"""Echo's estimators: the time of a step and the memory of interactive requests."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, cast

from orsched.calibration.fit import fit
from orsched.calibration.measurements import DECODE, MIXED, PREFILL, Measurements
from orsched.common.units import NS_PER_S
from orsched.costs import mixed_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs import CostModel
    from orsched.costs.pooling import PoolingCost

ROUND_SIZES = (1, 4, 16, 64)
"""Requests in a measured round, as far as the worker has clients."""

MOST_LENGTHS = 12


def micro_benchmarks(cost: CostModel, clients: int, longest: int) -> Measurements:
    """Return the steps that the time estimator is fitted to, measured on a cost model.

    Echo says no more than that micro-benchmarks were run: here single prompts of lengths that
    double up to the longest, rounds of 1 to 64 equal contexts of these lengths and rounds of which
    one context is the longest, and each chunk of at most 2,048 tokens beside each of these rounds.

    Args:
        cost: what is measured.
        clients: most requests of a round.
        longest: longest prompt.
    """
    longest = max(1, longest)
    lengths = [longest]
    while lengths[0] > 32 and len(lengths) < MOST_LENGTHS:
        lengths.insert(0, lengths[0] // 2)
    rounds = [
        (count, total, most)
        for count in ROUND_SIZES
        if count <= clients
        for length in lengths
        for total, most in ((count * length, length), ((count - 1) * length + longest, longest))
    ]
    rows: list[tuple[str, int, int, int, int, int, int]] = [
        (PREFILL, 1, max(1, cost.prefill_ns([x])), x, x, 0, 0) for x in lengths
    ]
    rows += [(DECODE, n, max(1, cost.round_ns(n, s, m)), 0, 0, s, m) for n, s, m in rounds]
    rows += [
        (MIXED, n, max(1, mixed_ns(cost, [x], n, s, m)), x, x, s, m)
        for n, s, m in rounds
        for x in lengths
        if x <= 2048
    ]
    columns: Sequence[Sequence[int]] = list(zip(*(row[1:] for row in rows), strict=True))
    return Measurements([row[0] for row in rows], *columns)


def fitted_time(cost: CostModel, clients: int, longest: int) -> PoolingCost:
    """Return eq. (6)-(8) fitted to micro-benchmarks on a cost model."""
    rows = micro_benchmarks(cost, clients, longest)
    return cast("PoolingCost", fit("pooling", rows, holdout=0.0).cost)


class PoolingTime:
    """Eq. (6)-(8) as the time of a step."""

    def __init__(self, cost: PoolingCost) -> None:
        self.cost = cost

    def step_ns(
        self,
        chunks: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Return the estimated time of a step; 0 for one with nothing in it.

        Eq. (6) has the length of a chunk and not what is cached before it.
        """
        if not chunks and not active:
            return 0
        return self.cost.mixed_ns(chunks, active, context_sum, context_max)


class MemoryForecast:
    """Memory of interactive requests to come: mu + k sigma over a window of the past (5.3).

    The mean and the deviation are over time: what was seen at one moment holds until the next.
    Before anything was seen the forecast is 0.

    Args:
        window_s: length of the past that counts.
        sigmas: k.
    """

    def __init__(self, window_s: float, sigmas: float) -> None:
        self.window_ns = round(window_s * NS_PER_S)
        self.sigmas = sigmas
        self.seen: deque[tuple[int, int]] = deque()  # from when, how much
        self.weight = self.sum = self.squares = 0

    def see(self, now_ns: int, blocks: int) -> None:
        """Take note of the memory at a moment, not before those of earlier calls."""
        seen = self.seen
        if seen and seen[-1][1] != blocks:
            self._add(seen[-1], now_ns)
        if not seen or seen[-1][1] != blocks:
            seen.append((now_ns, blocks))
        while len(seen) > 1 and seen[1][0] <= now_ns - self.window_ns:
            self._add(seen.popleft(), seen[0][0], -1)

    def _add(self, span: tuple[int, int], end_ns: int, sign: int = 1) -> None:
        length, value = sign * (end_ns - span[0]), span[1]
        self.weight += length
        self.sum += length * value
        self.squares += length * value * value

    def blocks(self, now_ns: int) -> int:
        """Return mu + k sigma, rounded up to whole blocks."""
        if not self.seen:
            return 0
        since, value = self.seen[-1]
        last = now_ns - since
        weight = self.weight + last
        if weight <= 0:
            return value
        mean = (self.sum + last * value) / weight
        variance = (self.squares + last * value * value) / weight - mean * mean
        return math.ceil(mean + self.sigmas * math.sqrt(max(0.0, variance)) - 1e-9)
