"""The setting of Echo's experiments: machine, workloads and every constant, with its source.

What the paper prints is marked (paper), what follows from the model and the device (physics), what
another source measured (its name), what is taken because nothing is said (assumed).
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from orsched.common.units import NS_PER_S
from orsched.costs.exact import FS_PER_NS, round_half_up
from orsched.costs.floor import Floor, RoundFloor, StageFloor
from orsched.costs.linear import attended_tokens
from orsched.costs.parameters import read_parameters
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory, PrefixCache
from orsched.data.prefixes import Prefixes
from orsched.data.requests import BATCH, INTERACTIVE, Requests
from orsched.data.service_classes import ServiceClass
from orsched.data.workers import Worker
from orsched.instances.datasets import VARIABLE, data_directory
from orsched.instances.readers import read
from orsched.instances.streams import stream
from orsched.instances.synthetic import lognormal_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Tokens = NDArray[np.int64]

TTFT_S, TPOT_S, ATTAINMENT = 1.0, 0.05, 0.9
"""Limits of interactive requests and the share that is to be within them (paper, 7.2)."""


@dataclass(frozen=True)
class ContextCost:
    """Step ``fixed + token p + request N + context sum(c)``, whatever is in it, in nanoseconds.

    p prompt tokens are computed beside a round of N requests with the contexts c. The fixed part is
    the reading of the weights, once a step; the context part the reading of the caches.
    """

    fixed_ns: int
    token_ns: int
    request_ns: int
    context_ns: int

    model: ClassVar[str] = "context"
    context_matters: ClassVar[bool] = True

    @property
    def prefill_limit(self) -> None:
        """No limit by the model."""
        return None

    def prefill_ns(self, prompts: Sequence[int]) -> int:
        """Duration of a prefill stage."""
        return self.fixed_ns + self.token_ns * sum(prompts)

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a round."""
        return self.fixed_ns + self.request_ns * active + self.context_ns * context_sum

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds; each context grows by a token a round."""
        grown = active * (rounds * (rounds - 1) // 2)
        one = self.fixed_ns + self.request_ns * active + self.context_ns * context_sum
        return rounds * one + self.context_ns * grown

    def mixed_ns(
        self, prompts: Sequence[int], active: int, context_sum: int, context_max: int
    ) -> int:
        """Duration of a step that does both: the weights are read once."""
        return self.token_ns * sum(prompts) + self.round_ns(active, context_sum, context_max)

    def floor(self) -> Floor:
        """Return what steps take, exactly."""
        stage = StageFloor(fixed=self.fixed_ns, token=self.token_ns)
        a_round = RoundFloor(fixed=self.fixed_ns, request=self.request_ns, context=self.context_ns)
        return Floor(stage, a_round, mixed="one_fixed", exact=True)

    def scaled(self, factor: int) -> Self:
        """Every time multiplied by ``factor``."""
        return type(self)(**{key: value * factor for key, value in asdict(self).items()})

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the four parameters."""
        names = ["fixed_ns", "token_ns", "request_ns", "context_ns"]
        return cls(**read_parameters(parameters, cls.model, names))


