"""Floors of whole schedules: what any schedule's stages and rounds take at least.

For a set of requests that needs K stages and R rounds at least, by the floor that the cost model
states. All arithmetic is in integers; what rounding can take off a step is given away.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from orsched.costs.exact import round_half_up_sum

if TYPE_CHECKING:
    from orsched.certificates.context import Jobs
    from orsched.costs import Floor

MAX_COVER_UNITS = 200_000


def prefill_floor(floor: Floor, jobs: Jobs, stages: int, chunks: bool = False) -> int:
    """Return the least time of all prefill stages, at least ``stages`` of them.

    The parts of all prompts, and a fixed part a stage; the longest prompts add up as in
    ``_padded_tokens``. Levels: see ``level_floor``. ``chunks``: the longest is at least a J-th of a
    stage's tokens, and nothing is known of parts that are not in proportion to the tokens, nor
    where rounding may take off more than a stage's fixed part.
    """
    stage, tokens = floor.stage, int(jobs.prompts.sum())
    if stage.levels is not None:
        return level_floor(stage.levels, tokens, stages)
    fixed = stage.fixed - lost_in_stage(floor)
    if chunks and (stage.is_curved or fixed < 0):
        return 0
    exact = fixed * (stages if fixed >= 0 else len(jobs))
    if stage.longest:
        longest = -(-tokens // jobs.clients) if chunks else _padded_tokens(jobs, stages)
        exact += stage.longest * longest
    if stage.is_curved:
        lengths, counts = np.unique(jobs.prompts, return_counts=True)
        pairs = zip(lengths.tolist(), counts.tolist(), strict=True)
        exact += sum(stage.own(p) * count for p, count in pairs)
    else:
        exact += stage.request * len(jobs) + stage.token * tokens
    return whole_ns(exact, floor.unit) * floor.times


def decode_floor(floor: Floor, jobs: Jobs, rounds: int) -> int:
    """Return the least time of all decode rounds, at least ``rounds`` of them.

    In a round the longest context is at least the mean one, which is at least the sum over the
    clients; over all rounds, the longest ones add up at least to those of any one request.
    """
    totals, parts = jobs.totals, floor.round
    contexts, needed = totals["context_sum"], totals["rounds_needed"]
    fixed = parts.fixed - lost_in_round(floor)
    exact = fixed * (rounds if fixed >= 0 else needed)
    exact += parts.request * needed + parts.context * contexts
    if parts.longest:
        exact += parts.longest * max(-(-contexts // jobs.clients), _largest_context_sum(jobs))
    exact += (parts.mean or 0) * contexts // jobs.clients
    return whole_ns(exact, floor.unit) * floor.times


def lost_in_stage(floor: Floor) -> int:
    """Most that rounding takes off a stage."""
    stage = floor.stage
    own = (stage.request, stage.token, stage.square, stage.least or 0)
    return lost_by_rounding(floor.unit, stage.fixed, stage.longest, *own)


def lost_in_round(floor: Floor) -> int:
    """Most that rounding takes off a round; with a mean in it, that can be any fraction."""
    parts = floor.round
    if parts.mean is not None:
        return -(-floor.unit // 2)
    return lost_by_rounding(floor.unit, parts.fixed, parts.request, parts.context, parts.longest)


def lost_by_rounding(unit: int, *coefficients: int) -> int:
    """Most that rounding half up takes off a whole combination of coefficients, in 1 / unit ns."""
    common = gcd(unit, *coefficients)
    return (unit - 1) // 2 // common * common


def whole_ns(exact: int, unit: int) -> int:
    """Least whole number of nanoseconds that is not below an exact time in 1 / unit ns."""
    return max(0, -(-exact // unit))


def _padded_tokens(jobs: Jobs, stages: int) -> int:
    """Return the least sum over stages of the longest prompt.

    For each length t, at least a J-th of the prompts of t or more tokens are how many stages have
    such a prompt: the sum is least with the prompts sorted and J a stage. Stages beyond those
    have at least the shortest prompt.
    """
    ordered = np.sort(jobs.prompts)[::-1]
    leaders = ordered[:: jobs.clients]
    return int(leaders.sum()) + (stages - len(leaders)) * int(ordered[-1])


def _largest_context_sum(jobs: Jobs) -> int:
    """Return the largest D N^p + D (D + 1) / 2 of a request: its contexts over its rounds."""
    prompts, rounds = jobs.prompts, jobs.rounds
    if int(rounds.max()) * (int(prompts.max()) + int(rounds.max())) >= 2**62:
        prompts, rounds = prompts.astype(object), rounds.astype(object)
    return int((rounds * prompts + rounds * (rounds + 1) // 2).max())


def level_floor(levels: tuple[tuple[int, int], ...], tokens: int, stages: int) -> int:
    """Return the least time of stages at levels: at least ``stages``, and room for the tokens.

    The larger of three: K smallest levels; the cheapest cover; and a line below all levels, whose
    slope prices the tokens and whose height the stages (the linear relaxation of both together),
    rounded up to a multiple of what divides all levels' times.
    """
    unit = max(1, gcd(*(time for _, time in levels)))
    found = max(stages * levels[0][1], level_cover(levels, tokens))
    for (small, fast), (large, slow) in pairwise(levels):
        rise, run = slow - fast, large - small
        height = min(time * run - cap * rise for cap, time in levels)
        if height >= 0:
            found = max(found, -(-(rise * tokens + height * stages) // (run * unit)) * unit)
    return found


@lru_cache(maxsize=64)
def level_cover(levels: tuple[tuple[int, int], ...], tokens: int) -> int:
    """Return the least total time of a multiset of levels whose capacities cover the tokens.

    Exact by dynamic programming in units of the capacities' common divisor; above
    ``MAX_COVER_UNITS`` units, the best time per token, rounded up as in ``level_floor``.
    """
    unit = gcd(*(cap for cap, _ in levels))
    units = -(-tokens // unit)
    if units > MAX_COVER_UNITS:
        common = max(1, gcd(*(time for _, time in levels)))
        return min(-(-tokens * time // (cap * common)) * common for cap, time in levels)
    best = [0] * (units + 1)
    sizes = [(cap // unit, time) for cap, time in levels]
    for u in range(1, units + 1):
        best[u] = min(time + best[max(0, u - size)] for size, time in sizes)
    return best[units]


def own_rounds_ns(floor: Floor, clients: int, least: int, prompt: int, rounds: int) -> int:
    """Least time of a request's first rounds.

    In round r the longest context is at least ``prompt + r``; the mean one is least with J - 1 of
    the shortest requests beside it, each of at least ``least + 1``.
    """
    parts = floor.round
    pooled, mean = (1, 0) if parts.mean is None else (clients, parts.mean)
    slope = (parts.context + parts.longest) * pooled + mean
    first = slope * (prompt + 1) + mean * (pooled - 1) * (least + 1)
    first += (parts.fixed + parts.request) * pooled
    return round_half_up_sum(rounds, pooled * floor.unit, slope, first) * floor.times
