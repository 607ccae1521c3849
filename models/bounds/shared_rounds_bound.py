"""A search for numbers that prove how much requests that arrive over time cost each other. What
follows from the numbers is worked out in ``orsched.certificates.shared_rounds``; here it is in
floats, with its slopes. The search begins with the method of Frank and Wolfe on this relaxation:
shares of all requests' work in windows of time, where each round is divided among the requests that
are in it on average. From the best numbers it climbs along the slopes of what they prove."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.shared_rounds import (
    LATE,
    WEIGHT,
    least_costs,
    parts_of,
    require_room,
    shared_rounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from orsched.certificates.context import Context
    from orsched.certificates.shared_rounds import Parts

    Numbers = NDArray[Any]
    Found = tuple[float, Numbers, Numbers]


LEVELS, WINDOWS, LOOK_AHEAD = 16, 48, 24


class Totals(NamedTuple):
    """Sums over all requests by window, of where each is served, in nanoseconds."""

    tokens: Numbers  # rounds by row and window, each as many as its request weighs in the row
    work: Numbers  # of workers, beside the fixed part of rounds
    waits: Numbers  # time of requests that are there through a window without being served
    before: Numbers  # their time there before their prefill

    def towards(self, new: Totals, share: float) -> Totals:
        """Return these sums, and of the new ones a share."""
        pairs = zip(self, new, strict=True)
        return Totals(*(old * (1 - share) + each * share for old, each in pairs))


class Relaxation:
    """What numbers by window prove, and where requests are served at the prices that follow. Row 0
    is of all requests, which weigh 1 there, and the others are of the levels of prefill. ``rises``:
    what a pair pays in each row, of weights of 1 each; ``time``: of all workers in each window but
    the last."""

    def __init__(self, parts: Parts, starts: list[int] | None = None) -> None:
        self.parts, self.starts = parts, np.array(starts or windows_of(parts))
        self.look_ahead = LOOK_AHEAD * (1 if starts is None else 2)
        self.levels = levels_of(parts)  # of prefill
        level = np.searchsorted(np.array(self.levels), parts.prefill, side="right")
        kinds, kind = np.unique(np.stack([level, parts.weights()], 1), axis=0, return_inverse=True)
        self.level, self.kind, self.kinds = level, kind.reshape(-1), kinds
        self.rises = np.diff(np.array([0, *self.levels], float))
        self.rises = np.append(2.0 * parts.shared, self.rises)
        self.time = parts.workers * np.diff(self.starts).astype(float)

    def value(self, late: Numbers, meet: Numbers) -> float:
        """Return what numbers prove beyond the requests alone; how they are served is kept."""
        parts, pay = self.parts, self.pay(late)
        time = (pay * meet**2).sum(0) / 2 / parts.fixed
        weight = self.kinds[:, 1:] / WEIGHT
        price = np.repeat(np.maximum(pay[:1] * (meet[:1] - 0.5), 0), len(weight), 0)
        for row in range(1, len(pay)):
            some = self.kinds[:, 0] >= row
            s = weight[some]
            price[some] += pay[row] * np.maximum(s * meet[row] - s * s / 2, 0)
        rates = price[self.kind] + time * parts.token[:, None]
        rates /= parts.longest[:, None]
        self.found = least_costs(parts, self.starts, rates, time, late, 1.0, self.look_ahead)
        return float(self.found.cost.sum() - (time[:-1] * self.time).sum())

    def pay(self, late: Numbers) -> Numbers:
        """Return what pairs pay, by row and window; who is prefilled pays the least so far."""
        shares = np.repeat(np.minimum.accumulate(late)[None], len(self.rises), 0)
        shares[0] = late
        found: Numbers = self.rises[:, None] * shares
        return found

    def totals(self) -> Totals:
        """Return the sums of how requests were served at the last prices."""
        parts, found, windows = self.parts, self.found, len(self.starts)
        offsets = np.arange(found.decode.shape[1])[None]
        at = found.first[:, None] + offsets
        inside, at = at < windows, np.minimum(at, windows - 1)
        ends = np.append(self.starts[1:], self.starts[-1])
        room = ends[at] - np.maximum(parts.arrivals[:, None], self.starts[at])
        room = np.where(inside, np.maximum(room, 0), 0)

        def by_window(column: Numbers, row: Numbers | int = 0, rows: int = 1) -> Numbers:
            values = np.where(inside, column, 0).ravel()
            cells = (np.zeros_like(at) + row) * windows + at
            table = np.bincount(cells.ravel(), values, rows * windows)
            return table.reshape(rows, windows)

        rounds = found.decode / parts.longest[:, None]
        weighed = rounds * (self.kinds[self.kind, 1] / WEIGHT)[:, None]
        reached = by_window(weighed, self.level[:, None], len(self.levels) + 1)
        tokens = np.cumsum(reached[::-1], 0)[::-1]
        tokens[0] = by_window(rounds)[0]
        work = by_window(found.prefill + rounds * parts.token[:, None])[0]
        through = (offsets < found.last[:, None]) & inside
        waits = by_window(np.where(through, np.maximum(room - found.served, 0), 0))[0]
        done = found.prefill / np.maximum(parts.prefill, 1)[:, None]
        later = np.cumsum(done[:, ::-1], 1)[:, ::-1] - done
        return Totals(tokens, work, waits, by_window(later * room)[0])

    def halved(self) -> Relaxation:
        """Return the relaxation of windows half as long; the last, without end, stays."""
        starts = self.starts.tolist()
        middles = [(a + b) // 2 for a, b in pairwise(starts)]
        return Relaxation(self.parts, sorted({*starts, *middles}))

    def claim(self, late: Numbers, meet: Numbers) -> dict[str, Any]:
        """Return the numbers as they stand in a certificate."""
        return {
            "starts": self.starts.tolist(),
            "levels": list(self.levels),
            "late": [round(each * LATE) for each in late.tolist()],
            "rounds": [int(each) for each in meet[0].tolist()],
            "meet": [[round(each * WEIGHT) for each in row] for row in meet[1:].T.tolist()],
        }


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
    """Return levels of prefill: at equal shares of the requests that have rounds."""
    prefill = parts.prefill[parts.tokens > 0]
    if not len(prefill):
        return []
    found = np.quantile(prefill, np.linspace(0, 1, LEVELS + 2)[:-1], method="lower")
    return sorted({int(each) for each in found if each > 0})


AVERAGES, STEPS = 25, 100
ROWS = 3000  # requests up to which all steps are made: half a minute on one core

LEAST_FREE = (0.3, 0.1)
"""Of a window's time, the share that is left for rounds at least while averages are taken: with
less, numbers of those who meet swing between nothing and all; with more, a queue costs nothing."""

MOST_SHARE, LEAST_SHARE = 0.98, 0.02
"""Of what requests cost each other: some price of lateness is always left."""

MOST_MEET = 256  # numbers of requests beyond which none is served in a round at their price

RATE = 0.1  # first step of the climb, in logarithms


def shared_rounds_choices(
    context: Context, out_of_time: Callable[[], bool]
) -> tuple[int, dict[str, Any]] | None:
    """Return a bound on the sum of JCTs, and the windows, levels and numbers that prove it. None
    where nothing is known of these schedules, or no two requests have to share a round."""
    try:
        parts = parts_of(context)
        require_room(parts, windows_of(parts)[-1])
    except ValueError:
        return None
    order = np.lexsort((parts.decode, parts.prefill, parts.arrivals))  # whatever the rows' order
    relaxation = Relaxation(_taken(parts, order))
    part = min(1.0, ROWS / len(context.arrivals))
    best: Found | None = None
    for free in LEAST_FREE:
        found = averages(relaxation, free, max(8, round(AVERAGES * part)), out_of_time)
        best = found if best is None or (found and found[0] > best[0]) else best
    if best is None:
        return None
    steps = round(STEPS * part)
    best = climb(relaxation, best, steps, RATE, out_of_time)
    fine = relaxation.halved()
    at = np.searchsorted(relaxation.starts, fine.starts, side="right") - 1
    start = -np.inf, best[1][at], best[2][:, at]
    finer = climb(fine, start, steps // 2, RATE / 2, out_of_time)
    if finer[0] > best[0]:
        relaxation, best = fine, finer
    if best[0] <= 0:
        return None
    claim = relaxation.claim(*best[1:])
    try:
        return shared_rounds(context, claim), claim
    except ValueError:  # numbers beyond 64 bits
        return None


def _taken(parts: Parts, order: Numbers) -> Parts:
    columns = ("arrivals", "prefill", "first", "decode", "longest", "token", "tokens")
    taken = {name: getattr(parts, name)[order] for name in columns}
    return type(parts)(**taken, fixed=parts.fixed, shared=parts.shared, workers=parts.workers)


def falling(values: Numbers, weights: Numbers) -> Numbers:
    """Return the closest values that never rise: neighbours that rise become their weighted mean. A
    share that is less before than after lowers what later windows pay for prefills."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        count = 1
        while blocks and blocks[-1][0] < value:
            last, heavy, many = blocks.pop()
            value = (last * heavy + value * weight) / (heavy + weight)
            weight, count = weight + heavy, count + many
        blocks.append((value, weight, count))
    return np.concatenate([np.full(count, value) for value, _, count in blocks])


