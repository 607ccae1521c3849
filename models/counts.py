"""Lower bounds on the two counts: K prefill stages and R decode rounds.

Each says how many requests can share a stage or a round: by clients, cap or memory. What shares
a round holds a client, so a bound on the rounds is one on makespan packing (Pang (26)-(30)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.packing import packing_bound

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.memory import BlockMemory
    from orsched.workers import Worker


@dataclass(frozen=True)
class Jobs:
    """The requests released at or after a moment.

    Attributes:
        prompts: N^p of each.
        rounds: decode rounds D that each needs.
        blocks: memory blocks that each holds (0 without a memory model).
        clients: most requests, of the whole instance, that are on clients at one time.
    """

    prompts: IntColumn
    rounds: IntColumn
    blocks: IntColumn
    clients: int

    def __len__(self) -> int:
        return len(self.prompts)

    def totals(self) -> dict[str, int]:
        """Return the sums that a certificate states; ``context_sum`` is over D N^p + D(D+1)/2."""
        prompts, rounds, blocks = self.prompts, self.rounds, self.blocks
        needed = int(rounds.sum())
        contexts = sum_of_products(rounds, prompts)
        contexts += (sum_of_products(rounds, rounds) + needed) // 2
        return {
            "requests": len(self),
            "clients": self.clients,
            "prompt_tokens": int(prompts.sum()),
            "rounds_needed": needed,
            "context_sum": contexts,
            "blocks": int(blocks.sum()),
            "block_rounds": sum_of_products(blocks, rounds),
        }


def all_jobs(instance: Instance) -> Jobs:
    """Return all requests; clients: J, n, or as many of the smallest as memory holds."""
    return _jobs(instance, instance.worker, np.arange(len(instance)))


def whole_memory(worker: Worker) -> BlockMemory | None:
    """Return the memory model if each request holds its blocks from its prefill to its end.

    Paged blocks grow as a request does, so that more requests than fit with all their tokens can
    be on clients at one time: bounds do without the memory then.
    """
    memory = worker.memory
    return None if memory is None or memory.is_paged else memory


def jobs_on(instance: Instance, worker: Worker, chunks: bool = False) -> tuple[list[int], Jobs]:
    """Return the rows of the requests that a worker can serve, and these requests.

    ``chunks``: prompts above the worker's limit can be prefilled in chunks.
    """
    req = instance.requests
    fits = np.ones(len(req), bool)
    if worker.prefill_limit is not None and not chunks:
        fits &= req.prompt_tokens <= worker.prefill_limit
    if memory := whole_memory(worker):
        fits &= _blocks(instance, worker) <= memory.blocks
    rows = np.flatnonzero(fits)
    return rows.tolist(), _jobs(instance, worker, rows)


def _jobs(instance: Instance, worker: Worker, rows: IntColumn) -> Jobs:
    blocks = _blocks(instance, worker)[rows]
    clients = min(worker.clients, len(rows))
    if memory := whole_memory(worker):
        together = int((np.cumsum(np.sort(blocks)) <= memory.blocks).sum())
        clients = min(clients, together)
    return Jobs(
        instance.requests.prompt_tokens[rows], instance.rounds_needed[rows], blocks, clients
    )


def _blocks(instance: Instance, worker: Worker) -> IntColumn:
    req, memory = instance.requests, whole_memory(worker)
    if memory is None:
        return np.zeros(len(req), np.int64)
    held: IntColumn = -(-(req.prompt_tokens + req.output_tokens) // memory.block_tokens)
    return held


def released_after(instance: Instance, jobs: Jobs, moment: int) -> Jobs:
    """Return the jobs with arrival at or after a moment."""
    later = instance.requests.arrival_ns >= moment
    return Jobs(jobs.prompts[later], jobs.rounds[later], jobs.blocks[later], jobs.clients)


def sum_of_products(a: IntColumn, b: IntColumn) -> int:
    """Exact sum of a * b, in Python integers where 64 bits could overflow."""
    if len(a) == 0:
        return 0
    if int(a.max()) * int(b.max()) * len(a) < 2**62:
        return int((a * b).sum())
    return int((a.astype(object) * b.astype(object)).sum())


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
