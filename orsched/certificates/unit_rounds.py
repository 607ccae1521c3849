"""What prices of rounds prove about all schedules of the unit-round model without evictions.

Two kinds of rows hold for every such schedule, and a price of each makes a bound on the sum of
starts: who starts when pays for the rows that it is in, and each request does so as cheaply as it
can (Lagrange). Memory: in round t the tokens held are at most M. Levels k = 1, 2, 3: with
theta = M / (k + 1), a request of peak p = s + o > c theta that ends at e counts c times in the row
at t if ``e - t < p - c theta`` and ``t - e < (p - c theta) / (k + 1 - c)``, and t - e is at most
theta less the longest prompt; these counts sum to at most k.

Proof. Let them sum to more, a be the request that ends first, B the fewest others whose counts are
at least k + 1 - c(a) together, so that they are no more than that in number. Each b of B still
runs when a ends, as e(b) - e(a) < p(b) - longest prompt. Then it holds p(b) - (e(b) - e(a)), more
than c(b) theta - (t - e(a)). With those of a they are more than p(a) + (k + 1 - c(a)) theta -
(k + 1 - c(a)) max(t - e(a), 0) tokens, and so more than M, as (k + 1 - c(a)) (t - e(a)) is less
than p(a) - c(a) theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

GRID = 4
"""Level rows in a round: at t = q / GRID for whole q."""
_MOST = 2**60
"""Sums of prices times tokens stay below it, and so within 64 bits."""


@dataclass(frozen=True)
class UnitRounds:
    """The requests of an instance, in rounds, and the memory.

    Attributes:
        prompts: s, prompt tokens of each request.
        outputs: o, output tokens of each.
        arrivals: a, the round before which each cannot start.
        memory: M, in tokens; each request fits alone.
    """

    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    arrivals: tuple[int, ...]
    memory: int

    def __len__(self) -> int:
        return len(self.prompts)


@dataclass(frozen=True)
class Prices:
    """Prices of rows, in parts of a round.

    Attributes:
        scale: parts of a round.
        memory: by round from 0 on, of a token in it.
        levels: by k, of a count in the row at q / GRID, by q from 0 on.
    """

    scale: int
    memory: tuple[int, ...]
    levels: dict[int, tuple[int, ...]]


def levels_of(problem: UnitRounds) -> list[int]:
    """Return the levels k whose rows hold: theta is no less than the longest prompt."""
    longest = max(problem.prompts, default=0)
    return [k for k in (1, 2, 3) if problem.memory >= (k + 1) * longest]


def windows(problem: UnitRounds, i: int, k: int) -> Iterator[tuple[int, int]]:
    """Yield for each count of a request the first and the last q, less GRID times its end."""
    peak = problem.prompts[i] + problem.outputs[i]
    room = GRID * (problem.memory - (k + 1) * max(problem.prompts))
    for c in range(1, k + 1):
        over = GRID * ((k + 1) * peak - c * problem.memory)
        if over > 0:
            after = min((over - 1) // ((k + 1) * (k + 1 - c)), room // (k + 1))
            yield -((over - 1) // (k + 1)), after


def costs(problem: UnitRounds, prices: Prices, rounds: int) -> NDArray[np.int64]:
    """Return what each request pays for each start before ``rounds``, its start included.

    Rows beyond the prices' ends cost nothing.

    Raises:
        ValueError: a price is no whole number from 0 on, too great, or of a row that is none.
    """
    _check(problem, prices)
    reach = rounds + max(problem.outputs, default=0) + 1
    held = _padded(prices.memory, reach)
    found = np.tile(np.arange(rounds, dtype=np.int64) * prices.scale, (len(problem), 1))
    sums = {k: np.concatenate([[0], np.cumsum(prices.levels[k])]) for k in prices.levels}
    for i, (prompt, output) in enumerate(zip(problem.prompts, problem.outputs, strict=True)):
        tokens = prompt + np.arange(1, output + 1)
        found[i] += np.correlate(held[1 : rounds + output], tokens, "valid")
        ends = GRID * (np.arange(rounds) + output)
        for k, total in sums.items():
            for first, last in windows(problem, i, k):
                low = (ends + first).clip(0, len(total) - 1)
                found[i] += total[(ends + last + 1).clip(low, len(total) - 1)] - total[low]
    return found


def constant(problem: UnitRounds, prices: Prices) -> int:
    """Return what all rows are worth: prices times what their sums are at most."""
    return problem.memory * sum(prices.memory) + sum(
        k * sum(row) for k, row in prices.levels.items()
    )


def bound(problem: UnitRounds, prices: Prices) -> int:
    """Return a number of rounds that the sum of starts is at least, in every schedule.

    Raises:
        ValueError: a price is no whole number from 0 on, too great, or of a row that is none.
    """
    _check(problem, prices)
    if not (prices.memory or prices.levels):
        return sum(problem.arrivals)
    rounds = max(len(prices.memory), max(problem.arrivals, default=0)) + 1
    table = costs(problem, prices, rounds)  # later starts pay more: nothing but the start
    least = 0
    for row, arrival in zip(table, problem.arrivals, strict=True):
        least += min(int(row[arrival:].min()), prices.scale * rounds)
    return max(-((constant(problem, prices) - least) // prices.scale), sum(problem.arrivals))


def _check(problem: UnitRounds, prices: Prices) -> None:
    if type(prices.scale) is not int or not 0 < prices.scale < _MOST:
        raise ValueError("the scale is no positive whole number")
    if not set(prices.levels) <= set(levels_of(problem)):
        raise ValueError("a level's rows do not hold")
    for row in (prices.memory, *prices.levels.values()):
        if any(type(price) is not int or price < 0 for price in row):
            raise ValueError("a price is no whole number from 0 on")
        if sum(row) * max(problem.memory, 1) >= _MOST:
            raise ValueError("prices are too great")


def _padded(prices: Sequence[int], length: int) -> NDArray[np.int64]:
    held = np.zeros(length, np.int64)
    held[: min(length, len(prices))] = prices[:length]
    return held
