"""The requests that a bound is about: those that fit onto a worker, or are released later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.memory import BlockMemory
    from orsched.data.workers import Worker


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
