"""A lower bound on stages and rounds together: few stages end requests at few moments.

A client gets its next request at a stage. So between the stage that prefills a request and the
first stage after its end (or the end of all) its client serves nobody else: a *window*. K stages
have at most K (K + 1) / 2 windows of different lengths, and every request's rounds are rounded
up to one of these. The cheapest rounding is bounded from below by a price for each length used.
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.costs import AffineCost, LevelsCost
from orsched.models.floors import decode_floor, prefill_floor

if TYPE_CHECKING:
    from orsched.models.counts import Jobs
    from orsched.workers import Worker

MAX_REQUESTS, MAX_WORK, MAX_ROUNDS_IN_ALL = 2_000, 12_000, 2**60


def joint_certificate(worker: Worker, jobs: Jobs, plain: dict[str, Any]) -> dict[str, Any] | None:
    """Return the certificate of the joint bound, given that by stages and rounds each alone.

    None where it cannot improve (so many windows as there are lengths), where the cost model has
    no fixed parts to trade, or where it would take long. ``prices`` are of K, K + 1, ... stages;
    for more of them than are listed the time of the stages and the rounds alone suffices.
    """
    lengths, counts = np.unique(jobs.rounds[jobs.rounds > 0], return_counts=True)
    fewest, n = plain["prefill_stages"]["value"], len(lengths)
    trials = isqrt(2 * n) + 1 - fewest
    if not isinstance(worker.cost, AffineCost | LevelsCost) or len(jobs) > MAX_REQUESTS:
        return None
    if windows(fewest) >= n or n * trials > MAX_WORK:
        return None
    if int(lengths[-1]) * len(jobs) > MAX_ROUNDS_IN_ALL:
        return None
    rounding = Rounding(lengths.tolist(), counts.tolist())
    prices, best = _prices(worker, jobs, plain, rounding)
    kept = {key: value for key, value in plain.items() if key not in ("prefill_ns", "decode_ns")}
    value = plain["released_ns"] + best
    return kept | {"bound": "joint", "prices": prices, "value_ns": value}


def windows(stages: int) -> int:
    """Most different lengths of windows: from a stage to a later one, or to the end."""
    return stages * (stages + 1) // 2


def _prices(
    worker: Worker, jobs: Jobs, plain: dict[str, Any], rounding: Rounding
) -> tuple[list[int], int]:
    """Return the price of each number of stages that matters, and the least time of all."""
    stages, rounds = plain["prefill_stages"]["value"], plain["decode_rounds"]["value"]
    decode_alone = decode_floor(worker.cost, jobs, rounds)
    prices: list[int] = []
    best: int | None = None
    while True:
        prefill = prefill_floor(worker.cost, jobs, stages)
        enough = windows(stages) >= len(rounding.lengths)
        if enough or (best is not None and prefill + decode_alone >= best):
            alone = prefill + decode_alone
            return prices, alone if best is None else min(best, alone)
        price, extra = rounding.best_price(windows(stages), prices[-1] if prices else None)
        prices.append(price)
        needed = max(rounds, -(-(plain["rounds_needed"] + extra) // jobs.clients))
        time = prefill + decode_floor(worker.cost, jobs, needed)
        best = time if best is None else min(best, time)
        stages += 1


class Rounding:
    """Round lengths up to few values at the least cost in client-rounds.

    The cost is convex in the number of values (its increments satisfy the Monge condition), so a
    whole price for each value finds the least cost for every number of them.
    """

    def __init__(self, lengths: list[int], counts: list[int]) -> None:
        """Take different lengths, ascending, and how many requests have each."""
        self.lengths = lengths
        self.requests = [0, *accumulate(counts)]
        weights = (a * b for a, b in zip(lengths, counts, strict=True))
        self.volume = [0, *accumulate(weights)]

    def best_price(self, values: int, at_most: int | None = None) -> tuple[int, int]:
        """Return a price, and the least cost of rounding to so many values or fewer.

        ``at_most``: a price that is known to be enough, such as that for fewer values.
        """
        low, high = 0, at_most
        if high is None:
            high = self.lengths[-1] * self.requests[-1]
        while low < high:
            middle = (low + high) // 2
            if self.priced(middle)[1] <= values:
                high = middle
            else:
                low = middle + 1
        return low, self.priced(low)[0] - low * values

    def priced(self, price: int) -> tuple[int, int]:
        """Return the least cost with a price for each value, and the fewest values that reach it.

        Rounding up to a length is a line in it for each length rounded to before: slopes fall
        while the queries grow, so the lines that can be best form a queue.
        """
        unit = len(self.lengths) + 1  # cost * unit + values: the fewest values among equal costs
        lines: deque[tuple[int, int]] = deque()
        cost = 0
        for i, length in enumerate(self.lengths):
            _append(lines, -self.requests[i] * unit, cost + self.volume[i] * unit)
            while len(lines) > 1 and _at(lines[1], length) <= _at(lines[0], length):
                lines.popleft()
            fixed = length * self.requests[i + 1] - self.volume[i + 1] + price
            cost = _at(lines[0], length) + fixed * unit + 1
        return divmod(cost, unit)


def _at(line: tuple[int, int], x: int) -> int:
    return line[0] * x + line[1]


def _append(lines: deque[tuple[int, int]], slope: int, height: int) -> None:
    """Append a line of smaller slope; drop those before it that are nowhere least."""
    while len(lines) > 1:
        (s1, h1), (s2, h2) = lines[-2], lines[-1]
        if (height - h1) * (s1 - s2) > (h2 - h1) * (s1 - slope):
            break
        lines.pop()
    lines.append((slope, height))
