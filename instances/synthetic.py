"""Synthetic workloads: the one on which the peers were timed, and uniform lengths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import is_number
from orsched.common.units import MAX_TIME, MAX_TIME_NS, MAX_TOKENS, NS_PER_S
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances.streams import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.data.memory import BlockMemory

MAX_REQUESTS = 100_000_000


def lognormal_tokens(
    name: str, seed: int, requests: int, mean: float, sigma: float, low: int, high: int
) -> NDArray[np.int64]:
    """Draw rounded log-normal token counts, clipped to low..high.

    ``mean`` is the mean before clipping, ``sigma`` the standard deviation of the logarithm.
    """
    normal = stream(name, seed).standard_normal(requests)
    draws = np.exp(math.log(mean) - sigma * sigma / 2 + sigma * normal)
    return np.clip(np.rint(draws), low, high).astype(np.int64)


def poisson_arrivals_ns(name: str, seed: int, requests: int, rate: float) -> NDArray[np.int64]:
    """Draw the arrival times of a Poisson process of ``rate`` requests a second, in ns.

    Raises ``InputError`` unless the rate is positive and finite.
    """
    if not is_number(rate) or not 0 < rate < math.inf:
        raise InputError(f"{rate!r} is not a rate", field="rate", remedy="give requests a second")
    gaps = stream(name, seed).standard_exponential(requests)
    times = np.cumsum(gaps) * (NS_PER_S / rate)
    if requests and not times[-1] <= MAX_TIME_NS:
        raise InputError(
            f"at {rate!r} a second the last arrival is past {MAX_TIME}",
            field="rate",
            remedy="give a higher rate, or fewer requests",
        )
    return np.rint(times).astype(np.int64)


def peers_workload(
    requests: int = 10_000,
    seed: int = 7,
    burst: bool = False,
    rate: float = 8.0,
    clients: int = 128,
    prefill_cap_tokens: int | None = 2048,
    memory: BlockMemory | None = None,
    first_token: str = "prefill",
) -> Instance:
    """Return the workload on which peer simulators were timed, on one worker.

    Log-normal prompts (mean 68, sigma 0.8, 4 to 1,024 tokens) and outputs (mean 345, sigma 0.7,
    2 to 2,048 tokens), Poisson arrivals at ``rate`` a second, or all at time 0 for ``burst``.
    It is the law of the peers' trace, not the same draws. The worker is affine, with the
    constants of LLaMA-65B, which 8 requests a second overload: its queue grows.

    Args:
        requests: how many.
        seed: of lengths and arrivals.
        burst: whether all arrive at time 0.
        rate: requests a second.
        clients: J, the clients of the worker.
        prefill_cap_tokens: most tokens of a prefill stage; None: no cap.
        memory: of the worker (a ``BlockMemory``, in Python only); None: no limit.
        first_token: the stage that yields it, ``prefill`` or ``decode``.

    Raises:
        InputError: an argument is wrong.
    """
    count = whole_number(requests, "requests", maximum=MAX_REQUESTS)
    prompts = lognormal_tokens("peers/prompts", seed, count, 68, 0.8, 4, 1024)
    outputs = lognormal_tokens("peers/outputs", seed, count, 345, 0.7, 2, 2048)
    arrivals = poisson_arrivals_ns("peers/arrivals", seed, count, rate)
    if burst:
        arrivals = np.zeros(count, np.int64)
    return Instance(
        Requests(prompts, outputs, arrival_ns=arrivals),
        (Worker(clients, AffineCost(), prefill_cap_tokens, memory),),
        first_token=first_token,
        output_limit_tokens=2048,
        name=f"peers-{count}{'-burst' if burst else ''}-seed{seed}",
        description="Log-normal lengths and Poisson arrivals: the peers' timing workload.",
        source="generated",
        licence="Apache-2.0",
    )


def _ends(span: object, field: str) -> tuple[int, int]:
    if not isinstance(span, (list, tuple)) or len(span) != 2:
        raise InputError(f"{span!r} is not a range", field=field, remedy="give [low, high]")
    low, high = (whole_number(end, field, minimum=1, maximum=MAX_TOKENS) for end in span)
    return low, high


def uniform(
    requests: int,
    clients: int,
    seed: int = 0,
    prompt_tokens: tuple[int, int] = (1, 128),
    output_tokens: tuple[int, int] = (1, 512),
    rate: float | None = None,
    prefill_cap_tokens: int | None = 2048,
    memory: BlockMemory | None = None,
    first_token: str = "prefill",
) -> Instance:
    """Return requests with uniform lengths (both ends included) on one affine worker.

    All arrive at time 0, or as a Poisson process of ``rate`` requests a second.

    Args:
        requests: how many.
        clients: J, the clients of the worker.
        seed: of lengths and arrivals.
        prompt_tokens: shortest and longest prompt, as [low, high].
        output_tokens: shortest and longest answer, as [low, high].
        rate: requests a second; None: all arrive at time 0.
        prefill_cap_tokens: most tokens of a prefill stage; None: no cap.
        memory: of the worker (a ``BlockMemory``, in Python only); None: no limit.
        first_token: the stage that yields it, ``prefill`` or ``decode``.

    Raises:
        InputError: an argument is wrong.
    """
    count = whole_number(requests, "requests", maximum=MAX_REQUESTS)
    lengths = []
    for field, span in (("prompt_tokens", prompt_tokens), ("output_tokens", output_tokens)):
        low, high = _ends(span, field)
        if low > high:
            raise InputError(
                f"the range {low}..{high} is empty",
                field=field,
                remedy="give the smaller number first",
            )
        lengths.append(stream(f"uniform/{field}", seed).integers(low, high + 1, count))
    arrivals = np.zeros(count, np.int64)
    if rate is not None:
        arrivals = poisson_arrivals_ns("uniform/arrivals", seed, count, rate)
    return Instance(
        Requests(lengths[0], lengths[1], arrival_ns=arrivals),
        (Worker(clients, AffineCost(), prefill_cap_tokens, memory),),
        first_token=first_token,
        output_limit_tokens=output_tokens[1],
        name=f"uniform-{count}x{clients}-seed{seed}",
        description="Uniform prompt and output lengths.",
        source="generated",
        licence="Apache-2.0",
    )
