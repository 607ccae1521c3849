"""Levels smoothed into a line: the cost under which a search at full scale begins.

Under levels the price of a start bends with the number of starts, so a start hardly ever leaves a
stage, and windows that fit are found late. On the line through the smallest and the largest level
all starts cost the same. What it finds is then carried out, and searched further, under the levels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orsched.costs import AffineCost, floor_of

if TYPE_CHECKING:
    from orsched.data.instance import Instance


def smoothed(instance: Instance) -> Instance | None:
    """Return the instance with a fixed time and a time a token in the levels' place.

    None where the cost has no levels, only one, or a line through them that begins below 0.
    """
    worker = instance.worker
    floor, limit = floor_of(worker.cost), worker.prefill_limit
    if floor is None or floor.stage.levels is None or limit is None:
        return None
    levels = [(cap, time) for cap, time in floor.stage.levels if cap <= limit]
    if len(levels) < 2:
        return None
    (small, short), (large, long) = levels[0], levels[-1]
    token_ns = (long - short) // (large - small)
    fixed_ns = short - token_ns * small
    if fixed_ns < 0:
        return None
    line = AffineCost(
        prefill_fixed_ns=fixed_ns,
        prefill_token_ns=token_ns,
        round_fixed_ns=floor.round.fixed,
        round_client_ns=floor.round.request,
    )
    return instance.replace(workers=replace(worker, cost=line, prefill_cap_tokens=limit))
