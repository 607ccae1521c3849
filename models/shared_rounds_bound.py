"""A search for prices that prove how much requests that arrive over time cost each other.

What follows from the prices is worked out in ``orsched.certificates.shared_rounds``. The search is
that of Frank and Wolfe on the relaxation: shares of all requests' work in windows of time, where
each round is divided among the requests that are in it on average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.shared_rounds import (
    LATE,
    Parts,
    least_costs,
    parts_of,
    shared_rounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from orsched.certificates.scope import Scope
    from orsched.instance import Instance

    Numbers = NDArray[Any]

ITERATIONS, LEVELS, WINDOWS, LOOK_AHEAD = 60, 16, 48, 16
ROWS = 3000
"""Requests up to which all iterations are made: a quarter of a minute on one core."""

LEAST_FREE = 0.3
"""Of a window's time, the share that is left for rounds at least: with less, numbers of those who
meet swing between nothing and all, and where the load is near 1 no prices proved anything."""

MOST_SHARE = 0.95
"""Of what requests cost each other: some price of lateness is always left."""


def shared_rounds_choices(
    instance: Instance, scope: Scope, out_of_time: Callable[[], bool]
) -> dict[str, Any] | None:
    """Return windows, levels and numbers that prove a bound on the sum of JCTs, or None.

    None where nothing is known of these schedules, or no two requests have to share a round.
    """
    try:
        parts = parts_of(instance, scope)
    except ValueError:
        return None
    order = np.lexsort((parts.decode, parts.prefill, parts.arrivals))  # whatever the rows' order
    parts = _taken(parts, order)
    search = _Search(parts)
    best, found = 0.0, None
    for iteration in range(max(12, min(ITERATIONS, ROWS * ITERATIONS // len(instance)))):
        if out_of_time():
            break
        claim = search.claim()
        if claim is None:
            break
        value = search.step(iteration)
        if value > best:
            best, found = value, claim
    if found is None:
        return None
    try:
        shared_rounds(instance, scope, found)
    except ValueError:  # numbers beyond 64 bits
        return None
    return found


def _taken(parts: Parts, order: Numbers) -> Parts:
    columns = ("arrivals", "prefill", "first", "decode", "longest", "token", "tokens")
    taken = {name: getattr(parts, name)[order] for name in columns}
    return Parts(**taken, fixed=parts.fixed, shared=parts.shared, workers=parts.workers)


def windows_of(parts: Parts) -> list[int]:
    """Return the starts of windows: alike while requests arrive, then ever longer."""
    mean = max(1, int(parts.own.mean()))
    last = int(parts.arrivals.max())
    count = max(4, min(WINDOWS, 2 * last // mean))
    starts = [last * k // count for k in range(count)]
    tail = max(mean // 2, last // count, 1)
    for _ in range(8):
        starts.append(starts[-1] + tail)
        tail += tail // 2
    return sorted(set(starts))


def levels_of(parts: Parts) -> list[int]:
    """Return levels of prefill for each round: at equal shares of the rounds."""
    densities = parts.densities()[parts.tokens > 0]
    if not len(densities):
        return []
    found = np.quantile(densities, np.linspace(0, 1, LEVELS + 2)[:-1], method="lower")
    return sorted({int(each) for each in found if each > 0})


def falling(values: Numbers, weights: Numbers) -> Numbers:
    """Return the closest values that never rise: neighbours that rise become their weighted mean.

    A share that is less before than after lowers what later windows pay for prefills.
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        count = 1
        while blocks and blocks[-1][0] < value:
            last, heavy, many = blocks.pop()
            value = (last * heavy + value * weight) / (heavy + weight)
            weight, count = weight + heavy, count + many
        blocks.append((value, weight, count))
    return np.concatenate([np.full(count, value) for value, _, count in blocks])


