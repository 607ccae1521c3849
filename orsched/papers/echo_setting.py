"""The setting of Echo's experiments: machine and requests. Constants are in ``echo.toml``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.costs import LinearCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.data.requests import BATCH, INTERACTIVE, Requests
from orsched.data.service_classes import ServiceClass
from orsched.data.workers import Worker
from orsched.instances.streams import stream
from orsched.instances.synthetic import lognormal_tokens
from orsched.papers.entries import setting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tokens = NDArray[np.int64]

SETTING = setting("echo")


def machine(attention: bool = False) -> LinearCost:
    """Return the time of steps; with ``attention`` prompt tokens take time for what they attend."""
    times = SETTING["attending_machine" if attention else "machine"]
    return LinearCost(**{f"{name}_fs": round(1_000_000 * ns) for name, ns in times.items()})


def sharegpt(name: str, count: int, seed: int) -> tuple[Tokens, Tokens]:
    """Return prompt and answer tokens of chats: two log-normals of the shape of ShareGPT's."""
    prompts, answers = SETTING["chat_prompts"], SETTING["chat_answers"]
    return (lognormal_tokens(f"echo/{name}/prompts", seed, count, *prompts),
            lognormal_tokens(f"echo/{name}/answers", seed, count, *answers))  # fmt: skip


def arrivals_ns(seed: int, day_s: float) -> Tokens:
    """Return the arrivals of a day: a Poisson process whose rate follows the hours, with bursts."""
    minutes = np.arange(1_440)
    hours = (minutes + 0.5) / 60
    rates, bursts = SETTING["rates"], SETTING["bursts"]
    curve = np.interp(hours, np.arange(-1, 26) + 0.5, (rates[-1], *rates, *rates[:2]))
    noise = stream("echo/bursts", seed).standard_normal(1_440)
    expected = curve / max(rates) * SETTING["peak_rate"] * np.exp(bursts * noise - bursts**2 / 2)
    width = day_s / 1_440
    generator = stream("echo/arrivals", seed)
    counts = generator.poisson(expected * width)
    begins = np.repeat(minutes * width, counts)
    times = begins + generator.random(len(begins)) * width
    found: Tokens = np.sort(np.rint(times * NS_PER_S)).astype(np.int64)
    return found


def _documents(
    of: dict[str, Any], requests: int, seed: int
) -> tuple[Tokens, Tokens, Tokens, Tokens]:
    """Return prompts, answers, documents and shared tokens of a bulk workload, in random order.

    The requests on a document are spread as a Poisson number whose mean is drawn from a gamma law;
    where that is wider than the law asked for, all documents have as many.
    """
    generator = stream("echo/documents", seed)
    of_one, spread = of["of_one"]
    count = max(1, round(requests / of_one))
    beyond = max(0.0, spread**2 - of_one) / of_one**2
    if beyond:
        weight = generator.gamma(1 / beyond, size=count)
        document = generator.choice(count, requests, p=weight / weight.sum())
    else:
        document = generator.permutation(np.arange(requests) % count)
    prompt, spread = of["prompt"]
    sigma = float(np.sqrt(np.log(1 + (spread / prompt) ** 2)))
    shared, own = prompt * of["shared"], prompt * (1 - of["shared"])
    length = lognormal_tokens("echo/lengths", seed, count, shared, sigma, 64, 100_000)
    rest = lognormal_tokens("echo/own", seed, requests, own, 0.3, 8, 20_000)
    answers = lognormal_tokens("echo/answers", seed, requests, *of["answer"])
    return length[document] + rest, answers, document, length[document]


@cache
def instance(
    workload: str, seed: int, day_s: float, bulk_share: float = 1.0, attention: bool = False
) -> Instance:
    """Return bulk requests that are all available at time 0 and a day's interactive requests.

    ``bulk_share`` cuts the number of bulk requests of a workload.
    """
    of = SETTING["workloads"][workload]
    count = round(of["requests"] * bulk_share)
    if workload == "sharegpt":
        prompts, answers = sharegpt("bulk", count, seed)
        document, shared = np.full(count, -1), np.zeros(count, np.int64)
    else:
        prompts, answers, document, shared = _documents(of, count, seed)
    times = arrivals_ns(seed, day_s)
    chats, replies = sharegpt("online", len(times), seed)
    none, size = np.zeros(len(times), np.int64), SETTING["block_tokens"]
    requests = Requests(
        np.concatenate([prompts, chats]),
        np.concatenate([answers, replies]),
        arrival_ns=np.concatenate([np.zeros(len(prompts), np.int64), times]),
        service_class=np.repeat([BATCH, INTERACTIVE], [len(prompts), len(times)]),
        prefixes=Prefixes.from_documents(
            np.concatenate([document, none - 1]), np.concatenate([shared, none]), size
        ),
    )
    limits = ServiceClass("interactive", SETTING["ttft_s"], SETTING["tpot_s"])
    memory = BlockMemory(SETTING["blocks"], size, "paged", PrefixCache())
    worker = Worker(SETTING["clients"], machine(attention), memory=memory, name="a100-40gb")
    return Instance(
        requests, (worker,), first_token="prefill", name=f"echo-{workload}",
        classes=(limits, ServiceClass("batch")),
    )  # fmt: skip
