"""Curves of a step's time by its tokens, as the straight pieces of a roofline."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orsched.costs.roofline import Pieces

_KNOTS = sorted({*(2**k for k in range(17)), *(3 * 2**k for k in range(16))})
"""Tokens between which a curve is straight."""


def curve_pieces(time_fs: Callable[[int], float]) -> tuple[int, Pieces]:
    """Return a growing curve's time at one token, and the pieces of a roofline from there on.

    ``time_fs``: femtoseconds by tokens. The pieces meet the curve at powers of 2 and one point
    between each two, rounded down; beyond the last the last slope goes on.
    """
    times = [round(time_fs(x)) for x in _KNOTS]
    slopes = (
        (a, max(0, (high - low) // (b - a)))
        for (a, low), (b, high) in pairwise(zip(_KNOTS, times, strict=True))
    )
    return times[0], tuple(slopes)


def joined(curves: Iterable[Pieces]) -> Pieces:
    """Return the sum of curves as one; a piece that goes on as the one before is left out."""
    changes: dict[int, int] = {}
    for pieces in curves:
        before = 0
        for start, slope in pieces:
            changes[start] = changes.get(start, 0) + slope - before
            before = slope
    found: list[tuple[int, int]] = []
    slope = 0
    for start, change in sorted(changes.items()):
        slope += change
        if change:
            found.append((start, slope))
    return tuple(found)


def touched(experts: int, chosen: int, tokens: float) -> float:
    """Return how many experts some tokens choose on average, each k of them at random."""
    return experts * (1 - (1 - chosen / experts) ** tokens) if chosen < experts else experts
