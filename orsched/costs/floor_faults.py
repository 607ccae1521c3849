"""A stated floor tested on random steps: this finds mistakes and proves nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from orsched.costs.floor import floor_of
from orsched.costs.protocol import knows_cached, mixed_ns, prefill_ns

if TYPE_CHECKING:
    from orsched.costs.protocol import CostModel


BEHIND = ("stage of later chunks", "mixed step of later chunks")


def floor_faults(cost: CostModel, steps: int = 1_000, seed: int = 0) -> list[str]:
    """Return the random steps that take less than the floor that a cost model states of them.

    Of 1 to 256 requests with prompts and contexts of 1 to about 4,096 tokens; prefills within the
    model's own limit, and an exact floor is compared for equality. Each is also tried behind random
    numbers of cached tokens if the model is told of them. Empty: none was found, or no floor is
    stated.
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
        cached: list[int] = []
        pairs = [("round", cost.round_ns(*load), floor.round_ns(*load))]
        if limit is None or sum(prompts) <= limit:
            pairs.append(("stage", cost.prefill_ns(prompts), floor.prefill_ns(prompts)))
            both = mixed_ns(cost, prompts, *load), floor.mixed_ns(prompts, *load)
            pairs.append(("mixed step", *both))
            if knows_cached(cost):
                cached = [_tokens(rng) for _ in prompts]
                times = prefill_ns(cost, prompts, cached), mixed_ns(cost, prompts, *load, cached)
                pairs.append((BEHIND[0], times[0], floor.prefill_ns(prompts)))
                pairs.append((BEHIND[1], times[1], floor.mixed_ns(prompts, *load)))
        for what, time, least in pairs:
            if time < least or (floor.exact and what in ("stage", "round") and time != least):
                text = f"a {what} takes {time} ns, its floor {least} ns"
                behind_them = f", cached {cached}" if what in BEHIND else ""
                found.append(f"{text}: prompts {prompts}, contexts {contexts}{behind_them}")
    return found


def _tokens(rng: random.Random) -> int:
    return int(2 ** rng.uniform(0, 12))