@dataclass(frozen=True)
class AttendingCost(ContextCost):
    """The same, and ``attended_fs`` femtoseconds for each token that a prompt token attends to.

    Those of its chunk before it, itself, and those cached before the chunk: also where a prefix
    cache was hit.
    """

    attended_fs: int = 0

    model: ClassVar[str] = "attending"
    cached_matters: ClassVar[bool] = True

    def prefill_ns(self, prompts: Sequence[int], cached: Sequence[int] = ()) -> int:
        """Duration of a prefill stage."""
        return super().prefill_ns(prompts) + self._attention_ns(prompts, cached)

    def mixed_ns(
        self,
        prompts: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Duration of a step that does both: the weights are read once."""
        plain = super().mixed_ns(prompts, active, context_sum, context_max)
        return plain + self._attention_ns(prompts, cached)

    def _attention_ns(self, prompts: Sequence[int], cached: Sequence[int]) -> int:
        return round_half_up(self.attended_fs * attended_tokens(prompts, cached), FS_PER_NS)

    def floor(self) -> Floor:
        """Return what steps take without attention in prompts, which is less."""
        return replace(super().floor(), exact=False)

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the five parameters."""
        names = ["fixed_ns", "token_ns", "request_ns", "context_ns", "attended_fs"]
        return cls(**read_parameters(parameters, cls.model, names))


A100 = ContextCost(fixed_ns=14_200_000, token_ns=70_000, request_ns=20_000, context_ns=124)
"""LLaMA-3.1-8B on an A100-PCIE-40GB. Vidur measured LLaMA-2-7B on an A100 (80 GB, 2,039 GB/s):
9.28 ms for one token through all layers, whose weights are 12.95 GB, hence 0.68 of the bandwidth;
63.5 microseconds a token between 1,024 and 4,096. LLaMA-3.1-8B reads 15.0 GB of weights a step
(physics: 8.03 billion parameters less the input embedding, 16 bit); at 0.68 of 1,555 GB/s that is
14.2 ms. Its layers have 6.98 billion weights against 6.48: 68.5 microseconds a token, 70 with the
attention of a short prompt. A token of context is 131,072 bytes of keys and values (32 layers, 8
heads of 128, 16 bit): 124 ns at the same bandwidth. 20 microseconds a request for sampling
(assumed)."""

A100_ATTENDING = AttendingCost(
    fixed_ns=14_200_000, token_ns=68_500, request_ns=20_000, context_ns=124, attended_fs=2_570_000
)
"""The same with the attention of prompts apart: 4 x 4,096 x 32 operations for each attended token
(physics), at the 204 teraflop/s of the other layers' 68.5 microseconds a token (assumed)."""

BLOCK_TOKENS = 16
"""As vLLM's default."""

BLOCKS = 8_600
"""KV blocks: 0.9 of 40 GB (vLLM's default share) less 16.06 GB of weights and 1.9 GB of activations
(assumed) leave 18.04 GB, 137,600 tokens."""

CLIENTS = 256
"""max_num_seqs of vLLM (its default)."""


class Documents(NamedTuple):
    """A bulk workload of questions on documents.

    Attributes:
        requests: number of requests.
        prompt, spread: mean and standard deviation of the prompt tokens.
        shared: share of the prompt tokens that other requests have as well.
        of_one, of_one_spread: mean and standard deviation of the requests on one document.
        answer: mean answer tokens; they are log-normal with ``answer_sigma``.
    """

    requests: int
    prompt: int
    spread: int
    shared: float
    of_one: float
    of_one_spread: float
    answer: float
    answer_sigma: float


WORKLOADS = {
    "loogle-short": Documents(1_951, 23_474, 6_105, 0.91, 18.0, 8.6, 16.0, 0.57),
    "loogle-long": Documents(1_101, 23_474, 6_105, 0.91, 10.2, 4.9, 45.0, 0.57),
    "toolbench": Documents(15_000, 1_835, 742, 0.85, 39.0, 64.0, 43.0, 0.36),
    "nextqa": Documents(4_000, 9_865, 5_976, 0.88, 8.6, 2.0, 4.0, 0.37),
}
"""Prompts and shares: Echo, Table 1, which has them from Preble (arXiv 2407.00023). Deviations,
requests to a document and answers are assumed, of the size that such data have. LooGLE's 1,951
requests (paper) are taken for Short QA; for Long QA 1,101 on as many documents with answers of 45
tokens (assumed). ToolBench and NExT-QA: as many requests as outlast the day (assumed)."""

SHAREGPT_BULK = 9_000
"""Bulk requests of the workload ``sharegpt`` (assumed: they outlast the day)."""

DAY_S = 600.0
"""Seconds into which the day is scaled: 144 times faster (paper: scaled so that online alone does
not queue; the factor is not printed)."""

PEAK_RATE = 4.0
"""Interactive requests a second at the peak (assumed: with it online alone does not queue)."""

RATES = (
    2.2, 1.8, 1.5, 1.25, 1.0, 1.0, 1.4, 2.2, 3.2, 4.2, 5.0, 5.6,
    6.0, 6.0, 5.4, 5.0, 4.8, 4.6, 4.4, 4.4, 4.6, 4.4, 3.6, 2.8,
)  # fmt: skip
"""Relative rates by hour: 6 at 12-14 h, 1 at 4-6 h (paper), the others read off its Fig. 2
(assumed)."""

BURSTS = 0.25
"""Standard deviation of the logarithm of the rate from minute to minute of the day (assumed; the
paper says that arrivals are bursty within a minute)."""


def machine(eviction: str = "lru", cost: ContextCost = A100, blocks: int = BLOCKS) -> Worker:
    """Return the worker."""
    memory = BlockMemory(blocks, BLOCK_TOKENS, "paged", PrefixCache(eviction))
    return Worker(CLIENTS, cost, memory=memory, name="a100-40gb")


def sharegpt(name: str, count: int, seed: int) -> tuple[Tokens, Tokens]:
    """Return prompt and answer tokens of chats, of 308 prompt tokens on average.

    Drawn from ShareGPT's pairs where ``ORSCHED_DATA`` has them, prompts cut to 1,500 tokens, which
    makes their mean about the paper's; else from two log-normals of the same shape.
    """
    if os.environ.get(VARIABLE):
        pairs = read(data_directory() / "sharegpt_10k_llama2_tokens.csv").requests
        rows = stream(f"echo/{name}", seed).integers(0, len(pairs), count)
        return np.minimum(pairs.prompt_tokens[rows], 1500), pairs.output_tokens[rows]
    prompts = lognormal_tokens(f"echo/{name}/prompts", seed, count, 308, 1.3, 4, 1500)
    return prompts, lognormal_tokens(f"echo/{name}/answers", seed, count, 326, 0.8, 3, 1700)


def arrivals_ns(seed: int, day_s: float = DAY_S, peak_rate: float = PEAK_RATE) -> Tokens:
    """Return the arrivals of a day: a Poisson process whose rate follows the hours, with bursts."""
    minutes = np.arange(1_440)
    hours = (minutes + 0.5) / 60
    curve = np.interp(hours, np.arange(-1, 26) + 0.5, (RATES[-1], *RATES, *RATES[:2]))
    noise = stream("echo/bursts", seed).standard_normal(1_440)
    rates = curve / max(RATES) * peak_rate * np.exp(BURSTS * noise - BURSTS**2 / 2)
    width = day_s / 1_440
    generator = stream("echo/arrivals", seed)
    counts = generator.poisson(rates * width)
    begins = np.repeat(minutes * width, counts)
    times = begins + generator.random(len(begins)) * width
    found: Tokens = np.sort(np.rint(times * NS_PER_S)).astype(np.int64)
    return found


def _documents(of: Documents, seed: int) -> tuple[Tokens, Tokens, Tokens, Tokens]:
    """Return prompts, answers, documents and shared tokens of a bulk workload, in random order.

    The requests on a document are spread as a Poisson number whose mean is drawn from a gamma law;
    where that is wider than the law asked for, all documents have as many.
    """
    generator = stream("echo/documents", seed)
    count = max(1, round(of.requests / of.of_one))
    beyond = max(0.0, of.of_one_spread**2 - of.of_one) / of.of_one**2
    if beyond:
        weight = generator.gamma(1 / beyond, size=count)
        document = generator.choice(count, of.requests, p=weight / weight.sum())
    else:
        document = generator.permutation(np.arange(of.requests) % count)
    sigma = float(np.sqrt(np.log(1 + (of.spread / of.prompt) ** 2)))
    mean = of.prompt * of.shared
    length = lognormal_tokens("echo/lengths", seed, count, mean, sigma, 64, 100_000)
    mean = of.prompt * (1 - of.shared)
    own = lognormal_tokens("echo/own", seed, of.requests, mean, 0.3, 8, 20_000)
    answers = lognormal_tokens(
        "echo/answers", seed, of.requests, of.answer, of.answer_sigma, 1, 1_000
    )
    return length[document] + own, answers, document, length[document]


def instance(
    workload: str,
    seed: int = 0,
    day_s: float = DAY_S,
    peak_rate: float = PEAK_RATE,
    bulk: int | None = None,
    online: bool = True,
    attention: bool = False,
) -> Instance:
    """Return bulk requests that are all there at time 0 and a day's interactive requests.

    ``workload``: one of ``WORKLOADS`` or ``sharegpt``; ``bulk`` cuts its number of requests;
    without ``online`` there are none but the first interactive request. With ``attention`` prompt
    tokens take time for what they attend to, behind hits too.
    """
    if workload == "sharegpt":
        count = SHAREGPT_BULK if bulk is None else bulk
        prompts, answers = sharegpt("bulk", count, seed)
        document, shared = np.full(count, -1), np.zeros(count, np.int64)
    else:
        of = WORKLOADS[workload]
        of = of if bulk is None else of._replace(requests=bulk)
        prompts, answers, document, shared = _documents(of, seed)
    times = arrivals_ns(seed, day_s, peak_rate)
    times = times if online else times[:1]
    chats, replies = sharegpt("online", len(times), seed)
    nobody = np.full(len(times), -1)
    requests = Requests(
        np.concatenate([prompts, chats]),
        np.concatenate([answers, replies]),
        arrival_ns=np.concatenate([np.zeros(len(prompts), np.int64), times]),
        service_class=np.repeat([BATCH, INTERACTIVE], [len(prompts), len(times)]),
        prefixes=Prefixes.from_documents(
            np.concatenate([document, nobody]),
            np.concatenate([shared, np.zeros(len(times), np.int64)]),
            BLOCK_TOKENS,
        ),
    )
    classes = (ServiceClass("interactive", TTFT_S, TPOT_S), ServiceClass("batch"))
    worker = machine(cost=A100_ATTENDING if attention else A100)
    return Instance(
        requests, (worker,), first_token="prefill", name=f"echo-{workload}", classes=classes
    )


def without_cache(problem: Instance) -> Instance:
    """Return an instance whose worker keeps no freed blocks."""
    worker = problem.worker
    memory = replace(worker.memory, prefix_cache=None)  # type: ignore[type-var]
    return problem.replace(workers=(replace(worker, memory=memory),))
