"""The setting of the comparison on four real workloads: requests, machine, and every constant.

The machine was fixed before the policy under test was written. What is measured is marked (data),
what follows from the model and the device (physics), what is taken because nothing says (assumed).

The machine is LLaMA-2-70B on four A100 of 80 GB with tensor parallelism: the model and device of
Mooncake's and Splitwise's own experiments. Its long prompts fit.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from orsched.costs import AffineCost, LinearCost
from orsched.costs.linear import COEFFICIENTS
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.workers import Worker
from orsched.instances import predict, with_arrivals
from orsched.instances.datasets import data_directory
from orsched.instances.readers import read, spread_arrivals
from orsched.instances.streams import stream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from orsched.data.requests import Requests

WORKERS = 4
"""Workers, each of four devices (assumed)."""

CLIENTS = 256
"""Most requests at once on a worker: max_num_seqs of the measured vLLM runs (data)."""

LIMIT = 2048
"""The server's limit on output tokens; the longest output of the four is 2,000 (assumed)."""

FIXED_S = 0.025
"""Time of a step with one token: 80 layers at 0.31 ms (data: Vidur's table at parallelism 4)."""

PREFILL_S = 0.000153
"""A prompt token's time, attention apart: least squares through ``FIXED_S`` over 1 to 4,096 tokens
(data: the same)."""

DECODE_S = 0.000102
"""A decoding request's time, attention apart: from 1 to 256 tokens (data: the same)."""

LAYERS, WIDTH = 80, 8192
PARAMETERS = 68_976_648_192
TOKEN_BYTES = 2 * LAYERS * 8 * 128 * 2
"""Cache of a token: keys and values of 80 layers, 8 heads of 128, two bytes (physics)."""

BYTES_PER_S = 4 * 0.8 * 2.039e12
"""Four A100 read 2,039 GB/s each; 80 % of it (assumed) reads caches in a round."""

CACHE_TOKENS = int(4 * 80 * 2**30 * 0.9 - 2 * PARAMETERS) // TOKEN_BYTES
"""Cache of a worker: 90 % of the memory (vLLM's default) less the weights at two bytes."""

BLOCK_TOKENS = 16
"""Tokens of a block (vLLM's default)."""

TOKEN_BUDGET = 2048
"""max_num_batched_tokens of the measured vLLM runs (data)."""

LOADS = (0.5, 0.7, 0.9)
"""Arrivals over the measured saturation throughput."""

PREDICTOR = "percentiles"
"""Predicted lengths: the measured confusion of the 5-class predictor of SSJF, by rank."""

SATURATION_REQUESTS = 6000

ATTENDED_S = PREFILL_S * 4 * WIDTH * LAYERS / (2 * PARAMETERS)
"""Time of a prompt token for each token before it: the operations that attention adds to its own,
at the speed of the others (physics)."""

CONTEXT_S = TOKEN_BYTES / BYTES_PER_S
"""Time of a token of context in a round (physics)."""

COSTS = ("means", "contexts")
"""What a step's attention depends on: the means of the data set (``affine``), or what each chunk
and each round of it attends to (``linear``). Nothing else differs."""