class _Search:
    """Averages of where requests are served, and the numbers that follow from them."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.starts = parts, np.array(windows_of(parts))
        self.levels = levels_of(parts)
        self.level = np.searchsorted(np.array(self.levels), parts.densities(), side="right")
        self.rises = np.diff(np.array([0, *self.levels], float))
        self.members = self.level[:, None] > np.arange(len(self.levels))[None]
        self.time = parts.workers * np.diff(self.starts).astype(float)
        self.late = np.full(len(self.starts), MOST_SHARE)
        self.tokens, self.work, self.waits = self._alone()
        self._follow()

    def _alone(self) -> tuple[Numbers, Numbers, Numbers]:
        """Rounds by level and window, work and lateness if each were served alone."""
        parts, starts = self.parts, self.starts
        ends = np.append(starts[1:], starts[-1] + 4 * int(parts.own.sum()))

        def within(low: Numbers, high: Numbers) -> Numbers:
            spans = np.minimum(high[:, None], ends) - np.maximum(low[:, None], starts)
            found: Numbers = np.maximum(spans, 0).astype(float)
            return found

        begin = parts.arrivals + parts.prefill + parts.first
        prefill = within(parts.arrivals, parts.arrivals + parts.prefill)
        return self._totals(within(begin, begin + parts.decode), prefill, np.zeros_like(prefill))

    def _totals(
        self, decode: Numbers, prefill: Numbers, waits: Numbers
    ) -> tuple[Numbers, Numbers, Numbers]:
        parts = self.parts
        rounds = decode / parts.longest[:, None]
        tokens = np.vstack([rounds.sum(0), self.members.T.astype(float) @ rounds])
        work = prefill.sum(0) + (rounds * parts.token[:, None]).sum(0)
        return tokens, work, waits.sum(0)

    def _follow(self) -> None:
        """Take the numbers of requests that share a round from the averages."""
        rounds = np.maximum(self.time - self.work[:-1], LEAST_FREE * self.time) / self.parts.fixed
        mean = np.append(self.tokens[:, :-1] / rounds, np.zeros((len(self.tokens), 1)), 1)
        met = np.floor(np.minimum(mean, 2**30))
        self.rounds, self.meet = met[0], met[1:].T
        met = np.maximum(mean - 1, 0) * self.tokens
        cost = self.parts.shared * met[0] + self.rises @ met[1:] / 2
        ahead = (cost - self.waits) / (0.2 * (cost + self.waits) + 1e-9)
        late = np.clip(1 / (1 + np.exp(-np.clip(ahead, -30, 30))), 0.02, MOST_SHARE)
        late = falling(late, cost + self.waits + 1e-6 * (cost + self.waits).mean() + 1e-9)
        self.late = np.round(late * LATE) / LATE

    def claim(self) -> dict[str, Any] | None:
        """Return the numbers as they stand in a certificate; None where no requests meet."""
        if not (self.rounds.any() or self.meet.any()):
            return None
        return {
            "starts": self.starts.tolist(),
            "levels": list(self.levels),
            "late": [round(each * LATE) for each in self.late],
            "rounds": [int(each) for each in self.rounds],
            "meet": [[int(each) for each in row] for row in self.meet],
        }

    def step(self, iteration: int) -> float:
        """Return about what the present numbers prove beyond the requests alone, and go on."""
        parts, late = self.parts, self.late
        before = np.minimum.accumulate(late)
        back = late * parts.shared * self.rounds * (self.rounds + 1)
        back += before * ((self.meet * (self.meet + 1) / 2) @ self.rises)
        time = back / parts.fixed
        steps = (self.meet * before[:, None] * self.rises).T
        tokens = 2 * late * parts.shared * self.rounds
        table = np.vstack([tokens, tokens + np.cumsum(steps, 0)])
        rates = (table[self.level] + time * parts.token[:, None]) / parts.longest[:, None]
        found = least_costs(parts, self.starts, rates, time, 1 - late, LOOK_AHEAD)
        value = float(found.cost.sum() - (time[:-1] * self.time).sum())
        self._average(found, 1.5 / (iteration + 3))
        self._follow()
        return value

    def _average(self, found: Any, share: float) -> None:
        windows, width = len(self.starts), found.decode.shape[1]
        at = np.minimum(found.first[:, None] + np.arange(width), windows - 1)
        inside = found.first[:, None] + np.arange(width) < windows
        ends = np.append(self.starts[1:], self.starts[-1])
        room = ends[at] - np.maximum(self.parts.arrivals[:, None], self.starts[at])
        through = (np.arange(width)[None] < found.last[:, None]) & inside
        waits = np.where(through, np.maximum(room - found.served, 0), 0)

        def spread(column: Numbers) -> Numbers:
            full = np.zeros((len(at), windows))
            np.add.at(full, (np.arange(len(at))[:, None], at), np.where(inside, column, 0))
            return full

        new = self._totals(spread(found.decode), spread(found.prefill), spread(waits))
        old = (self.tokens, self.work, self.waits)
        pairs = zip(old, new, strict=True)
        self.tokens, self.work, self.waits = (a * (1 - share) + b * share for a, b in pairs)
