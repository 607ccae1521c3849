"""Generated workloads: Pang's GSM8K case, the peers' timing workload, uniform lengths."""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import is_number
from orsched.common.units import MAX_TIME, MAX_TIME_NS, MAX_TOKENS, NS_PER_S
from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances.predictions import noisy_tokens
from orsched.instances.streams import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray


PROBLEMS = 1_319
"""Problems in the GSM8K test set."""

OUTPUT_LIMIT_TOKENS = 512
SHARE_AT_LIMIT = 0.538
MEAN_BELOW_LIMIT = 150.0
STD_BELOW_LIMIT = 77.0
SHORTEST_OUTPUT = 8

SOURCE = (
    "Prompt lengths: the questions of the GSM8K test set (openai/grade-school-math), LLaMA "
    "tokenizer, begin-of-sequence token counted. Output lengths: generated to the mean and "
    "standard deviation that Pang et al. state (arXiv 2502.15763, Table III)."
)
LICENCE = "MIT (GSM8K, Copyright (c) 2021 OpenAI); generated lengths: Apache-2.0"


@cache
def prompt_tokens() -> NDArray[np.int64]:
    """Return the 1,319 prompt lengths in the order of the test file, read-only."""
    text = files("orsched.instances").joinpath("data", "gsm8k_llama_prompt_tokens.csv").read_text()
    column = np.array([line.split(",")[1] for line in text.splitlines()[1:]], dtype=np.int64)
    column.setflags(write=False)
    return column


def output_tokens(requests: int, seed: int, family: str = "outputs") -> NDArray[np.int64]:
    """Draw output lengths: 512 with probability 0.538, else a log-normal clipped to 8..511.

    The log-normal has mean 150 and standard deviation 77 before rounding and clipping; the
    mixture then has mean 344.8 and standard deviation 187.9 (Pang, Table III: 344.83, 187.99).
    The first k lengths are the same for any number of requests.
    """
    variance = math.log(1 + (STD_BELOW_LIMIT / MEAN_BELOW_LIMIT) ** 2)
    mean = math.log(MEAN_BELOW_LIMIT) - variance / 2
    at_limit = stream(f"{family}/at-limit", seed).random(requests) < SHARE_AT_LIMIT
    normal = stream(f"{family}/below-limit", seed).standard_normal(requests)
    below = np.rint(np.exp(mean + math.sqrt(variance) * normal))
    below = np.clip(below, SHORTEST_OUTPUT, OUTPUT_LIMIT_TOKENS - 1)
    return np.where(at_limit, OUTPUT_LIMIT_TOKENS, below).astype(np.int64)


def gsm8k(
    seed: int = 0,
    requests: int = PROBLEMS,
    clients: int = 200,
    prefill_cap_tokens: int | None = 2048,
    first_token: str = "decode",
    prediction_sigma: float | None = 0.3,
    name: str | None = None,
) -> Instance:
    """Return Pang's workload on one worker (Pang, section V-A).

    Args:
        seed: of the streams for output lengths and predictions.
        requests: the first that many problems; beyond 1,319 further prompt lengths are drawn
            from the 1,319, with replacement, from a stream of their own.
        clients: J.
        prefill_cap_tokens: tokens that a prefill stage holds (our assumption; None: no cap).
        first_token: ``decode`` (default, as in Pang's paper) or ``prefill``.
        prediction_sigma: error of the predicted lengths, 0 for exact ones, None for none.
        name: label; by default it names the seed and the size.
    """
    count = whole_number(requests, "requests", maximum=10_000_000)
    prompts = prompt_tokens()[:count]
    if count > PROBLEMS:
        rows = stream("gsm8k/more-prompts", seed).integers(0, PROBLEMS, count - PROBLEMS)
        prompts = np.concatenate([prompts, prompt_tokens()[rows]])
    label = f"gsm8k-{count}x{clients}-seed{seed}" if name is None else name
    outputs = output_tokens(count, seed)
    return _instance(
        prompts, outputs, seed, clients, prefill_cap_tokens, first_token, prediction_sigma, label
    )


def pang_case(
    seed: int = 0,
    requests: int = PROBLEMS,
    clients: int = 200,
    prefill_cap_tokens: int | None = 2048,
    first_token: str = "decode",
    prediction_sigma: float | None = 0.3,
) -> Instance:
    """Return one of the random cases of Pang's Figures 10 and 11.

    Pang draws input *and* output lengths from the distributions of Table III. Prompt lengths are
    drawn, with replacement, from the 1,319 real ones, which have exactly the stated mean 68.43
    and standard deviation 25.04; output lengths come from ``output_tokens``. The
    streams are others than those of ``gsm8k``.

    Args:
        seed: number of the case.
        requests: how many; the prompt lengths are drawn, however many they are.
        clients: J.
        prefill_cap_tokens: tokens that a prefill stage holds (our assumption; None: no cap).
        first_token: ``decode`` (default, as in Pang's paper) or ``prefill``.
        prediction_sigma: error of the predicted lengths, 0 for exact ones, None for none.
    """
    number = whole_number(seed, "seed", remedy="cases start at 0")
    count = whole_number(requests, "requests", maximum=10_000_000)
    rows = stream("pang-case/prompts", number).integers(0, PROBLEMS, count)
    return _instance(
        prompt_tokens()[rows],
        output_tokens(count, number, "pang-case"),
        number,
        clients,
        prefill_cap_tokens,
        first_token,
        prediction_sigma,
        f"pang-case-{number}",
    )


def _instance(
    prompts: NDArray[np.int64],
    outputs: NDArray[np.int64],
    seed: int,
    clients: int,
    prefill_cap_tokens: int | None,
    first_token: str,
    prediction_sigma: float | None,
    name: str,
) -> Instance:
    predicted = None
    if prediction_sigma is not None:
        predicted = noisy_tokens(outputs, prediction_sigma, seed, OUTPUT_LIMIT_TOKENS)
    worker = Worker(
        clients,
        AffineCost(),
        prefill_cap_tokens,
        BlockMemory(blocks=1024, block_tokens=128, allocation="whole"),
        name="llama-65b",
    )
    return Instance(
        Requests(prompts, outputs, predicted_tokens=predicted),
        (worker,),
        first_token=first_token,
        output_limit_tokens=OUTPUT_LIMIT_TOKENS,
        name=name,
        description=(
            f"{len(prompts)} GSM8K requests on {clients} clients of LLaMA-65B, all at time 0 "
            f"(Pang, section V); generator seed {seed}."
        ),
        source=SOURCE,
        licence=LICENCE,
    )


MAX_REQUESTS = 100_000_000


def lognormal_tokens(
    name: str, seed: int, requests: int, mean: float, sigma: float, low: int, high: int
) -> NDArray[np.int64]:
    """Draw rounded log-normal token counts, clipped to low..high, of that mean before clipping."""
    normal = stream(name, seed).standard_normal(requests)
    draws = np.exp(math.log(mean) - sigma * sigma / 2 + sigma * normal)
    return np.clip(np.rint(draws), low, high).astype(np.int64)


def poisson_arrivals_ns(name: str, seed: int, requests: int, rate: float) -> NDArray[np.int64]:
    """Draw the arrival times of a Poisson process of ``rate`` requests a second, in ns."""
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