class Workload(NamedTuple):
    """One workload.

    Attributes:
        file: its file in the directory of the data sets.
        requests: requests of a seed: with a trace one window of ten that do not overlap.
        replay: whether arrivals are the trace's own, stretched to the rate; else Poisson.
        context, position: mean context of a decoded token, mean position of a prompt token.
        limit: the server's limit on output tokens.
        ttft_s, tpot_s: limits for attainment: five tokens a second, and half a minute for prompts
            that take a quarter of it to prefill (assumed).
    """

    file: str
    requests: int
    replay: bool
    context: float
    position: float
    limit: int = LIMIT
    ttft_s: float = 5.0
    tpot_s: float = 0.2

    def cost(self, kind: str = "means") -> AffineCost | LinearCost:
        """Return the cost of a step, one of ``COSTS``.

        In a round each request reads its cache; the operations of a prompt token grow with its
        position, at the speed of the others.
        """
        if kind == "contexts":
            parts = (FIXED_S, PREFILL_S, ATTENDED_S, FIXED_S, DECODE_S, CONTEXT_S, 0, 0)
            named = zip(COEFFICIENTS, parts, strict=True)
            return LinearCost(**{name: round(1e15 * x) for name, x in named})
        token = PREFILL_S + ATTENDED_S * self.position
        client = DECODE_S + CONTEXT_S * self.context
        return AffineCost(
            prefill_fixed_s=FIXED_S,
            prefill_token_s=token,
            round_fixed_s=FIXED_S,
            round_client_s=client,
        )

    def worker(self, cost: str = "means") -> Worker:
        """Return one worker: no padding, paged memory, mixed steps."""
        memory = BlockMemory(CACHE_TOKENS // BLOCK_TOKENS, BLOCK_TOKENS, "paged")
        return Worker(CLIENTS, self.cost(cost), None, memory)


WORKLOADS = {
    "Azure conv": Workload("azure_conv_2023.csv", 1900, True, 1227.0, 1110.0),
    "Azure code": Workload("azure_code_2023.csv", 880, True, 2131.0, 1975.0),
    "ShareGPT": Workload("sharegpt_10k_llama2_tokens.csv", 2000, False, 511.0, 736.0),
    "Mooncake": Workload("mooncake_conversation.jsonl", 1200, True, 13126.0, 16389.0, ttft_s=30.0),
}

UNSEEN = {
    "arXiv": Workload(
        "arxiv_summarization_llama2_tokens.csv", 1500, False, 2420.0, 1466.0, limit=4096
    ),
    "ServeGen R1": Workload(
        "servegen_deepseek_r1_rates.csv", 1500, True, 3613.0, 6401.0, limit=32_768
    ),
}
"""Workloads that no parameter was chosen on: papers to summarise, and reasoning of length."""

ALL = WORKLOADS | UNSEEN

R1_START_S = 36_000
"""Where the hour of ServeGen's R1 begins that requests are drawn from (assumed)."""


@cache
def requests_of(name: str) -> Requests:
    """Return all requests of a data set, in order of arrival where it has arrivals."""
    if name == "ServeGen R1":
        from orsched.instances import load_mix
        from orsched.instances.sources import draw_sources

        span = {"start_s": R1_START_S, "duration_s": 3600}
        return draw_sources(load_mix("deepseek_r1"), Worker(1), **span, seed=0).requests
    found = read(data_directory() / ALL[name].file).requests
    return spread_arrivals(found, 0) if name == "Mooncake" else found


def means(requests: Requests) -> tuple[float, float]:
    """Return the mean context of a decoded token, and the mean position of a prompt token."""
    prompts = requests.prompt_tokens.astype(float)
    outputs = requests.output_tokens.astype(float)
    context = (outputs * (prompts + outputs / 2)).sum() / outputs.sum()
    return float(context), float((prompts * prompts / 2).sum() / prompts.sum())


def _rows(name: str, seed: int, count: int) -> NDArray[np.int64]:
    """Return the rows of a seed: of a trace the seed's window, else drawn without replacement."""
    import numpy as np

    total = len(requests_of(name))
    if ALL[name].replay:
        start = seed * count % (total - count + 1)
        return np.arange(start, start + count)
    return np.sort(stream("four workloads/rows", seed).permutation(total)[:count])


def workload(
    name: str, load: float | None, seed: int, short: int = 1, cost: str = "means"
) -> Instance:
    """Return the requests of a seed, with predictions.

    ``load`` is the rate over the saturation throughput, None: all are there at 0. ``short``
    divides the number of requests, ``cost`` is one of ``COSTS``.
    """
    kind = ALL[name]
    requests = requests_of(name).take(_rows(name, seed, kind.requests // short))
    start = requests.arrival_ns.min()
    requests = requests.replace(arrival_ns=requests.arrival_ns - start)
    instance = _instance(name, requests, cost)
    if load is None:
        instance = with_arrivals(instance, "at_once", seed)
    else:
        law = "replay" if kind.replay else "poisson"
        rate = load * saturation_per_s(name, short, cost)
        instance = with_arrivals(instance, {"law": law, "rate": rate}, seed)
    return predict(instance, PREDICTOR, seed)


def _instance(name: str, requests: Requests, cost: str) -> Instance:
    workers = (ALL[name].worker(cost),) * WORKERS
    return Instance(requests, workers, "prefill", output_limit_tokens=ALL[name].limit, name=name)


@cache
def saturation_per_s(name: str, short: int = 1, cost: str = "means") -> float:
    """Return the requests a second that vLLM's policy serves while all of many wait.

    Measured between the moments when a quarter and three quarters of them are done.
    """
    import numpy as np

    from orsched.heuristics.continuous.async_scheduling import VLLM
    from orsched.simulator import simulate_policy
    from orsched.simulator.policy import Information

    total = len(requests_of(name))
    rows = stream("four workloads/saturation", 0).permutation(total)[: SATURATION_REQUESTS // short]
    instance = _instance(name, requests_of(name).take(rows), cost)
    instance = with_arrivals(instance, "at_once", 0)
    policy, _ = VLLM.build(instance, Information.NONE, {"max_num_batched_tokens": TOKEN_BUDGET}, 0)
    schedule = simulate_policy(instance, policy).schedule
    ends = np.sort(schedule.request_times(instance)["finish_ns"])
    first, last = len(ends) // 4, 3 * len(ends) // 4
    return float((last - first) / ((ends[last] - ends[first]) / 1e9))
