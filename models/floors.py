"""Floors of each cost model: what any schedule's stages and rounds take at least.

For a set of requests with given totals, K stages and R rounds at least. All arithmetic is in
integers; a bilinear or pooling step is rounded half up, so half a nanosecond a step is given away.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost
from orsched.costs.exact import FS_PER_NS, round_half_up_sum

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.costs import CostModel
    from orsched.instance import Instance
    from orsched.workers import Worker

_HALF_NS = FS_PER_NS // 2
MAX_COVER_UNITS = 200_000


class Totals(NamedTuple):
    """Sums over the requests released at or after a moment.

    Attributes:
        requests: their number n.
        prompt_tokens: sum of N^p.
        rounds_needed: sum of the decode rounds D they need.
        context_sum: sum over requests and their rounds of the context: D N^p + D (D + 1) / 2.
        blocks: sum of the memory blocks they hold (0 without a memory model).
        block_rounds: sum of blocks times rounds.
    """

    requests: int
    prompt_tokens: int
    rounds_needed: int
    context_sum: int
    blocks: int
    block_rounds: int


def totals_of(instance: Instance, worker: Worker, released: int) -> Totals:
    """Return the totals of the requests with arrival at or after ``released``."""
    later = instance.requests.arrival_ns >= released
    prompts = instance.requests.prompt_tokens[later]
    rounds = instance.rounds_needed[later]
    held = np.zeros_like(prompts)
    if worker.memory is not None:
        tokens = prompts + instance.requests.output_tokens[later]
        held = -(-tokens // worker.memory.block_tokens)
    return Totals(
        requests=int(later.sum()),
        prompt_tokens=int(prompts.sum()),
        rounds_needed=int(rounds.sum()),
        context_sum=_sum_of_products(rounds, prompts)
        + (_sum_of_products(rounds, rounds) + int(rounds.sum())) // 2,
        blocks=int(held.sum()),
        block_rounds=_sum_of_products(held, rounds),
    )


def _sum_of_products(a: IntColumn, b: IntColumn) -> int:
    """Exact sum of a * b, in Python integers where 64 bits could overflow."""
    if len(a) == 0:
        return 0
    if int(a.max()) * int(b.max()) * len(a) < 2**62:
        return int((a * b).sum())
    return int((a.astype(object) * b.astype(object)).sum())


def prefill_floor(cost: CostModel, totals: Totals, worker: Worker, stages: int) -> int | None:
    """Return the least time of all prefill stages, at least ``stages`` of them, or None.

    Affine: the tokens' time and K fixed times. Levels: the cheapest cover of the tokens, or K
    smallest levels. Bilinear: N L >= sum of prompts, L >= sum / J a stage. Pooling: see
    ``longest_chain``; its stages are sums of single prompts, of which only the count is used.
    """
    if isinstance(cost, AffineCost):
        return cost.prefill_fixed_ns * stages + cost.prefill_token_ns * totals.prompt_tokens
    if isinstance(cost, LevelsCost):
        return max(stages * cost.levels[0][1], level_cover(cost.levels, totals.prompt_tokens))
    if isinstance(cost, BilinearCost):
        p1, p2, p3, p4 = cost.p1_fs, cost.p2_fs, cost.p3_fs, cost.p4_fs
        if min(p1, p2, p3, p4) < 0:
            return None
        fixed = p4 - _HALF_NS
        exact = p1 * totals.prompt_tokens + p2 * totals.requests
        exact += p3 * totals.prompt_tokens // worker.clients
        exact += fixed * (stages if fixed >= 0 else totals.requests)
        return max(0, exact // FS_PER_NS) * cost.time_scale
    if isinstance(cost, PoolingCost):
        each = cost.c_fs - _HALF_NS  # a prompt takes at least c, a stage holds at least one
        return max(0, each * totals.requests // FS_PER_NS) * cost.time_scale
    return None


def decode_floor(cost: CostModel, totals: Totals, worker: Worker, rounds: int) -> int | None:
    """Return the least time of all decode rounds, at least ``rounds`` of them, or None.

    In a round the longest context is at least the mean one, which is at least the sum over J.
    """
    if isinstance(cost, AffineCost):
        return cost.round_fixed_ns * rounds + cost.round_client_ns * totals.rounds_needed
    if isinstance(cost, LevelsCost):
        return cost.round_fixed_ns * rounds
    if isinstance(cost, BilinearCost):
        d1, d2, d3, d4 = cost.d1_fs, cost.d2_fs, cost.d3_fs, cost.d4_fs
        if min(d1, d2, d3, d4) < 0:
            return None
        fixed = d4 - _HALF_NS
        exact = d1 * totals.context_sum + d2 * totals.rounds_needed
        exact += d3 * totals.context_sum // worker.clients
        exact += fixed * (rounds if fixed >= 0 else totals.rounds_needed)
        return max(0, exact // FS_PER_NS) * cost.time_scale
    if isinstance(cost, PoolingCost):
        if min(cost.gamma_fs, cost.delta_fs) < 0:
            return None
        exact = (cost.gamma_fs + cost.delta_fs) * totals.context_sum // worker.clients
        exact -= _HALF_NS * totals.rounds_needed
        return max(0, exact // FS_PER_NS) * cost.time_scale
    return None


def level_cover(levels: tuple[tuple[int, int], ...], tokens: int) -> int:
    """Return the least total time of a multiset of levels whose capacities cover the tokens.

    Exact by dynamic programming in units of the capacities' common divisor; above
    ``MAX_COVER_UNITS`` units, the best time per token.
    """
    unit = gcd(*(cap for cap, _ in levels))
    units = -(-tokens // unit)
    if units > MAX_COVER_UNITS:
        return min(-(-tokens * time // cap) for cap, time in levels)
    best = [0] * (units + 1)
    sizes = [(cap // unit, time) for cap, time in levels]
    for u in range(1, units + 1):
        best[u] = min(time + best[max(0, u - size)] for size, time in sizes)
    return best[units]


def longest_chain(instance: Instance, worker: Worker) -> dict[str, Any] | None:
    """Return the request that ends last if each were served alone at its arrival, or None.

    A request needs its own prefill stage and its rounds, each at least as long as with nobody
    else in it: true for cost models that grow with their contents. Under the pooling model the
    mean context falls with shorter requests beside it: see ``_pooled_rounds_ns``.
    """
    cost = worker.cost
    if not grows(cost):
        return None
    best: dict[str, Any] | None = None
    prompts, rounds = instance.requests.prompt_tokens, instance.rounds_needed
    arrivals = instance.requests.arrival_ns
    least = int(prompts.min())
    for row in _candidates(instance):
        p, d = int(prompts[row]), int(rounds[row])
        if isinstance(cost, PoolingCost):
            alone = _pooled_rounds_ns(cost, worker.clients, least, p, d)
        else:
            alone = cost.rounds_ns(d, 1, p + 1, p + 1)
        value = int(arrivals[row]) + cost.prefill_ns([p]) + alone
        if best is None or value > best["value_ns"]:
            best = {"bound": "longest_request", "request": row, "value_ns": value}
    return best


def _pooled_rounds_ns(cost: PoolingCost, clients: int, least: int, prompt: int, rounds: int) -> int:
    """Least time of a request's rounds: the mean pool is least with J - 1 of the shortest beside.

    In its round r the longest context is at least ``prompt + r``, the mean one at least that of
    this and J - 1 contexts of ``least + 1``.
    """
    others = (clients - 1) * (least + 1)
    first = cost.gamma_fs * (prompt + 1) * clients + cost.delta_fs * (prompt + 1 + others)
    slope = cost.gamma_fs * clients + cost.delta_fs
    return round_half_up_sum(rounds, clients * FS_PER_NS, slope, first) * cost.time_scale


def grows(cost: CostModel) -> bool:
    """Say if a step is known to take no less time with more in it, up to pooled means."""
    if isinstance(cost, AffineCost | LevelsCost):
        return True
    if isinstance(cost, BilinearCost | PoolingCost):
        return not cost.warnings()
    return False


def _candidates(instance: Instance) -> list[int]:
    """Rows that are not dominated in arrival, prompt and rounds together: a few of each."""
    req, rounds = instance.requests, instance.rounds_needed
    n = len(req)
    rows: dict[int, None] = {}
    for key in (req.arrival_ns, rounds, req.prompt_tokens):
        top = np.argpartition(-key, min(63, n - 1))[:64] if n > 64 else np.arange(n)
        rows.update(dict.fromkeys(sorted(top.tolist())))
    return list(rows)
