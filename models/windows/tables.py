"""The tables of a search state, flat so that the moves run on lists and on arrays alike."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

END = -1
"""No window: a path's end, or what is before its first window."""

Ints: TypeAlias = list[int]
"""Whole numbers in a list; in compiled moves an array."""


class Tables(NamedTuple):
    """Stage times, linked windows, and the surplus of windows over requests.

    Attributes:
        width: places a stage in ``at``.
        times: rounds done before each stage; the last entry is the end R.
        start: stage in which each window begins.
        following, previous: the next and the last window of the same client, or END.
        at: the windows that begin in each stage, in no order: ``width`` places a stage.
        counts: how many begin in each stage.
        place: the place of each window in its stage.
        last: the windows that end at the end, in no order.
        last_place: the place of such a window in ``last``.
        mark: which stages a move shifts together.
        price: what so many starts in one stage cost (``Prices.by_starts``).
        late_price: the same in stages after which no longest request fits.
        spent: one entry, the prices of all stages together.
        surplus: G[L] for L = 0 .. longest request.
    """

    width: int
    times: Ints
    start: Ints
    following: Ints
    previous: Ints
    at: Ints
    counts: Ints
    place: Ints
    last: Ints
    last_place: Ints
    mark: Ints
    price: Ints
    late_price: Ints
    spent: Ints
    surplus: Ints
