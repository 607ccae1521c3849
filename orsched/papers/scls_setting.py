"""The setting of SCLS's experiments: workload, workers and every constant, with its source.

All constants were fixed before the comparison. The paper prints no fitted coefficient; what it does
print is marked (paper), what follows from the model and the device (physics), what is taken because
nothing is said (assumed).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.costs import AffineCost, BilinearCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances.datasets import VARIABLE, data_directory
from orsched.instances.readers import read
from orsched.instances.streams import stream
from orsched.instances.synthetic import lognormal_tokens, poisson_arrivals_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIMIT = 1024
"""Most prompt and most output tokens (paper, 5.1)."""

SECONDS = 600
"""Requests are sent for 10 minutes (paper, 5.1)."""

SLICE = 128
WORKERS = 8
RATE = 20.0
"""Requests a second in Figs. 5, 15, 16, 18 to 22 (paper)."""

TOKEN_BYTES = 2 * 40 * 5120 * 2
"""Cache of a token: keys and values of 40 layers of 5,120 at two bytes (physics: LLaMA2-13B)."""

MODEL_BYTES = 26_031_728_640
"""13,015,864,320 parameters at two bytes (physics)."""

CAPACITY_BYTES = 80 * 2**30
ENGINE_BYTES = 4 * 2**30
"""M_engine of eq. (6) (assumed)."""

CACHE_TOKENS = (CAPACITY_BYTES - MODEL_BYTES - ENGINE_BYTES) // TOKEN_BYTES

PREFILL_S = 2 * 13.016e9 / (0.5 * 312e12)
"""p1: two operations a parameter and token at half of the A100's 312 Tflop/s (physics; the half is
assumed)."""

TOGETHER_S, SEPARATE_S = 13.5, 7.6
"""Fig. 11, transformers, slice of 128: 15 requests of 10 tokens with one of 1,024 in one batch, and
in two (paper)."""

INTERVAL_S = {"HF": 6.0, "DS": 3.0}
"""Gamma (paper: "according to their inference speed")."""

BATCH_SIZE = {"HF": 16, "DS": 12}
"""Batch size of SLS, SO and PM (paper)."""

PARALLEL = 12
"""Limit on parallel requests of ILS. FastGen's is not stated; this is the number that the paper
holds safe on the same engine at the longest total, by Algorithm 2 and for SLS (assumed)."""

MEAN_CONTEXT = 446.5
"""Mean context of a decoded token of the workload, for ILS, which does not pad."""


@dataclass(frozen=True)
class Constants:
    """Coefficients in seconds that are not zero: p1, d1, and one fixed part p4 = d4.

    p2 = p3 = d2 = d3 = 0: two printed times cannot tell more coefficients apart (assumed).
    """

    prefill_s: float
    context_s: float
    fixed_s: float

    def bilinear(self) -> BilinearCost:
        """Return the cost of a padding worker (eq. 3-4)."""
        p1, d1, d4 = (1000 * x for x in (self.prefill_s, self.context_s, self.fixed_s))
        return BilinearCost.from_ms((p1, 0, 0, d4), (d1, 0, 0, d4))

    def affine(self) -> AffineCost:
        """Return the cost of a continuous worker: own tokens, mean context, one fixed part a step.

        A step of chunks and rounds (split-fuse) has the fixed part once.
        """
        token, client = self.prefill_s, self.context_s * MEAN_CONTEXT
        return AffineCost(
            prefill_fixed_s=self.fixed_s,
            prefill_token_s=token,
            round_fixed_s=self.fixed_s,
            round_client_s=client,
        )


def _transformers() -> Constants:
    """Solve Fig. 11 for d1 and d4 = p4, given p1: two equations, two unknowns."""
    rounds = SLICE
    counted = rounds * (rounds + 1) // 2
    long, short = 1024 * rounds + counted, 10 * rounds + counted  # sums of the contexts
    together = np.array([16.0 * long, rounds + 1.0])
    separate = np.array([15.0 * short + long, 2 * (rounds + 1.0)])
    times = [
        TOGETHER_S - PREFILL_S * 16 * 1024,
        SEPARATE_S - PREFILL_S * (15 * 10 + 1024),
    ]
    determinant = together[0] * separate[1] - together[1] * separate[0]
    context = (times[0] * separate[1] - together[1] * times[1]) / determinant
    fixed = (together[0] * times[1] - times[0] * separate[0]) / determinant
    return Constants(PREFILL_S, float(context), float(fixed))


HF = _transformers()
"""transformers: d1 and d4 from Fig. 11 (paper)."""

DS = Constants(
    PREFILL_S,
    HF.context_s * INTERVAL_S["DS"] / INTERVAL_S["HF"],
    MODEL_BYTES / (0.8 * 2.039e12),
)
"""DeepSpeed: d1 in the ratio of the intervals Gamma (paper), d4 the weights read at 80 % of the
A100's 2,039 GB/s (physics; the 80 % is assumed), p1 as above: the same multiplications."""

