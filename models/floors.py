"""Floors of each cost model: what any schedule's stages and rounds take at least.

For a set of requests that needs K stages and R rounds at least. All arithmetic is in integers; a
bilinear or pooling step is rounded half up, so what rounding can take off a step is given away.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost
from orsched.costs.exact import FS_PER_NS, round_half_up_sum

if TYPE_CHECKING:
    from orsched.costs import CostModel
    from orsched.instance import Instance
    from orsched.models.counts import Jobs

MAX_COVER_UNITS = 200_000
_CANDIDATES = 64


def prefill_floor(cost: CostModel, jobs: Jobs, stages: int, chunks: bool = False) -> int:
    """Return the least time of all prefill stages, at least ``stages`` of them.

    Affine: the tokens' time and K fixed times. Levels: see ``level_floor``. Bilinear: N L is at
    least the sum of the prompts, the L add up as in ``_padded_tokens``. Pooling: the sum of the
    prompts' own times. ``chunks``: L is at least a J-th of a stage's tokens, and nothing is known
    of a pool, nor where rounding may take off more than a stage's fixed part.
    """
    tokens = int(jobs.prompts.sum())
    if isinstance(cost, AffineCost):
        return cost.prefill_fixed_ns * stages + cost.prefill_token_ns * tokens
    if isinstance(cost, LevelsCost):
        return level_floor(cost.levels, tokens, stages)
    if isinstance(cost, BilinearCost):
        fixed = cost.p4_fs - lost_by_rounding(cost.p1_fs, cost.p2_fs, cost.p3_fs, cost.p4_fs)
        if chunks and fixed < 0:
            return 0
        longest = -(-tokens // jobs.clients) if chunks else _padded_tokens(jobs, stages)
        exact = cost.p1_fs * tokens + cost.p2_fs * len(jobs) + cost.p3_fs * longest
        exact += fixed * (stages if fixed >= 0 else len(jobs))
        return whole_ns(exact) * cost.time_scale
    if isinstance(cost, PoolingCost):
        if chunks:
            return 0
        alpha, beta, least = cost.alpha_fs, cost.beta_fs, cost.c_fs
        lengths, counts = np.unique(jobs.prompts, return_counts=True)
        pairs = zip(lengths.tolist(), counts.tolist(), strict=True)
        exact = sum(max((alpha * p + beta) * p, least) * count for p, count in pairs)
        return whole_ns(exact - lost_by_rounding(alpha, beta, least) * len(jobs)) * cost.time_scale
    raise TypeError(f"no floor for {cost!r}")


def decode_floor(cost: CostModel, jobs: Jobs, rounds: int) -> int:
    """Return the least time of all decode rounds, at least ``rounds`` of them.

    In a round the longest context is at least the mean one, which is at least the sum over the
    clients; over all rounds, the longest ones add up at least to those of any one request.
    """
    totals = jobs.totals()
    contexts, needed = totals["context_sum"], totals["rounds_needed"]
    if isinstance(cost, AffineCost):
        return cost.round_fixed_ns * rounds + cost.round_client_ns * needed
    if isinstance(cost, LevelsCost):
        return cost.round_fixed_ns * rounds
    longest = max(-(-contexts // jobs.clients), _largest_context_sum(jobs))
    if isinstance(cost, BilinearCost):
        fixed = cost.d4_fs - lost_by_rounding(cost.d1_fs, cost.d2_fs, cost.d3_fs, cost.d4_fs)
        exact = cost.d1_fs * contexts + cost.d2_fs * needed + cost.d3_fs * longest
        exact += fixed * (rounds if fixed >= 0 else needed)
        return whole_ns(exact) * cost.time_scale
    if isinstance(cost, PoolingCost):
        exact = cost.gamma_fs * longest + cost.delta_fs * contexts // jobs.clients
        return whole_ns(exact - FS_PER_NS // 2 * needed) * cost.time_scale
    raise TypeError(f"no floor for {cost!r}")


def lost_by_rounding(*coefficients: int) -> int:
    """Most that rounding half up takes off a whole combination of coefficients, in fs."""
    unit = gcd(FS_PER_NS, *coefficients)
    return (FS_PER_NS // 2 - 1) // unit * unit


def whole_ns(exact_fs: int) -> int:
    """Least whole number of nanoseconds that is not below an exact time."""
    return max(0, -(-exact_fs // FS_PER_NS))


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


def longest_chain(instance: Instance, clients: int) -> dict[str, Any]:
    """Return the request that ends last if each were served alone at its arrival.

    A request needs its own prefill stage and its rounds, each at least as long as with nobody
    else in it. Under the pooling model the mean context falls with shorter requests beside it:
    see ``pooled_rounds_ns``.
    """
    cost, rounds, requests = instance.worker.cost, instance.rounds_needed, instance.requests
    prompts, arrivals = requests.prompt_tokens, requests.arrival_ns
    least = int(prompts.min())
    best: dict[str, Any] = {"value_ns": -1}
    for row in _candidates(instance):
        p, d = int(prompts[row]), int(rounds[row])
        if isinstance(cost, PoolingCost):
            alone = pooled_rounds_ns(cost, clients, least, p, d)
        else:
            alone = cost.rounds_ns(d, 1, p + 1, p + 1)
        value = int(arrivals[row]) + cost.prefill_ns([p]) + alone
        if value > best["value_ns"]:
            best = {"bound": "longest_request", "request": row, "value_ns": value}
    return best


def pooled_rounds_ns(cost: PoolingCost, clients: int, least: int, prompt: int, rounds: int) -> int:
    """Least time of a request's rounds: the mean pool is least with J - 1 of the shortest beside.

    In its round r the longest context is at least ``prompt + r``, the mean one at least that of
    this and J - 1 contexts of ``least + 1``.
    """
    others = (clients - 1) * (least + 1)
    first = cost.gamma_fs * (prompt + 1) * clients + cost.delta_fs * (prompt + 1 + others)
    slope = cost.gamma_fs * clients + cost.delta_fs
    return round_half_up_sum(rounds, clients * FS_PER_NS, slope, first) * cost.time_scale


def _candidates(instance: Instance) -> list[int]:
    """Rows with the latest arrivals, most rounds and longest prompts, some of each.

    Ties are broken by the other columns, so that the order of the rows changes no bound.
    """
    req = instance.requests
    columns = [req.prompt_tokens, instance.rounds_needed, req.arrival_ns]
    some = min(_CANDIDATES, len(req))
    rows: dict[int, None] = {}
    for _ in columns:
        columns = columns[1:] + columns[:1]
        key = columns[-1]
        least = np.partition(key, -some)[-some]
        top = np.flatnonzero(key >= least)
        order = np.lexsort([column[top] for column in columns])
        rows |= dict.fromkeys(top[order[-some:]].tolist())
    return list(rows)
