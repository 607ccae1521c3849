"""The answer of the DP batcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from orsched.common.columns import IntColumn, exact_sum
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.costs import BilinearCost
    from orsched.models.batch.problem import Problem

MAX_SERVING_NS = 2**62


@dataclass(frozen=True, eq=False)
class Batches:
    """A partition of requests into batches, and what is proven of it.

    Attributes:
        order: (n,) row of each request, by length and then by row.
        boundaries: (batches + 1,) batch b holds ``order[boundaries[b]:boundaries[b + 1]]``.
        longest: (batches,) longest prompt of each batch, tokens.
        serving_ns: (batches,) time of each batch by the cost model, stage and rounds rounded.
        total_ns: their sum.
        total_fs: the exact sum, in femtoseconds before any rounding, that is minimal.
        method: ``reference``, ``fast`` or ``lines``.
        why: why this method.
        optimal_over: the set in which ``total_fs`` is proven least.
        conditions: what was checked: ``batch_time_grows`` and ``largest_batch_falls`` with the
            length, on which ``optimal_over`` rests; ``slope_grows`` and ``windows_advance``, on
            which the structure of the line queries rests.
        rounding_ns: most by which ``total_ns`` can exceed the least sum of rounded times.
    """

    order: IntColumn = field(repr=False)
    boundaries: IntColumn = field(repr=False)
    longest: IntColumn = field(repr=False)
    serving_ns: IntColumn = field(repr=False)
    total_ns: int
    total_fs: int
    method: str
    why: str
    optimal_over: Literal["all partitions", "contiguous partitions"]
    conditions: dict[str, bool]
    rounding_ns: int

    def __len__(self) -> int:
        return len(self.serving_ns)

    def __iter__(self) -> Iterator[IntColumn]:
        """Iterate over the batches, each the rows of its requests."""
        cuts = self.boundaries.tolist()
        return (self.order[a:b] for a, b in pairwise(cuts))

    @property
    def sizes(self) -> IntColumn:
        """Number of requests of each batch."""
        return np.diff(self.boundaries)


def make(
    problem: Problem,
    cuts: Sequence[int],
    cost: BilinearCost,
    slice_tokens: int,
    method: str,
    why: str,
) -> Batches:
    """Price the batches between these cuts; raises ``InputError`` for times beyond 2**62 ns."""
    boundaries = np.array(cuts, dtype=np.int64)
    sizes = np.diff(boundaries)
    groups = np.searchsorted(np.array(problem.ends, dtype=np.int64), boundaries[1:], side="left")
    longest = np.array(problem.lengths, dtype=np.int64)[groups]
    # Few pairs of number and length are different: price each once.
    kinds, which, counts = np.unique(
        sizes + groups * (len(problem) + 1), return_inverse=True, return_counts=True
    )
    prices, exact = [], 0
    for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        group, size = divmod(kind, len(problem) + 1)
        prices.append(serving_ns(cost, size, problem.lengths[group], slice_tokens))
        exact += (problem.slopes[group] * size + problem.bases[group]) * count
    if max(prices, default=0) > MAX_SERVING_NS:
        raise InputError(
            f"a batch takes {max(prices)} ns, above 2**62",
            field="cost",
            remedy="use a cost model with shorter times",
        )
    column = np.array(prices, dtype=np.int64)[which.reshape(-1)]
    for values in (boundaries, longest, column):
        values.setflags(write=False)
    conditions = problem.conditions
    everywhere = conditions["batch_time_grows"] and conditions["largest_batch_falls"]
    return Batches(
        problem.order,
        boundaries,
        longest,
        column,
        exact_sum(column),
        exact * cost.time_scale,
        method,
        why,
        "all partitions" if everywhere else "contiguous partitions",
        conditions,
        _rounding_ns(cost, slice_tokens, len(sizes) + len(problem)),
    )


def serving_ns(cost: BilinearCost, size: int, longest: int, slice_tokens: int) -> int:
    """Time of a batch in nanoseconds, each stage and round rounded (SCLS eq. 1-4)."""
    first = longest + 1
    rounds = cost.rounds_ns(slice_tokens, size, size * first, first)
    return cost.prefill_ns([longest] * size) + rounds


def _rounding_ns(cost: BilinearCost, slice_tokens: int, batches: int) -> int:
    """Half a nanosecond a stage and a round, for as many batches; 0 if all is whole."""
    whole = all(
        getattr(cost, f"{letter}{number}_fs") % 1_000_000 == 0
        for letter in "pd"
        for number in range(1, 5)
    )
    return 0 if whole else (slice_tokens + 1) * batches * cost.time_scale // 2