ENGINES = {"HF": HF, "DS": DS}


def lengths(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """Return prompt and output tokens, and where they come from.

    Drawn from ShareGPT's pairs, with replacement, where ``ORSCHED_DATA`` has them; else from two
    log-normals of the same shape (medians and spreads of the cut ShareGPT lengths).
    """
    if os.environ.get(VARIABLE):
        path = data_directory() / "sharegpt_10k_llama2_tokens.csv"
        pairs = read(path).requests
        rows = stream("scls/rows", seed).integers(0, len(pairs), count)
        return pairs.prompt_tokens[rows], pairs.output_tokens[rows], "ShareGPT"
    prompts = lognormal_tokens("scls/prompts", seed, count, 295, 2.0, 1, LIMIT)
    outputs = lognormal_tokens("scls/outputs", seed, count, 372, 0.8, 3, LIMIT)
    return prompts, outputs, "synthetic"


def workload(
    rate: float, seed: int, seconds: float = SECONDS, answers: float = 1.0, prompts: float = 1.0
) -> Requests:
    """Return the requests that arrive within the time, cut at the limits.

    ``answers`` and ``prompts``: what their lengths are multiplied by.
    """
    most = int(rate * seconds * 1.2) + 100
    arrivals = poisson_arrivals_ns("scls/arrivals", seed, most, rate)
    arrivals = arrivals[arrivals < seconds * 10**9]
    given, outputs, _ = lengths(len(arrivals), seed)
    given = np.clip((given * prompts).astype(np.int64), 1, LIMIT)
    outputs = np.maximum(1, (np.minimum(outputs, LIMIT) * answers).astype(np.int64))
    return Requests(given, outputs, arrival_ns=arrivals)


def static_worker(constants: Constants) -> Worker:
    """Return a worker with static batching; the cache is counted in tokens."""
    memory = BlockMemory(CACHE_TOKENS, 1, "paged")
    return Worker(1024, constants.bilinear(), None, memory, padding=True)


def continuous_worker(constants: Constants) -> Worker:
    """Return a worker with continuous batching."""
    return Worker(1024, constants.affine(), None, BlockMemory(CACHE_TOKENS // 16, 16, "paged"))


def instance(requests: Requests, worker: Worker, workers: int = WORKERS) -> Instance:
    """Return the requests on so many equal workers."""
    return Instance(
        requests, (worker,) * workers, output_limit_tokens=LIMIT, name="scls", first_token="decode"
    )


def slice_params(engine: str, memory_share: float = 0.9) -> dict[str, Any]:
    """Return the parameters of SCLS for an engine; zeta of eq. (9) is 0.9 (paper, 5.1)."""
    memory: dict[str, Any] = {"memory_share": memory_share}
    if engine == "DS":
        memory = {"memory": "deepspeed"}
    return {"interval_s": INTERVAL_S[engine], **memory}