def averages(
    relaxation: Relaxation, free: float, rounds: int, out_of_time: Callable[[], bool]
) -> Found | None:
    """Return the best numbers on the way of Frank and Wolfe; None where no requests meet."""
    late = np.full(len(relaxation.starts), MOST_SHARE)
    relaxation.value(late, np.zeros((len(relaxation.rises), len(late))))
    total, best = relaxation.totals(), None
    for k in range(rounds):
        late, meet = _follow(relaxation, total, free)
        if out_of_time() or not meet.any():
            break
        value = relaxation.value(late, meet)
        if best is None or value > best[0]:
            best = value, late, meet
        total = total.towards(relaxation.totals(), 1.5 / (k + 3))
    return best


def _follow(relaxation: Relaxation, total: Totals, free: float) -> tuple[Numbers, Numbers]:
    """Return the shares, and the numbers of requests that share a round, on average."""
    time = relaxation.time
    rounds = np.maximum(time - total.work[:-1], free * time) / relaxation.parts.fixed
    mean = total.tokens[:, :-1] / rounds
    meet = np.append(np.minimum(mean, MOST_MEET), np.zeros((len(mean), 1)), 1)
    cost = (relaxation.rises[:, None] * meet * total.tokens).sum(0) / 2 + total.before
    ahead = (cost - total.waits) / (0.2 * (cost + total.waits) + 1e-9)
    late = np.clip(1 / (1 + np.exp(-np.clip(ahead, -30, 30))), LEAST_SHARE, MOST_SHARE)
    heavy = cost + total.waits
    return falling(late, heavy + 1e-6 * heavy.mean() + 1e-9), meet


