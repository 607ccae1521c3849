"""A search for numbers that prove how much requests that arrive over time cost each other.

What follows from the numbers is worked out in ``orsched.certificates.shared_rounds``. The search
begins with the method of Frank and Wolfe on the relaxation: shares of all requests' work in windows
of time, where each round is divided among the requests that are in it on average. From the best
numbers that it comes across it climbs along the slopes of what they prove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.shared_rounds import parts_of, require_room, shared_rounds
from orsched.models.bounds.shared_rounds_relaxation import Relaxation, windows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from orsched.certificates.context import Context
    from orsched.certificates.shared_rounds import Parts
    from orsched.models.bounds.shared_rounds_relaxation import Totals

    Numbers = NDArray[Any]
    Found = tuple[float, Numbers, Numbers]

AVERAGES, STEPS = 25, 100
ROWS = 3000
"""Requests up to which all steps are made: half a minute on one core."""

LEAST_FREE = (0.3, 0.1)
"""Of a window's time, the share that is left for rounds at least while averages are taken: with
less, numbers of those who meet swing between nothing and all; with more, a queue costs nothing."""

MOST_SHARE, LEAST_SHARE = 0.98, 0.02
"""Of what requests cost each other: some price of lateness is always left."""

MOST_MEET = 256
"""Numbers of requests beyond which nobody is served in a round at their price."""

RATE = 0.1
"""First step of the climb, in logarithms."""


def shared_rounds_choices(
    context: Context, out_of_time: Callable[[], bool]
) -> tuple[int, dict[str, Any]] | None:
    """Return a bound on the sum of JCTs, and the windows, levels and numbers that prove it.

    None where nothing is known of these schedules, or no two requests have to share a round.
    """
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
    relaxation: Relaxation,
    best: Found,
    steps: int,
    rate: float,
    out_of_time: Callable[[], bool],
) -> Found:
    """Return the best numbers on the way up, by steps that moments of the slopes scale (Adam).

    Numbers are taken in logarithms, and shares by their logits.
    """
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
