"""Annealing of the windows until nothing is missing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from orsched.models.windows.moves import Moves

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from orsched.models.windows.structure import Windows

CHECK_EVERY = 256
SHARES = (0.50, 0.78, 0.88)
"""Cumulative shares of exchange, start and relocation moves; the rest shifts stages."""


def anneal(
    state: Windows,
    limit: int,
    moves: int,
    hot: float,
    cold: float,
    rng: random.Random,
    out_of_time: Callable[[], bool],
) -> int:
    """Search until V = 0, the moves are used up or time is out; return the moves made.

    Geometric cooling from ``hot`` to ``cold`` over the moves, threshold form: a change of V is
    kept when it is at most ``-T log u``.
    """
    draw = rng.random
    kinds = Moves(state, limit, draw)
    exchange, shift, relocate, stage = (
        kinds.exchange_tails,
        kinds.shift_start,
        kinds.relocate,
        kinds.shift_stage,
    )
    first, second, third = SHARES
    if state.stages < 2:
        first = second = third = 1.0
    cooling, log = math.log(cold / hot), math.log
    temperature, made = hot, 0
    while state.missing > 0 and made < moves:
        if made % CHECK_EVERY == 0:
            if out_of_time():
                break
            temperature = hot * math.exp(cooling * made / moves)
        made += 1
        threshold = -temperature * log(1.0 - draw())
        kind = draw()
        if kind < first:
            exchange(threshold)
        elif kind < second:
            shift(threshold)
        elif kind < third:
            relocate(threshold)
        else:
            stage(threshold)
    return made
