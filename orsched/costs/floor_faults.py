"""A stated floor tested on random steps: this finds mistakes and proves nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from orsched.costs.floor import floor_of
from orsched.costs.protocol import mixed_ns

if TYPE_CHECKING:
    from orsched.costs.protocol import CostModel


def floor_faults(cost: CostModel, steps: int = 1_000, seed: int = 0) -> list[str]:
    """Return the random steps that take less than the floor that a cost model states of them.

    Of 1 to 256 requests with prompts and contexts of 1 to about 4,096 tokens; prefills within the
    model's own limit, and an exact floor is compared for equality. Empty: none was found, or no
    floor is stated.
    """
    floor, rng, found = floor_of(cost), random.Random(seed), []
    if floor is None:
        return []
    limit = cost.prefill_limit
    for _ in range(steps):
        prompts = [_tokens(rng) for _ in range(int(2 ** rng.uniform(0, 8)))]
        while limit is not None and sum(prompts) > limit and len(prompts) > 1:
            prompts.pop()
        contexts = [_tokens(rng) for _ in range(int(2 ** rng.uniform(0, 8)))]
        load = (len(contexts), sum(contexts), max(contexts))
        pairs = [("round", cost.round_ns(*load), floor.round_ns(*load))]
        if limit is None or sum(prompts) <= limit:
            pairs.append(("stage", cost.prefill_ns(prompts), floor.prefill_ns(prompts)))
            both = mixed_ns(cost, prompts, *load), floor.mixed_ns(prompts, *load)
            pairs.append(("mixed step", *both))
        for what, time, least in pairs:
            if time < least or (floor.exact and what != "mixed step" and time != least):
                text = f"a {what} takes {time} ns, its floor {least} ns"
                found.append(f"{text}: prompts {prompts}, contexts {contexts}")
    return found


def _tokens(rng: random.Random) -> int:
    return int(2 ** rng.uniform(0, 12))
