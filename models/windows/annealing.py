"""Annealing of the windows until nothing is missing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.windows import moves as plain
from orsched.models.windows.compiled import as_arrays, write_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.models.windows.structure import Windows

CHUNK = 4096
"""Moves at one temperature, between two looks at the clock."""
PLAIN_PARTS = 16
"""Plain moves look at it this many times as often."""

_ENOUGH = 2**40
"""More than can be missing: all moves are made, and kept."""


def anneal(
    state: Windows,
    moves: int,
    hot: float,
    cold: float,
    rng: np.random.Generator,
    give_up: Callable[[], bool],
    fast: Any = None,
    shake: int = 0,
    budget: int = 0,
) -> int:
    """Search until V = 0, the moves are used up or ``give_up`` says so; return the moves made.

    Geometric cooling from ``hot`` to ``cold`` over the moves, threshold form: a change of V is
    kept when it is at most ``-T log u``. ``fast`` has ``run_moves`` compiled, or None there as long
    as it is not ready; the moves are the same either way. The first ``shake`` moves are all kept.
    """
    if shake:
        _shake(state, rng.random(shake * plain.DRAWS).tolist(), give_up, budget)
    cooling = math.log(cold / hot)
    made, arrays = 0, None
    spent = state.tables.spent
    while (state.missing > 0 or spent[0] > budget) and made < moves and not give_up():
        count = min(CHUNK, moves - made)
        temperature = hot * math.exp(cooling * made / moves)
        draws = rng.random((count, plain.DRAWS))
        thresholds = (-temperature * np.log1p(-draws[:, -1])).astype(np.int64)
        run = None if fast is None else fast.run_moves
        if run is None:
            done = _run_plain(state, draws.ravel().tolist(), thresholds.tolist(), give_up, budget)
        else:
            arrays = as_arrays(state.tables) if arrays is None else arrays
            done, state.missing = run(arrays, state.missing, draws.ravel(), thresholds, budget)
            spent = arrays.spent
        made += done
    if arrays is not None:
        write_back(arrays, state)
    return made


def _shake(state: Windows, draws: list[float], give_up: Callable[[], bool], budget: int) -> None:
    """Make moves of which all are kept, looking at the clock now and then."""
    size = CHUNK // PLAIN_PARTS * plain.DRAWS
    for first in range(0, len(draws), size):
        part = draws[first : first + size]
        kept = [_ENOUGH] * (len(part) // plain.DRAWS)
        _, missing = plain.run_moves(state.tables, _ENOUGH, part, kept, budget)
        state.missing += missing - _ENOUGH
        if give_up():
            break


def _run_plain(
    state: Windows,
    draws: list[float],
    thresholds: list[int],
    give_up: Callable[[], bool],
    budget: int,
) -> int:
    """Make the moves of a chunk in plain Python, looking at the clock more often."""
    made, size = 0, CHUNK // PLAIN_PARTS
    for first in range(0, len(thresholds), size):
        done, state.missing = plain.run_moves(
            state.tables,
            state.missing,
            draws[first * plain.DRAWS : (first + size) * plain.DRAWS],
            thresholds[first : first + size],
            budget,
        )
        made += done
        if (state.missing == 0 and state.tables.spent[0] <= budget) or give_up():
            break
    return made
