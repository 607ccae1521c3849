"""The checker's own figures of what workers were used for: batches, padding, memory, ends."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.intervals import exact_product, exact_sum

if TYPE_CHECKING:
    from orsched.checker.reading import Reading


def pad_tokens(r: Reading) -> int:
    """Tokens that padding workers process beside those of the prefill rows."""
    return exact_sum(r.loads.padded) - exact_sum(r.loads.total)


def batch_sizes(r: Reading) -> dict[str, float | None]:
    """Mean prefill rows of a step that has some, and mean active requests of a round."""
    s, loads = r.stays, r.loads
    rounds = int(r.rounds_before[-1])
    taken = exact_sum(s.rounds[s.runs])
    return {
        "prefill": len(loads.tokens) / len(loads.size) if len(loads.size) else None,
        "decode": taken / rounds if rounds else None,
    }


def worker_ends(r: Reading) -> dict[str, Any]:
    """When workers are done: first, last, and the population standard deviation."""
    heads = r.heads().tolist()
    ends = [int(r.end[stop - 1]) if stop > start else 0 for start, stop in pairwise(heads)]
    count = len(ends)
    spread = count * sum(end * end for end in ends) - sum(ends) ** 2
    return {"min": min(ends), "max": max(ends), "std": math.sqrt(spread) / count}


def kv_blocks(r: Reading, makespan: int) -> dict[str, Any] | None:
    """Most blocks that a worker holds, and blocks by time; None if no worker has a memory."""
    limited = np.array([worker.memory is not None for worker in r.instance.workers], bool)
    many = int(limited.sum())
    if not many:
        return None
    held = r.caches.blocks
    block_ns = exact_product(held, r.end - r.start)
    return {
        "peak": int(held.max(initial=0)),
        "mean": block_ns / (many * makespan) if makespan else None,
        "block_ns": block_ns,
    }