def climb(
    relaxation: Relaxation, best: Found, steps: int, rate: float, out_of_time: Callable[[], bool]
) -> Found:
    """Return the best numbers on the way up, by steps that moments of the slopes scale (Adam).
    Numbers are taken in logarithms, and shares by their logits."""
    _, late, meet = best
    meet = np.maximum(meet, 1e-3 * meet.max(1, keepdims=True) + 1e-9)
    place = [np.log(meet), np.log(late / (1 - late))]
    mean, square = [np.zeros_like(each) for each in place], [np.zeros_like(each) for each in place]
    for k in range(1, steps + 1):
        meet = np.exp(np.clip(place[0], -30, np.log(MOST_MEET)))
        meet[:, -1] = 0
        late = np.clip(1 / (1 + np.exp(-place[1])), LEAST_SHARE, MOST_SHARE)
        if out_of_time():
            break
        value = relaxation.value(late, meet)
        if value > best[0]:
            best = value, late, meet
        step = rate * min(1.0, 2 * (1 - k / (steps + 1)))
        for at, slope in enumerate(_slopes(relaxation, late, meet)):
            mean[at] = 0.8 * mean[at] + 0.2 * slope
            square[at] = 0.97 * square[at] + 0.03 * slope**2
            moved = mean[at] / (1 - 0.8**k) / np.sqrt(square[at] / (1 - 0.97**k) + 1e-30)
            place[at] = place[at] + step * moved
        place[1] = np.clip(place[1], -4, 4)
    return best


def _slopes(relaxation: Relaxation, late: Numbers, meet: Numbers) -> tuple[Numbers, Numbers]:
    """Return how what is proven changes with the logarithms of numbers and logits of shares."""
    total, pay = relaxation.totals(), relaxation.pay(late)
    over = np.append(total.work[:-1] - relaxation.time, 0) / relaxation.parts.fixed
    numbers = pay * (total.tokens + meet * over) * meet
    each = relaxation.rises[:, None] * meet * (total.tokens + meet * over / 2)
    shares = each.sum(0) + total.before - total.waits
    return numbers, shares * late * (1 - late)
