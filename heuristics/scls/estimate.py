"""Estimated serving time of a batch: the worker's cost as a bilinear one (SCLS, eq. 1-4)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from orsched.costs import BilinearCost, as_bilinear
from orsched.costs.bilinear import COEFFICIENTS
from orsched.costs.exact import FS_PER_NS, MAX_COEFFICIENT_FS

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.data.workers import Worker

LONGEST = 2048
"""Tokens up to which other cost models are sampled: the longest total of the paper's settings."""


def bilinear_of(worker: Worker) -> BilinearCost:
    """Return the bilinear model by which a worker's batches are estimated.

    A cost that states to be bilinear is its own estimate. Any other is sampled at the four corners
    of 1 to J requests by 1 to 2,048 tokens, and the bilinear function through them is taken: exact
    where the cost is one, as the affine model is. Negative coefficients count as 0, so that no
    estimate is negative; what a batch really takes is up to the worker.
    """
    cost, known = worker.cost, as_bilinear(worker.cost)
    if known is not None:
        names = [f.name for f in fields(known) if f.name.endswith("_fs")]
        negative = {name: 0 for name in names if getattr(known, name) < 0}
        return replace(known, **negative) if negative else known
    most, longest = _ranges(worker)
    rounds = _through_corners(lambda n, c: cost.round_ns(n, n * c, c), max(2, worker.clients))
    if longest < 2:
        stages = [0, 0, 0, min(MAX_COEFFICIENT_FS, cost.prefill_ns([1]) * FS_PER_NS)]
    else:
        stages = _through_corners(lambda n, c: cost.prefill_ns([c] * n), most, longest)
    return BilinearCost(**dict(zip(COEFFICIENTS, (*stages, *rounds), strict=True)))


def _ranges(worker: Worker) -> tuple[int, int]:
    """Return how many requests of how many tokens a sampled prefill stage may have."""
    limit = worker.prefill_limit
    most = min(64, max(2, worker.clients))
    if limit is None:
        return most, LONGEST
    longest = min(LONGEST, limit // 2)
    return (max(2, min(most, limit // longest)) if longest else 2), longest


def _through_corners(
    value_ns: Callable[[int, int], int], most: int, longest: int = LONGEST
) -> list[int]:
    """Return the four coefficients, in femtoseconds, through the values at the corners."""
    low, long = value_ns(1, 1) * FS_PER_NS, value_ns(1, longest) * FS_PER_NS
    many, both = value_ns(most, 1) * FS_PER_NS, value_ns(most, longest) * FS_PER_NS
    wide, tall = most - 1, longest - 1
    cross = (both - many - long + low) // (wide * tall)
    each = (many - low) // wide - cross
    token = (long - low) // tall - cross
    alone = low - cross - each - token
    return [min(max(value, 0), MAX_COEFFICIENT_FS) for value in (cross, each, token, alone)]
