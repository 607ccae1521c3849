"""Proportional shares of unequal clouds (section 3.3: by computing power)."""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.simulator.policy import View

MOST_PARTS = 16
PRECISION = Fraction(1, 50)


def round_times_ns(views: Sequence[View], batch_size: int | None) -> list[int]:
    """Return the duration of a round on each cloud with all places taken: the time of a token.

    A place's context is taken to be the output limit, as far as the cost model asks for it. All
    clouds count as equally fast if one of them takes no time.
    """
    times = []
    for view in views:
        places, limit = places_of(view, batch_size), view.output_limit_tokens
        times.append(view.worker.cost.round_ns(places, places * limit, limit))
    return times if all(times) else [1] * len(times)


def powers(views: Sequence[View], batch_size: int | None) -> list[Fraction]:
    """Return the tokens that each cloud yields in a nanosecond with all places taken."""
    times = round_times_ns(views, batch_size)
    return [
        Fraction(places_of(view, batch_size), time) for view, time in zip(views, times, strict=True)
    ]


def places_of(view: View, batch_size: int | None) -> int:
    """Return how many requests a cloud serves at once."""
    clients = view.worker.clients
    return clients if batch_size is None else min(batch_size, clients)


def whole_shares(values: Sequence[Fraction]) -> list[int]:
    """Return small whole numbers in the proportion of positive values, to 2 % where 16 parts do."""
    least = min(values)
    ratios = [value / least for value in values]
    for parts in range(1, MOST_PARTS + 1):
        shares = [round(ratio * parts) for ratio in ratios]
        if all(
            abs(Fraction(share, parts) / ratio - 1) <= PRECISION
            for share, ratio in zip(shares, ratios, strict=True)
        ):
            break
    divisor = gcd(*shares)
    return [share // divisor for share in shares]
