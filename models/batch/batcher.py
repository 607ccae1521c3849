"""Choose the method and answer: the public function of the DP batcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from orsched.common.columns import IntColumn, exact_sum, frame
from orsched.common.errors import InputError, known_names
from orsched.common.registry import attached
from orsched.common.units import NS_PER_S, seconds_text
from orsched.models.batch.batch_problem import build, linear_in_size
from orsched.models.batch.recurrences import as_printed, by_groups, by_lines, by_lines_holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from orsched.costs import BilinearCost, CostModel
    from orsched.models.batch.batch_problem import BatchMemory, Problem

MAX_SERVING_NS = 2**62


@dataclass(frozen=True, eq=False)
class Batches:
    """A partition of requests into batches, and what is proven of it.

    Attributes:
        lengths: (n,) prompt tokens of each request, in the rows as given.
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

    lengths: IntColumn = field(repr=False)
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

    @property
    def assignment(self) -> IntColumn:
        """Batch of each request, in the rows as given."""
        found = np.empty(len(self.order), np.int64)
        found[self.order] = np.repeat(np.arange(len(self)), self.sizes)
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with a row for each request: its batch, that batch's longest prompt
        in tokens and its time in seconds."""
        batch = self.assignment
        return frame({
            "request": range(len(batch)), "length": self.lengths, "batch": batch,
            "padded_to": self.longest[batch], "batch_s": self.serving_ns[batch] / NS_PER_S,
        })  # fmt: skip

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each request as a bar of its length, with the padding of its batch above it."""
        drawn: Axes = attached("batches_chart")(
            self.lengths[self.order], self.boundaries, self.longest, ax
        )
        return drawn

    def __repr__(self) -> str:
        return (
            f"Batches: {len(self.order):,} requests in {len(self):,} batches, "
            f"{seconds_text(self.total_ns / NS_PER_S)} s, least over {self.optimal_over}"
        )


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
    requests = np.empty(len(problem), np.int64)
    requests[problem.order] = np.repeat(
        np.array(problem.lengths, np.int64), np.diff([0, *problem.ends])
    )
    for values in (boundaries, longest, column, requests):
        values.setflags(write=False)
    conditions = problem.conditions
    everywhere = conditions["batch_time_grows"] and conditions["largest_batch_falls"]
    return Batches(
        requests,
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


METHODS = {
    "reference": as_printed,
    "fast": by_groups,
    "lines": by_lines,
}


def batch(
    lengths: ArrayLike,
    cost: CostModel,
    slice_tokens: int,
    memory: BatchMemory | None = None,
    max_batch: int | None = None,
    method: str = "auto",
) -> Batches:
    """Partition requests into batches of least total serving time (SCLS, Algorithm 1, eq. 10).

    >>> from orsched import AffineCost
    >>> found = batch([9, 10, 800, 11, 900], AffineCost(), slice_tokens=16, max_batch=4)
    >>> [rows.tolist() for rows in found]
    [[0, 1, 3], [2, 4]]

    A batch of N requests with longest prompt L and slice S takes
    ``prefill(N, L) + sum over l = 1..S of round(N, L + l)`` (SCLS, eq. 1-4). What is minimised is
    the exact sum in femtoseconds, which is linear in N; what is reported are the cost model's
    times, rounded to nanoseconds. ``Batches.rounding_ns`` bounds what that can make.

    All methods return the same partition; of equally good last batches the smallest is taken.

    Args:
        lengths: (n,) prompt tokens of the requests, at least 1, in any order.
        cost: a ``BilinearCost``, whose coefficients may be negative where no batch's time is, or a
            model that states to be one (``as_bilinear``), as ``AffineCost`` does.
        slice_tokens: S, rounds that every batch runs, at least 1.
        memory: rule for the largest batch; None: no limit.
        max_batch: another limit on the number of requests in a batch; None: none.
        method: ``reference`` (the published loop), ``fast`` (numpy, a group of equal lengths at
            a time), ``lines`` (line queries, for costs and memory rules of the usual kind) or
            ``auto``: ``lines`` where it applies, else ``fast``.

    Raises:
        InputError: a length is not a whole number of at least 1, or a request does not fit into
            the memory even alone. A time is negative or exceeds 2**62 ns, or the cost is not
            bilinear. The method is unknown or does not apply.
    """
    if method != "auto" and method not in METHODS:
        remedy = known_names(method, ["auto", *METHODS], "one of ")
        raise InputError(f"{method!r} is not a method", field="method", remedy=remedy)
    bilinear = linear_in_size(cost)
    problem = build(lengths, bilinear, slice_tokens, memory, max_batch)
    why = "as asked"
    if method == "auto":
        method, why = choose(problem)
    elif method == "lines" and not by_lines_holds(problem):
        raise InputError(
            "lines needs queries and windows in order (``Batches.conditions``)",
            field="method",
            remedy="take auto, fast or reference",
        )
    cuts = METHODS[method](problem) if len(problem) else [0]
    return make(problem, cuts, bilinear, slice_tokens, method, why)


def choose(problem: Problem) -> tuple[str, str]:
    """Return the method for ``auto`` and the reason."""
    if by_lines_holds(problem):
        return "lines", "queries and windows come in order"
    return "fast", "queries or windows are out of order"
