"""Diving: round the fractional packing pattern by pattern, with new columns after each step.

Where the linear program of what is left becomes infeasible, the last choice is taken back and
its pattern closed, a limited number of times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import random

    from orsched.models.pcmax.columns import Columns, Floats
    from orsched.models.pcmax.knapsack import Ints
    from orsched.models.pcmax.master import Solution
    from orsched.models.pcmax.problem import Problem

_ROUNDS = 12
_SURE = 0.95
_SEEN = 1e-6


@dataclass
class _Level:
    """A point in the dive.

    Attributes:
        left: what is left of the problem.
        solution: its fractional packing.
        chosen: the patterns fixed so far.
        closed: patterns that lead nowhere from here.
        pick: the pattern that led here, None if there were several at once.
        sure: whether nearly whole patterns are still to be tried together.
    """

    left: Problem
    solution: Solution
    chosen: list[Ints]
    closed: frozenset[int] = frozenset()
    pick: int | None = None
    sure: bool = True


class Dive:
    """One dive at a capacity: depth first, the branch with a pattern before the one without."""

    def __init__(self, columns: Columns, capacity: int, rng: random.Random, spread: int) -> None:
        self.columns = columns
        self.capacity = capacity
        self.rng = rng
        self.spread = spread

    def run(self, solution: Solution, undos: int) -> tuple[list[Ints], Ints]:
        """Return chosen patterns and the counts of jobs that no pattern took (0 if it succeeds).

        Args:
            solution: a fractional packing at the capacity.
            undos: how often a choice may be taken back.
        """
        stack = [_Level(self.columns.problem, solution, [])]
        deepest = stack[0]
        while stack and not self.columns.clock.out():
            after, pick = self._down(stack[-1])
            if after is None:
                undos -= 1
                if undos < 0:
                    break
                self._back(stack, pick)
                continue
            if len(after.chosen) > len(deepest.chosen):
                deepest = after
            if not after.left.counts.any():
                break
            stack.append(after)
        return deepest.chosen, deepest.left.counts

    def _down(self, level: _Level) -> tuple[_Level | None, int | None]:
        """Return the next level, None if what is left cannot be packed; and what was picked."""
        patterns, shares = self.columns.master.patterns, level.solution.shares
        order = np.argsort(-shares, kind="stable")
        step = _sure(patterns, shares, order, level.left) if level.sure else []
        level.sure, pick = False, None
        if not step:
            likely = [i for i in order[: self.spread].tolist() if shares[i] > _SEEN]
            if not likely:
                return None, None
            pick = self.rng.choice(likely)
            step = [patterns[pick]]
        left, chosen = level.left, list(level.chosen)
        for pattern in step:
            chosen.append(np.minimum(pattern, left.counts))
            left = left.less(pattern, 1)
        if not left.counts.any():
            return _Level(left, level.solution, chosen), pick
        if not left.clients or left.slack(self.capacity) < 0:
            return None, pick
        solution = self._solve(left, level.closed)
        if solution is None:
            return None, pick
        return _Level(left, solution, chosen, level.closed, pick), pick

    def _solve(self, left: Problem, closed: frozenset[int]) -> Solution | None:
        verdict = self.columns.solve(left, self.capacity, _ROUNDS, exact=False, closed=closed)
        return verdict.solution if verdict.feasible else None

    def _back(self, stack: list[_Level], pick: int | None) -> None:
        """Close what failed; go up to the first level that still has a fractional packing."""
        while stack:
            level = stack[-1]
            if pick is not None:
                level.closed |= {pick}
                solution = self._solve(level.left, level.closed)
                if solution is not None:
                    level.solution = solution
                    return
            elif (level.solution.shares > _SEEN).any():
                return
            pick = stack.pop().pick


def _sure(patterns: Ints, shares: Floats, order: Ints, left: Problem) -> list[Ints]:
    """Return the patterns of nearly whole share, each as often as it says."""
    counts = left.counts.copy()
    step: list[Ints] = []
    for index in order.tolist():
        share = float(shares[index])
        if share < _SURE:
            break
        for _ in range(max(1, int(share + _SEEN))):
            if (patterns[index] <= counts).all() and len(step) < left.clients:
                counts -= patterns[index]
                step.append(patterns[index])
    return step
