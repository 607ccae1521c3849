"""Choose the method and answer: the public function of the DP batcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.models.batch import fast, lines, reference
from orsched.models.batch.problem import build, linear_in_size
from orsched.models.batch.result import make

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from orsched.costs import CostModel
    from orsched.models.batch.memory import BatchMemory
    from orsched.models.batch.problem import Problem
    from orsched.models.batch.result import Batches

METHODS = {
    "reference": reference.boundaries,
    "fast": fast.boundaries,
    "lines": lines.boundaries,
}
MAX_FAST_WORK = 10**9


def batch(
    lengths: ArrayLike,
    cost: CostModel,
    slice_tokens: int,
    memory: BatchMemory | None = None,
    max_batch: int | None = None,
    method: str = "auto",
) -> Batches:
    """Partition requests into batches of least total serving time (SCLS, Algorithm 1, eq. 10).

    A batch of N requests with longest prompt L and slice S takes
    ``prefill(N, L) + sum over l = 1..S of round(N, L + l)`` (SCLS, eq. 1-4). What is minimised is
    the exact sum in femtoseconds, which is linear in N; what is reported are the cost model's
    times, rounded to nanoseconds. ``Batches.rounding_ns`` bounds what that can make.

    All methods return the same partition; of equally good last batches the smallest is taken.

    Args:
        lengths: (n,) prompt tokens of the requests, at least 1, in any order.
        cost: coefficients p1..p4, d1..d4; they may be negative where no batch's time is.
        slice_tokens: S, rounds that every batch runs, at least 1.
        memory: rule for the largest batch; None: no limit.
        max_batch: another limit on the number of requests in a batch; None: none.
        method: ``reference`` (the published loop), ``fast`` (numpy, a group of equal lengths at
            a time), ``lines`` (line queries, any size of numbers) or ``auto``.

    Raises:
        InputError: a length is not a whole number of at least 1, a request does not fit into the
            memory even alone, an admissible batch would take a negative time, the cost is not
            bilinear, a time exceeds 2**62 ns, or the method is unknown.
    """
    if method != "auto" and method not in METHODS:
        remedy = known_names(method, ["auto", *METHODS], "one of ")
        raise InputError(f"{method!r} is not a method", field="method", remedy=remedy)
    bilinear = linear_in_size(cost)
    problem = build(lengths, bilinear, slice_tokens, memory, max_batch)
    why = "as asked"
    if method == "auto":
        method, why = choose(problem)
    if method == "lines":
        why += f"; {lines.structure(problem)}"
    cuts = METHODS[method](problem) if len(problem) else [0]
    return make(problem, cuts, bilinear, slice_tokens, method, why)


def choose(problem: Problem) -> tuple[str, str]:
    """Return the method for ``auto`` and the reason."""
    conditions = problem.conditions
    if conditions["slope_grows"] and conditions["windows_advance"]:
        return "lines", "queries and windows come in order"
    work = sum(min(size, end) for size, end in zip(problem.sizes, problem.ends, strict=True))
    if work <= MAX_FAST_WORK and fast.fits(problem):
        return "fast", "queries or windows are out of order, and the numbers fit into 64 bits"
    return "lines", "queries or windows are out of order, and numpy would be slow or overflow"
