"""Diving: round the fractional packing pattern by pattern, with new columns after each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import random

    from orsched.models.pcmax.columns import Columns
    from orsched.models.pcmax.knapsack import Ints
    from orsched.models.pcmax.master import Solution
    from orsched.models.pcmax.problem import Problem

_ROUNDS = 6
_SURE = 0.95


def dive(
    columns: Columns, solution: Solution, capacity: int, rng: random.Random, spread: int
) -> tuple[list[Ints], Ints, bool]:
    """Return chosen patterns, the counts of jobs that no pattern took, and whether all fits.

    Args:
        columns: the column generation; its patterns are kept and added to.
        solution: a fractional packing at the capacity.
        capacity: the largest load.
        rng: for the choice among the ``spread`` patterns of largest share.
        spread: 1: always the largest share.
    """
    left: Problem = columns.problem
    chosen: list[Ints] = []
    while left.clients and left.counts.any():
        if columns.clock.out():
            break
        step = _fix(columns, solution, left, rng, spread)
        if not step:
            break
        for pattern in step:
            chosen.append(np.minimum(pattern, left.counts))
            left = left.less(pattern, 1)
        if left.slack(capacity) < 0 or not left.clients or not left.counts.any():
            break
        verdict = columns.solve(left, capacity, _ROUNDS, exact=False)
        if verdict.solution is None or verdict.solution.artificial > 1e-6:
            break
        solution = verdict.solution
    return chosen, left.counts, not left.counts.any()


def _fix(
    columns: Columns, solution: Solution, left: Problem, rng: random.Random, spread: int
) -> list[Ints]:
    """Return the patterns to fix next: all nearly whole ones, else one of large share."""
    patterns, shares = columns.master.patterns, solution.shares
    patterns = patterns[: len(shares)]
    order = np.argsort(-shares, kind="stable")
    counts = left.counts.copy()
    step: list[Ints] = []
    for index in order.tolist():
        share = float(shares[index])
        if share < _SURE or len(step) == left.clients:
            break
        for _ in range(max(1, int(share + 1e-6))):
            if (patterns[index] <= counts).all() and len(step) < left.clients:
                counts -= patterns[index]
                step.append(patterns[index])
    if step:
        return step
    likely = [i for i in order[:spread].tolist() if shares[i] > 1e-6]
    return [patterns[rng.choice(likely)]] if likely else []
