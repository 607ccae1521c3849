"""Proof from the room beside the most frequent size, by a linear program over few patterns.

The clients that hold that size as often as fits can be short of the capacity by no more than all
clients together can waste.

With theta for each such client and mu_s for each small job, the dual of that program, the lengths
plus theta for B and minus mu_s for small s are integer duals of the whole problem: no client holds
more than C + (q - 1) theta of them, for q of the size B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.models.pcmax.knapsack import best_value, items_of
from orsched.models.pcmax.rooms import Rooms, least_waste

if TYPE_CHECKING:
    from orsched.models.pcmax.knapsack import Ints
    from orsched.models.pcmax.problem import Problem

_SCALE = 10**4


def prove(problem: Problem, capacity: int) -> Ints | None:
    """Return integer duals that prove the capacity too small, or None if this does not."""
    sizes, counts, slack = problem.sizes, problem.counts, problem.slack(capacity)
    rooms = Rooms.of(problem, capacity)
    patterns = rooms.patterns(slack) if rooms else None
    if rooms is None or patterns is None:
        return None
    value, duals = least_waste(rooms, patterns, slack)
    if value <= slack:
        return None
    whole = sizes * _SCALE
    whole[rooms.frequent] += round(float(duals[-1]) * _SCALE)
    whole[rooms.small] += np.round(duals[:-1] * _SCALE).astype(np.int64)
    whole = np.maximum(whole, 0)
    best = best_value(items_of(sizes, counts, capacity), whole, problem.window(capacity))
    if best is None or int(whole @ counts) > problem.clients * best:
        return whole
    return None
