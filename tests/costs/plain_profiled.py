"""The formula of the profiled cost model as its docstring states it, in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs import ProfiledCost


def plain_ns(
    cost: ProfiledCost,
    prompts: Sequence[int],
    cached: Sequence[int],
    active: int,
    context_sum: int,
) -> int:
    """Duration of a step of chunks behind cached tokens, beside a round of active requests."""
    tokens = sum(prompts)
    time = cost.fixed_ns + cost.dense.at(tokens + active)
    if cost.per_sequence is not None:
        time += cost.per_sequence.at(len(prompts) + active)
    for chunk, before in zip(prompts, cached, strict=True):
        time += cost.prefill.at(chunk, before)
    if active:
        time += cost.decode.at(tokens, active, Fraction(context_sum, active))
    return (time + Fraction(1, 2)).__floor__() * cost.time_scale
