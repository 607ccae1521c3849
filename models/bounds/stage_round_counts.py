"""Lower bounds on the two counts: K prefill stages and R decode rounds.

Each says how many requests can share a stage or a round: by clients, cap or memory. What shares
a round holds a client, so a bound on the rounds is one on makespan packing (Pang (26)-(30)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.context import Jobs, sum_of_products, whole_memory
from orsched.models.packing import packing_bound

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.workers import Worker


def stage_bound(jobs: Jobs, worker: Worker, chunks: bool = False) -> dict[str, Any]:
    """Return a lower bound on K, the number of prefill stages, and why.

    A stage holds at most as many requests as there are clients, the cap's tokens and the memory's
    blocks; and at most k prompts of more than the (k + 1)-th part of the cap, or requests of more
    than that part of the memory. ``chunks``: large prompts may be divided.
    """
    found = {"value": -(-len(jobs) // jobs.clients), "reason": "clients"}
    ones = np.ones(len(jobs), np.int64)
    if worker.prefill_limit is not None:
        limit = worker.prefill_limit
        found = _larger(found, -(-int(jobs.prompts.sum()) // limit), "cap")
        if not chunks:
            value, k = _by_size(jobs.prompts, limit, ones, jobs.clients)
            found = _larger(found, value, "large_prompts", k=k)
    if memory := whole_memory(worker):
        limit = memory.blocks
        found = _larger(found, -(-int(jobs.blocks.sum()) // limit), "memory")
        value, k = _by_size(jobs.blocks, limit, ones, jobs.clients)
        found = _larger(found, value, "large_requests", k=k)
    return found


def round_bound(jobs: Jobs, worker: Worker, restarts: bool = False) -> dict[str, Any]:
    """Return a lower bound on R, the number of decode rounds, and why.

    Makespan packing (Pang (26)-(30)) of the rounds onto the clients: volume, longest request, or
    lifted; and the block-rounds that the requests need over the memory, or the rounds of those of
    more than its (k + 1)-th part over k. ``restarts``: a request's rounds may be on several
    clients, one after the other, so that only volume and longest request remain of the packing.
    """
    packing = _divided(jobs) if restarts else packing_bound(jobs.rounds.tolist(), jobs.clients)
    found = {"value": packing["value"], "reason": packing["bound"]}
    found |= {key: packing[key] for key in ("k", "l") if key in packing}
    if memory := whole_memory(worker):
        limit = memory.blocks
        volume = sum_of_products(jobs.blocks, jobs.rounds)
        found = _larger(found, -(-volume // limit), "memory")
        value, k = _by_size(jobs.blocks, limit, jobs.rounds, jobs.clients)
        found = _larger(found, value, "large_requests", k=k)
    return found


def _divided(jobs: Jobs) -> dict[str, Any]:
    """Bounds on packing jobs that may change clients (McNaughton's are exact)."""
    volume, longest = -(-int(jobs.rounds.sum()) // jobs.clients), int(jobs.rounds.max(initial=0))
    if longest > volume:
        return {"bound": "longest", "value": longest}
    return {"bound": "volume", "value": volume}


def _by_size(sizes: IntColumn, limit: int, weights: IntColumn, most: int) -> tuple[int, int]:
    """Return the largest mean weight of those k at most of which go together, and that k.

    Of sizes above limit / (k + 1), no more than k fit into the limit; k runs up to ``most``.
    """
    order = np.argsort(sizes, kind="stable")
    weight_above = int(weights.sum()) - np.concatenate([[0], np.cumsum(weights[order])])
    k = np.arange(1, most + 1)
    fitting = np.searchsorted(sizes[order], limit // (k + 1), side="right")
    values = -(-weight_above[fitting] // k)
    best = int(np.argmax(values))
    return int(values[best]), best + 1


def _larger(found: dict[str, Any], value: int, reason: str, **more: int) -> dict[str, Any]:
    return {"value": value, "reason": reason, **more} if value > found["value"] else found
