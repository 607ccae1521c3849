"""What the prompts that start at one moment take, by their tokens or by their number.

At one moment several stages may follow each other, so tokens take the time of the cheapest stages
that hold them together; under the affine cost, of as many as the cap makes necessary. While the
moves search, it is not known which request starts where: they use a price by the number of starts.
Swaps will fill one stage and empty another down to a level, so the price of a number of tokens lies
on the line between those of two numbers near it: the least such one, a lower convex hull.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn

SPREAD = 0.3
"""The tokens of a stage may be more or less than those of mean prompts by this share."""
LATE_SPREAD = 0.03
"""The same where only requests of about equal lengths can be exchanged."""


@dataclass(frozen=True)
class Prices:
    """Times by tokens and by starts.

    Attributes:
        levels: capacity and time of each level.
        least_ns: least time of stages that hold 0, 1, ... tokens.
        choice: the level of one of these stages.
        unit_ns: nanoseconds a unit of ``by_starts``: a round's time on one client.
        by_starts: price of 0, 1, ... starts at one moment.
        late: the same after the last moment at which a longest request can start.
        by_tokens: whether these are token rows: one level, which the clients' prompts overfill.
    """

    levels: tuple[tuple[int, int], ...]
    least_ns: IntColumn
    choice: IntColumn
    unit_ns: int
    by_starts: list[int]
    late: list[int]
    by_tokens: bool

    def stages_of(self, tokens: int) -> list[int]:
        """Return the capacities of the cheapest stages that hold these tokens, largest first."""
        found = []
        while tokens > 0:
            found.append(self.levels[int(self.choice[tokens])][0])
            tokens -= found[-1]
        return sorted(found, reverse=True)

    def divide(self, requests: Sequence[int], prompts: IntColumn) -> list[list[int]]:
        """Divide requests that start at one moment into stages, the smallest ones filled first."""
        left = list(requests)
        parts: list[list[int]] = []
        while True:
            caps = self.stages_of(sum(int(prompts[request]) for request in left))
            if len(caps) < 2:
                return [*parts, left] if left else parts
            part = _fullest(left, prompts, caps[-1]) or _fullest(left, prompts, self.levels[-1][0])
            parts.append(part)
            left = [request for request in left if request not in part]


def _fullest(requests: Sequence[int], prompts: IntColumn, cap: int) -> list[int]:
    """Return requests whose prompts fill a capacity best: a subset sum."""
    reached, within = [1], (1 << (cap + 1)) - 1
    for request in requests:
        reached.append((reached[-1] | reached[-1] << int(prompts[request])) & within)
    tokens, part = reached[-1].bit_length() - 1, []
    for k in range(len(requests) - 1, -1, -1):
        if not reached[k] >> tokens & 1:
            part.append(requests[k])
            tokens -= int(prompts[requests[k]])
    return part[::-1]


def prices_of(
    levels: Sequence[tuple[int, int]],
    prompts: IntColumn,
    clients: int,
    round_ns: int,
    lengths: IntColumn | None = None,
) -> Prices:
    """Return the prices for a number of clients: no more requests start at one moment.

    ``lengths``: rounds of the requests, by which those of one level are priced as token rows.
    """
    most = min(clients, len(prompts))
    ordered = np.sort(prompts)
    shortest, longest = np.cumsum(ordered), np.cumsum(ordered[::-1])
    least, choice = _cover(levels, int(longest[most - 1]))
    unit = max(1, round_ns // clients)
    mean = float(prompts.mean())
    by_starts = [0]
    for count in range(1, most + 1):
        few = max(int(shortest[count - 1]), int(count * mean * (1 - SPREAD)))
        many = min(int(longest[count - 1]), math.ceil(count * mean * (1 + SPREAD)))
        by_starts.append(round(_hull(least, few, many, count * mean) / unit))
    late, by_tokens = by_starts, False
    if len(levels) == 1 and lengths is not None and most * mean > levels[0][0]:
        by_tokens = True
        spread = _exchange_spread(prompts, lengths)
        by_starts = _token_row(least, prompts, most, unit, *spread)
        late = _token_row(least, prompts, most, unit, 1 - LATE_SPREAD, 1 + LATE_SPREAD)
    return Prices(tuple(levels), least, choice, unit, by_starts, late, by_tokens)


def _exchange_spread(prompts: IntColumn, lengths: IntColumn) -> tuple[float, float]:
    """Return how little and how much the tokens of a stage can be, over those of mean prompts.

    Longest requests can be exchanged between any two stages: one has the half of them with short
    prompts, another that with long ones.
    """
    longest = np.sort(prompts[lengths == lengths.max()])
    half, share = len(longest) // 2, len(longest) / len(prompts)
    if half == 0:
        return 1 - LATE_SPREAD, 1 + LATE_SPREAD
    few, many = (
        float(part.mean()) / float(prompts.mean()) for part in (longest[:half], longest[half:])
    )
    few, many = 1 + share * (few - 1), 1 + share * (many - 1)
    return min(few, 1 - LATE_SPREAD), max(many, 1 + LATE_SPREAD)


def _token_row(
    least: IntColumn, prompts: IntColumn, most: int, unit: int, low: float, high: float
) -> list[int]:
    """Return prices of 0, 1, ... starts whose tokens are a share of mean prompts, low to high.

    Tokens that one stage does not have another has, at the price of a token in a full stage: so a
    stage costs its tokens at that price, and what its least waste takes.
    """
    tokens = np.arange(len(least))
    token_ns = float((least[1:] / tokens[1:]).min())
    waste, mean = least - token_ns * tokens, float(prompts.mean())
    ordered = np.sort(prompts)
    shortest, longest = np.cumsum(ordered), np.cumsum(ordered[::-1])
    prices = [0]
    for count in range(1, most + 1):
        few = max(int(shortest[count - 1]), int(count * mean * low))
        many = min(int(longest[count - 1]), math.ceil(count * mean * high))
        wasted = float(waste[few : max(few, many) + 1].min())
        prices.append(round((wasted + token_ns * count * mean) / unit))
    return prices


def _hull(times: IntColumn, few: int, many: int, at: float) -> float:
    """Return the least value at a point on lines between times of few and of many tokens."""
    steps = few + np.flatnonzero(np.diff(times[few : many + 1]))
    points = np.unique([few, *steps.tolist(), many])
    below, above = points[points <= at], points[points >= at]
    if not len(below) or not len(above):
        return float(times[round(at)])
    width = np.maximum(above[None, :] - below[:, None], 1)
    part = (at - below[:, None]) / width
    return float((times[below][:, None] * (1 - part) + times[above][None, :] * part).min())


def _cover(levels: Sequence[tuple[int, int]], tokens: int) -> tuple[IntColumn, IntColumn]:
    """Return for 0, 1, ... tokens the least time of levels that hold them, and one of these.

    As many tokens at once as the smallest level holds: without any level they are further back.
    """
    least, choice = np.zeros(tokens + 1, np.int64), np.zeros(tokens + 1, np.int64)
    smallest = levels[0][0]
    for first in range(1, tokens + 1, smallest):
        held = np.arange(first, min(first + smallest, tokens + 1))
        times = np.array([least[np.maximum(0, held - cap)] + time for cap, time in levels])
        best = len(levels) - 1 - times[::-1].argmin(axis=0)  # the largest of equal ones
        least[held], choice[held] = times[best, np.arange(len(held))], best
    return least, choice
