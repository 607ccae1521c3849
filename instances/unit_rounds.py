"""Unit rounds: the model of the theory papers in the terms of orsched, and their instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.columns import whole_number
from orsched.costs.unit_rounds import ROUND_NS, UNIT_COST
from orsched.errors import InputError
from orsched.instance import Instance
from orsched.instances.streams import stream
from orsched.instances.synthetic import MAX_REQUESTS
from orsched.memory import BlockMemory
from orsched.requests import Requests
from orsched.scalars import require_bool, require_number
from orsched.units import MAX_TOKENS
from orsched.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence


def unit_instance(
    prompts: Sequence[int],
    outputs: Sequence[int],
    arrivals: Sequence[int],
    memory_tokens: int,
    name: str = "unit-rounds",
    description: str = "The unit-round model.",
) -> Instance:
    """Return an instance of the unit-round model (Jaillet et al., arXiv 2502.07115).

    A request that is started at round k is prefilled in no time, takes part in rounds k + 1 to
    k + o, holds s + (t - k) tokens in round t, and is done at k + o. There are as many clients as
    requests, so that memory alone limits a round.

    Args:
        prompts: s, prompt tokens of each request.
        outputs: o, output tokens of each.
        arrivals: a, the round before which each cannot start.
        memory_tokens: M, tokens that the requests of a round hold together at most.
        name, description: of the instance.

    Raises:
        InputError: an argument is wrong, or a request does not fit alone.
    """
    memory = whole_number(memory_tokens, "memory_tokens", minimum=1, maximum=MAX_TOKENS)
    times = [whole_number(each, "arrivals", maximum=MAX_TOKENS) * ROUND_NS for each in arrivals]
    requests = Requests(list(prompts), list(outputs), times)
    largest = int((requests.prompt_tokens + requests.output_tokens).max(initial=0))
    if largest > memory:
        raise InputError(
            f"a request holds {largest} tokens in the end, more than {memory}",
            field="memory_tokens",
            remedy="give more memory or shorter requests",
        )
    worker = Worker(max(len(requests), 1), UNIT_COST, None, BlockMemory(memory, 1, "paged"))
    return Instance(
        requests,
        (worker,),
        first_token="decode",
        output_limit_tokens=memory,
        name=name,
        description=description,
        source="generated",
        licence="Apache-2.0",
    )


def unit_rounds(
    seed: int = 0,
    online: bool = False,
    requests: int | None = None,
    memory_tokens: int | None = None,
    rate: float | None = None,
) -> Instance:
    """Return an instance of the unit-round model as Jaillet et al. draw them.

    All draws are uniform over whole numbers, ends included: M from 30 to 50, s from 1 to 5, o from
    1 to M - s. Either 40 to 60 requests are there at 0 (their model 1); or arrivals are Poisson
    over 40 to 60 rounds with a rate of 0.5 to 1.5 a round (their model 2). How arrivals share a
    round is our choice: the number of each round from 1 on is drawn by itself.

    Args:
        seed: of all that is drawn.
        online: whether requests arrive over time.
        requests: how many are there at 0, in place of the draw; only where none arrive later.
        memory_tokens: M, at least 6, in place of the draw.
        rate: requests a round, in place of the draw; only where they arrive over time.

    Raises:
        InputError: an argument is wrong.
    """
    require_bool(online, "online")
    if online and requests is not None:
        raise InputError("arrivals are drawn", field="requests", remedy="leave it out, or set rate")
    if not online and rate is not None:
        raise InputError("all are there at 0", field="rate", remedy="set online to true")
    draw = stream("unit-rounds", seed)
    memory, count, rounds = (int(draw.integers(low, high + 1)) for low, high in _SPANS)
    share = 0.5 + draw.random()
    if memory_tokens is not None:
        memory = whole_number(memory_tokens, "memory_tokens", minimum=6, maximum=MAX_TOKENS)
    arrivals = [0] * (
        count if requests is None else whole_number(requests, "requests", maximum=MAX_REQUESTS)
    )
    if online:
        if rate is not None:
            require_number(rate, "rate", 0, 1_000_000)
            share = rate
        numbers = draw.poisson(share, rounds)
        arrivals = np.repeat(np.arange(1, rounds + 1), numbers).tolist()
    prompts = draw.integers(1, 6, len(arrivals))
    outputs = draw.integers(1, memory - prompts + 1)
    kind = "online" if online else "at-0"
    return unit_instance(
        prompts.tolist(),
        outputs.tolist(),
        arrivals,
        memory,
        f"unit-rounds-{kind}-seed{seed}",
        "The unit-round model: lengths and arrivals as Jaillet et al. draw them.",
    )


_SPANS = ((30, 50), (40, 60), (40, 60))
"""Least and greatest value of M, of the requests at 0, and of the rounds with arrivals."""
