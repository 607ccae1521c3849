"""How many bins the model needs: K = n, or fewer with a proof."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orsched.models.full_mip.problem import Problem


def stages_that_suffice(problem: Problem, makespan_ns: int | None) -> tuple[int, str]:
    """Return a K with which the model has an optimal schedule, and why.

    n suffices, since no prefill stage is empty. Given the makespan of a schedule, so does the
    largest K for which K stages and the least number of rounds can end by then: a schedule with
    more stages ends later than the given one, and that one has no more than K.
    """
    n = len(problem)
    if makespan_ns is None:
        return max(1, n), _all(n)
    low, high = 1, max(1, n)
    while low < high:  # the least makespan grows with the number of stages
        middle = (low + high + 1) // 2
        if least_makespan_ns(problem, middle) <= makespan_ns:
            low = middle
        else:
            high = middle - 1
    if low >= n:
        return max(1, n), _all(n)
    least = least_makespan_ns(problem, low + 1)
    return low, (
        f"{low + 1} stages with the least number of rounds take at least {least} ns, "
        f"longer than the schedule of {makespan_ns} ns that is known"
    )


def _all(n: int) -> str:
    return f"no prefill stage is empty, so {n} requests need at most {n} stages"


def least_makespan_ns(problem: Problem, stages: int) -> int:
    """Return a bound on the makespan of every schedule with exactly ``stages`` prefill stages.

    The worker does one thing at a time. Rounds: at least as many as the longest request needs,
    and as all need on J clients. Stages: with any line a + b x below the time of a stage of x
    tokens, together at least a K + b sum N^p.
    """
    tokens, rounds = sum(problem.prompts), sum(problem.needed)
    least_rounds = max(problem.most_rounds, -(-rounds // problem.clients))
    prefill = max(a * stages + b * tokens for a, b in _lines_below(problem.levels))
    units = problem.round_fixed * least_rounds + problem.round_client * rounds
    return problem.to_ns(units + problem.prompt_token * tokens + max(0, math.ceil(prefill)))


def _lines_below(levels: tuple[tuple[int, int], ...]) -> list[tuple[Fraction, Fraction]]:
    """Return lines (a, b) with a, b >= 0 and a + b x <= the time of a stage of x >= 1 tokens.

    A stage's time is a step function and the line rises: it is below the time everywhere when it
    is at the capacity of each level.
    """
    found = [(Fraction(levels[0][1]), Fraction(0))]
    for number, (x, y) in enumerate(levels):
        for u, v in levels[number + 1 :]:
            slope = Fraction(v - y, u - x)
            base = y - slope * x
            if base >= 0 and all(base + slope * at <= time for at, time in levels):
                found.append((base, slope))
    return found
