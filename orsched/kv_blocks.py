"""KV-cache blocks that the requests on each worker hold, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.columns import exact_sum
from orsched.intervals import covered_at_least, covered_max, covered_sum

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.memory import BlockMemory
    from orsched.timeline import Timeline


def blocks_held(instance: Instance, line: Timeline) -> IntColumn:
    """Return the blocks held on the step's worker in each step, by place; 0 without memory.

    Every request that is on a client counts, in the steps that do not serve it as well. Where
    allocation is whole a request holds its blocks throughout; where it is paged, those of its cache
    after the step's last round, and on a padding worker as many as the longest present one.
    """
    result = np.zeros(len(line.order), np.int64)
    heads = line.heads(len(instance.workers))
    stays_of, rows_of = _split(line.stay_worker, instance), _split(line.row_worker, instance)
    for index, worker in enumerate(instance.workers):
        if worker.memory is None:
            continue
        low, high = int(heads[index]), int(heads[index + 1])
        stays, rows = stays_of(index), rows_of(index)
        held = _Held(line, worker.memory, low, high)
        if not worker.memory.is_paged:
            result[low:high] = held.whole(instance, stays)
        elif worker.padding:
            result[low:high] = held.padded(stays, rows)
        else:
            result[low:high] = held.paged(rows)
    return result


def kv_figures(instance: Instance, line: Timeline, makespan_ns: int) -> dict[str, Any] | None:
    """Return peak, mean and sum over time of the blocks held; None without memory models.

    ``peak`` is the most on one worker in a step, ``block_ns`` the blocks times the duration of each
    step, ``mean`` that per worker with memory and nanosecond of the makespan.
    """
    workers = sum(worker.memory is not None for worker in instance.workers)
    if workers == 0:
        return None
    held = blocks_held(instance, line)
    block_ns = _exact_product(held, line.end_ns - line.start_ns)
    return {
        "peak": int(held.max(initial=0)),
        "mean": block_ns / (workers * makespan_ns) if makespan_ns else None,
        "block_ns": block_ns,
    }


def _split(owner: IntColumn, instance: Instance) -> Any:
    """Return a function from a worker to the rows that it owns."""
    if len(instance.workers) == 1:
        return lambda _: np.arange(len(owner))
    order = np.argsort(owner, kind="stable")
    borders = np.searchsorted(owner[order], np.arange(len(instance.workers) + 1))
    return lambda worker: order[borders[worker] : borders[worker + 1]]


class _Held:
    """Blocks held in the steps of one worker, whose places run from ``low`` to ``high - 1``."""

    def __init__(self, line: Timeline, memory: BlockMemory, low: int, high: int) -> None:
        self.line, self.size = line, memory.block_tokens
        self.low, self.n = low, high - low
        self.rounds_after = line.rounds_before[low + 1 : high + 1]

    def whole(self, instance: Instance, stays: IntColumn) -> IntColumn:
        """Blocks for prompt and answer, set aside throughout."""
        line, table = self.line, instance.requests
        request = line.stay_request[stays]
        tokens = table.prompt_tokens[request] + table.output_tokens[request]
        first, last = line.stay_first[stays] - self.low, line.stay_last[stays] - self.low
        return covered_sum(self.n, first, last, -(-tokens // self.size))

    def paged(self, rows: IntColumn) -> IntColumn:
        """Blocks of each cache, rounded up one by one."""
        first, last, base = self._growing(rows)
        # ceil((base + R) / size) = (base - 1) // size + R // size + 1, and one more where the two
        # remainders add up to a block.
        quotient, rest = np.divmod(base - 1, self.size)
        blocks, filled = np.divmod(self.rounds_after, self.size)
        growing = covered_sum(self.n, first, last, quotient + 1)
        growing += covered_sum(self.n, first, last) * blocks
        growing += covered_at_least(first, last, rest, self.size - filled)
        first, last, tokens = self._resting(rows)
        return growing + covered_sum(self.n, first, last, -(-tokens // self.size))

    def padded(self, stays: IntColumn, rows: IntColumn) -> IntColumn:
        """Blocks of the longest cache for every request that is present."""
        line = self.line
        present = covered_sum(
            self.n, line.stay_first[stays] - self.low, line.stay_last[stays] - self.low
        )
        growing = covered_max(self.n, *self._growing(rows)) + self.rounds_after
        longest = np.maximum(growing, covered_max(self.n, *self._resting(rows)))
        return np.where(present > 0, present * -(-longest // self.size), 0)

    def _growing(self, rows: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
        """Places of the rows that yield tokens, and their caches less the worker's rounds."""
        line = self.line
        rows = rows[~line.is_prefill[rows]]
        first = line.first[rows]
        base = line.cached[rows] - line.rounds_before[first]
        return first - self.low, line.last[rows] - self.low, base

    def _resting(self, rows: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
        """Places from the end of each row to the next one of its stay, and the cache there.

        A cache has its size from the one step of a prefill row on, and from the step after the
        others.
        """
        line = self.line
        is_prefill, last = line.is_prefill[rows], line.last[rows]
        begin = np.where(is_prefill, last, last + 1)
        following = np.minimum(rows + 1, len(line.first) - 1)
        is_last = line.stay_end[line.stay_of[rows]] == rows
        end = np.where(is_last, last, line.first[following] - 1)
        grown = np.where(is_prefill, line.work.tokens[rows], line.row_rounds[rows])
        kept = end >= begin
        tokens = line.cached[rows] + grown
        return begin[kept] - self.low, end[kept] - self.low, tokens[kept]


def _exact_product(counts: IntColumn, times_ns: IntColumn) -> int:
    """Sum of products of counts up to 2**31 and times up to 2**62, without overflow."""
    high, low = times_ns >> 31, times_ns & (2**31 - 1)
    return (exact_sum(counts * high) << 31) + exact_sum(counts * low)
