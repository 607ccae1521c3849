"""A lower bound on stages and rounds together: few stages end requests at few moments.

A client gets its next request at a stage. So between the stage that prefills a request and the
first stage after its end (or the end of all) its client serves no other request: a *window*. K
stages have at most K (K + 1) / 2 windows of different lengths, and every request's rounds are
rounded up to one of these. The cheapest rounding is bounded from below by a price for each length
used. Where many requests are long, some client serves as many of these as fit, one after the other:
their starts are so far apart that fewer windows are short.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.alignment import short_windows
from orsched.certificates.step_lower_bounds import decode_floor, prefill_floor
from orsched.certificates.windows import Long, Rounding, long_of, windows

if TYPE_CHECKING:
    from orsched.certificates.context import Context, Jobs
    from orsched.costs import Floor

MAX_REQUESTS, MAX_WORK, MAX_ROUNDS_IN_ALL = 2_000, 12_000, 2**60


def joint_certificate(context: Context, plain: dict[str, Any]) -> dict[str, Any] | None:
    """Return the certificate of the joint bound, given that by stages and rounds each alone.

    None where it cannot improve (so many windows as there are lengths), where the cost model has
    no fixed parts to trade, or where it would take long. ``prices`` are of K, K + 1, ... stages:
    one for all windows and, where there is a ``long`` length, one for those shorter than it. For
    more stages than are listed the time of the stages and the rounds alone suffices.
    """
    jobs, floor = context.released(plain["released_ns"]), context.floor(0)
    rounding = Rounding.of(jobs.rounds)
    lengths, n = rounding.lengths, len(rounding.lengths)
    if not floor.by_counts or len(jobs) > MAX_REQUESTS or n == 0:
        return None
    if n * (isqrt(2 * n) + 1) > MAX_WORK or lengths[-1] * len(jobs) > MAX_ROUNDS_IN_ALL:
        return None
    best: dict[str, Any] | None = None
    for long in [None, *long_lengths(jobs, plain["decode_rounds"]["value"])]:
        trade = _Trade(floor, jobs, plain, rounding, long)
        if trade.few_windows(plain["prefill_stages"]["value"]):
            found = trade.certificate()
            if best is None or found["value_ns"] > best["value_ns"]:
                best = found
    return best


def long_lengths(jobs: Jobs, rounds: int) -> list[Long]:
    """Return lengths L of which some client must serve as many as fit into the rounds.

    If ``q`` fit and more than ``(q - 1) J`` requests are that long, some client has q of them. The
    greatest L for each q.
    """
    ordered = np.sort(jobs.rounds)[::-1]
    found = []
    for fitting in range(1, -(-len(ordered) // jobs.clients) + 1):
        length = min(int(ordered[(fitting - 1) * jobs.clients]), rounds // fitting)
        if length > 0 and rounds // length == fitting:
            found.append(long_of(jobs, rounds, length))
    return found


@dataclass(frozen=True)
class _Trade:
    """More stages against more rounds."""

    floor: Floor
    jobs: Jobs
    plain: dict[str, Any]
    rounding: Rounding
    long: Long | None

    def few_windows(self, stages: int) -> bool:
        """Whether there are fewer windows than lengths, so that something is lost."""
        if windows(stages) < len(self.rounding.lengths):
            return True
        if self.long is None:
            return False
        return short_windows(stages, self.long.fitting) + 1 < len(self.long.rounding.lengths)

    def certificate(self) -> dict[str, Any]:
        """Price each number of stages that matters; the least time of all is the bound."""
        plain, floor, jobs = self.plain, self.floor, self.jobs
        stages, rounds = plain["prefill_stages"]["value"], plain["decode_rounds"]["value"]
        decode_alone = decode_floor(floor, jobs, rounds)
        prices: list[list[int]] = []
        best: int | None = None
        while True:
            prefill = prefill_floor(floor, jobs, stages)
            alone = prefill + decode_alone
            if not self.few_windows(stages) or (best is not None and alone >= best):
                best = alone if best is None else min(best, alone)
                break
            found, needed = self._needed(stages, prices[-1] if prices else None)
            prices.append(found)
            time = prefill + decode_floor(floor, jobs, needed)
            best = time if best is None else min(best, time)
            stages += 1
        kept = {k: value for k, value in plain.items() if k not in ("prefill_ns", "decode_ns")}
        long = {} if self.long is None else {"long": self.long.length}
        value = plain["released_ns"] + best
        return kept | {"bound": "joint", **long, "prices": prices, "value_ns": value}

    def _needed(self, stages: int, known: list[int] | None) -> tuple[list[int], int]:
        """Return the prices for a number of stages, and how many rounds they need at least."""
        least: int = self.plain["decode_rounds"]["value"]
        price, lost = best_price(self.rounding, windows(stages), known[0] if known else None)
        rounds = max(least, self._rounds(lost))
        if self.long is None:
            return [price], rounds
        values = short_windows(stages, self.long.fitting) + 1
        short, lost = best_price(self.long.rounding, values, known[1] if known else None)
        aligned, beyond = (
            max(rounds, self._rounds(lost)),
            self.long.length * (least // self.long.length + 1),
        )
        return [price, short], aligned if aligned < beyond else max(rounds, beyond)

    def _rounds(self, lost: int) -> int:
        needed: int = self.plain["rounds_needed"] + lost
        return -(-needed // self.jobs.clients)


def best_price(rounding: Rounding, values: int, at_most: int | None = None) -> tuple[int, int]:
    """Return a price, and the least cost of rounding to this many values or fewer.

    ``at_most``: a price that is known to be enough, such as that for fewer values.
    """
    low, high = 0, at_most
    if high is None:
        high = rounding.lengths[-1] * rounding.requests[-1]
    while low < high:
        middle = (low + high) // 2
        if rounding.priced(middle)[1] <= values:
            high = middle
        else:
            low = middle + 1
    return low, rounding.priced(low)[0] - low * values
