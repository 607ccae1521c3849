"""Proof from the room beside the most frequent size, by a linear program over few patterns.

If N jobs have size B, and C holds at most q of them, at least h = N - (q - 1) J clients hold q (for
their number alone). The others of their jobs come from the small ones, at most r = C - q B a
client; what those leave empty may exceed what all clients together can waste.

With theta for each such client and mu_s for each small job, the dual of that program, the lengths
plus theta for B and minus mu_s for small s are integer duals of the whole problem: no client holds
more than C + (q - 1) theta of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.models.pcmax.knapsack import (
    LARGEST_TABLE,
    Pricer,
    Window,
    best_value,
    items_of,
    patterns_worth,
    table_cells,
)
from orsched.models.pcmax.master import linear_program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.models.pcmax.knapsack import Ints
    from orsched.models.pcmax.problem import Problem

PATTERNS = 3_000
_SCALE = 10**4
_INFINITY = 1e20


def prove(problem: Problem, capacity: int) -> Ints | None:
    """Return integer duals that prove the capacity too small, or None if this does not."""
    sizes, counts, slack = problem.sizes, problem.counts, problem.slack(capacity)
    frequent = int(counts.argmax())
    size, count = int(sizes[frequent]), int(counts[frequent])
    most = min(capacity // size, count)
    full, room = count - (most - 1) * problem.clients, capacity - most * size
    if full <= 0 or room >= size or slack < 0:
        return None
    small = np.flatnonzero(sizes <= room)
    if not len(small) or table_cells(sizes, counts, capacity) > LARGEST_TABLE:
        return None
    items, window = items_of(sizes[small], counts[small], room), Window(room - slack, room)
    nothing = np.zeros(len(small), dtype=np.int64)
    patterns = patterns_worth(Pricer(), items, nothing, window, len(small), 0, PATTERNS)
    if patterns is None:
        return None
    # What is short by more than the slack costs just that: one more than all clients have.
    short = np.append(room - patterns @ sizes[small], slack + 1)
    patterns = np.vstack([patterns, np.zeros((1, len(small)), dtype=np.int64)])
    value, duals = _least_waste(patterns, short, counts[small], full)
    if value <= slack:
        return None
    whole = sizes * _SCALE
    whole[frequent] += round(float(duals[-1]) * _SCALE)
    whole[small] += np.round(duals[:-1] * _SCALE).astype(np.int64)
    whole = np.maximum(whole, 0)
    best = best_value(items_of(sizes, counts, capacity), whole, problem.window(capacity))
    if best is None or int(whole @ counts) > problem.clients * best:
        return whole
    return None


def _least_waste(
    patterns: Ints, short: Ints, counts: Ints, full: int
) -> tuple[float, NDArray[np.float64]]:
    """Return the least that ``full`` rooms are short by, and the duals of jobs and rooms."""
    kinds = len(counts)
    program = linear_program("rooms")
    lowest, highest = [-_INFINITY] * kinds + [float(full)], [*map(float, counts), _INFINITY]
    program.addRows([[] for _ in range(kinds + 1)], lhss=lowest, rhss=highest)
    columns = [
        [*((int(k), float(p[k])) for k in np.flatnonzero(p)), (kinds, 1.0)] for p in patterns
    ]
    many = len(columns)
    costs = [float(s) for s in short]
    program.addCols(columns, objs=costs, lbs=[0.0] * many, ubs=[_INFINITY] * many)
    return float(program.solve()), np.array(program.getDual())
