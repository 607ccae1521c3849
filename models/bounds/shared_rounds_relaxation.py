"""The bound of ``orsched.certificates.shared_rounds`` in floats, and its slopes, for searches."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.shared_rounds import LATE, WEIGHT, least_costs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.certificates.shared_rounds import Parts

    Numbers = NDArray[Any]

LEVELS, WINDOWS, LOOK_AHEAD = 16, 48, 24


class Totals(NamedTuple):
    """Sums over all requests by window, of where each is served, in nanoseconds.

    Attributes:
        tokens: rounds by row and window, each as many as its request weighs in the row.
        work: of workers, beside the fixed part of rounds.
        waits: time of requests that are there through a window without being served.
        before: their time there before their prefill.
    """

    tokens: Numbers
    work: Numbers
    waits: Numbers
    before: Numbers

    def towards(self, new: Totals, share: float) -> Totals:
        """Return these sums, and of the new ones a share."""
        pairs = zip(self, new, strict=True)
        return Totals(*(old * (1 - share) + each * share for old, each in pairs))


class Relaxation:
    """What numbers by window prove, and where requests are served at the prices that follow.

    Row 0 is of all requests, which weigh 1 there, and the others are of the levels of prefill.

    Attributes:
        parts: of the requests.
        starts: of windows.
        levels: of prefill.
        rises: what a pair pays in each row, of weights of 1 each.
        time: of all workers in each window but the last.
    """

    def __init__(self, parts: Parts, starts: list[int] | None = None) -> None:
        self.parts, self.starts = parts, np.array(starts or windows_of(parts))
        self.look_ahead = LOOK_AHEAD * (1 if starts is None else 2)
        self.levels = levels_of(parts)
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
