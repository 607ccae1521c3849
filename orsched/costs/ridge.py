"""The ridge of a cost model: the tokens of a step up to which time goes to reading the weights."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.costs.exact import round_half_up
from orsched.costs.roofline import RooflineCost

if TYPE_CHECKING:
    from orsched.costs.protocol import CostModel

_FAR = 1 << 14
"""Requests of a round that is beyond any ridge."""

_LEAST = 16
"""Tokens: below so many what looks like a ridge is the rounding of times."""


def ridge_tokens(cost: CostModel) -> int:
    """Return the tokens of a step at which computing takes as long as reading the weights.

    Below the ridge a step takes the time of its weights, so that prompt tokens beside a round cost
    nothing but their attention; above it each token adds its time. Of a roofline it is ``weights /
    token`` (Williams, Waterman and Patterson, *Roofline*, 2009), rounded to a whole token. Of any
    model it is where the straight line through rounds of many requests, their contexts left out,
    meets the time of a round of one: ``x`` with ``T(F) - slope (F - x) = T(1)``, F = 16,384.

    Raises ``InputError`` where there is none: each token takes time from the first on (affine and
    linear models), or none does.

    >>> from orsched.costs import RooflineCost
    >>> ridge_tokens(RooflineCost.from_s(fixed=0, weights=0.018, token=1e-4, context=0, attended=0))
    180
    """
    if type(cost) is RooflineCost:  # what the host takes for a request is not computing
        cost = replace(cost, request_fs=0)
    one, far, farther = (cost.round_ns(many, 0, 0) for many in (1, _FAR, 2 * _FAR))
    slope = farther - far
    tokens = 0
    if slope > 0:
        found = _FAR * (1 - Fraction(far - one, slope))
        tokens = round_half_up(found.numerator, found.denominator)
    if tokens < _LEAST:
        raise InputError(
            f"the {cost.model} cost model has no ridge: tokens take the same time in any step",
            field="max_num_batched_tokens",
            remedy="give a number of tokens, such as 2048",
        )
    return tokens
