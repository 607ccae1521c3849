"""A search for good schedules of the unit-round model: annealing over orders of requests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.costs.unit_rounds import ROUND_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from orsched.instance import Instance

_HOT, _COLD = 30.0, 0.5
"""Rounds of total latency that are given up with probability 1/e, at first and at last."""
_REACH = 12
"""Places by which a request moves in the order, at most one less."""
_PLAIN = 20_000
"""Placements that take less time than loading what numba has compiled."""


def search(
    instance: Instance, starts: list[int], iterations: int = 2000, seed: int = 0
) -> list[int]:
    """Return starts with no greater sum than those given, of a feasible schedule.

    In the order of a state each request starts as early as it can beside those before it, so that
    later ones may fill the rounds before earlier ones. A move exchanges two requests that are near
    each other in the order, or takes one to another place. Annealing from the order of the given
    starts; no schedule with evictions is looked at. With numba (extra ``fast``) the same search is
    a hundred times as fast.

    Args:
        instance: of the unit-round model.
        starts: the round in which each request starts, feasible.
        iterations: moves that are tried.
        seed: of the search.
    """
    from orsched.instances.streams import stream

    requests = instance.requests
    memory = instance.worker.memory
    assert memory is not None
    n = len(requests)
    if n < 2 or iterations < 1:
        return starts
    arrivals = requests.arrival_ns // ROUND_NS
    horizon = int(arrivals.max() + requests.output_tokens.sum() + memory.blocks) + 2
    draw = stream("unit-rounds/search", seed)
    first = draw.integers(0, n, iterations)
    by = draw.integers(1, _REACH, iterations) * draw.choice([-1, 1], iterations)
    loop = anneal if n * iterations <= _PLAIN else _compiled()
    total, found = loop(
        np.array(sorted(range(n), key=lambda i: (starts[i], i))),
        requests.prompt_tokens.astype(np.int64),
        requests.output_tokens.astype(np.int64),
        arrivals.astype(np.int64),
        memory.blocks,
        np.zeros(horizon, np.int64),
        np.stack([first, (first + by).clip(0, n - 1)], axis=1),
        draw.random(iterations) < 0.5,
        -np.log(draw.random(iterations)) * np.geomspace(_HOT, _COLD, iterations),
    )
    return found.tolist() if total < sum(starts) else starts


def anneal(
    order: NDArray[np.int64],
    prompts: NDArray[np.int64],
    outputs: NDArray[np.int64],
    arrivals: NDArray[np.int64],
    memory: int,
    held: NDArray[np.int64],
    moves: NDArray[np.int64],
    exchanges: NDArray[np.bool_],
    losses: NDArray[np.float64],
) -> tuple[int, NDArray[np.int64]]:
    """Return the least sum of starts and the starts; first without a move, then one each.

    Args:
        order: of the requests, changed.
        prompts, outputs, arrivals: by request.
        memory: tokens.
        held: room for the tokens held in each round.
        moves: two places each.
        exchanges: whether the two exchange places, else the first goes to the second's.
        losses: by how much the sum may grow, exclusive.
    """
    n = order.size
    now, best = -1, -1
    starts, found, trial = np.zeros_like(order), np.zeros_like(order), order.copy()
    for step in range(moves.shape[0] + 1):
        trial[:] = order
        if step:
            a, b = moves[step - 1]
            if a == b:
                continue
            moved = order[a]
            if exchanges[step - 1]:
                trial[a], trial[b] = order[b], moved
            elif a < b:
                trial[a:b], trial[b] = order[a + 1 : b + 1], moved
            else:
                trial[b + 1 : a + 1], trial[b] = order[b:a], moved
        held[:] = 0
        total = 0
        for place in range(n):
            i = trial[place]
            prompt, output, start = prompts[i], outputs[i], arrivals[i]
            age = output
            while age:  # from its last round back, until every one fits
                free = memory - held[start + age] - prompt
                if age <= free:
                    age -= 1
                    continue
                start += age - max(free, 0)  # the first start with which that round does fit
                age = output
            for age in range(1, output + 1):
                held[start + age] += prompt + age
            starts[i] = start
            total += start
        if now < 0 or total < now + losses[step - 1]:
            now = total
            order[:] = trial
            if best < 0 or total < best:
                best = total
                found[:] = starts
    return best, found


@cache
def _compiled() -> Callable[..., Any]:
    """Return ``anneal``, compiled where numba is there; numba keeps it for the next time."""
    try:
        import numba
    except ImportError:
        return anneal
    compiled: Callable[..., Any] = numba.njit(cache=True)(anneal)
    return compiled
