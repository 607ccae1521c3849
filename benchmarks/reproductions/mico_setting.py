"""The setting of MICO's experiments: workload, clouds and every constant, with its source.

All constants were fixed before the comparison. What the paper prints is marked (paper), what
follows from the model and the device (physics), what is taken because nothing is said (assumed).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances import synthetic as gsm8k
from orsched.instances.datasets import VARIABLE, data_directory
from orsched.instances.readers import read
from orsched.instances.streams import stream
from orsched.instances.synthetic import lognormal_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BUCKETS = 10
"""Classes of predicted length (paper, 4.1.1)."""

ACCURACY = 0.8537
"""Share of right classes, Alpaca (paper, 4.2.2); the others are in a neighbouring class (paper:
with high probability), either one alike (assumed)."""

MOST_PROMPT = 0.5
"""Prompts are cut at this share of the sequence limit, so that there is room for an answer
(assumed; Alpaca's are shorter)."""


@dataclass(frozen=True)
class Model:
    """A service model on one A6000, in nanoseconds.

    Attributes:
        limit: tokens of a sequence, prompt included; the answer is cut there (paper).
        iteration_ns: an iteration, whatever it holds.
        token_ns: a prompt token in it, padding included.
    """

    limit: int
    iteration_ns: int
    token_ns: int

    def scaled(self, name: str, factor: float) -> Model:
        """Return the same with one constant multiplied."""
        return replace(self, **{name: round(getattr(self, name) * factor)})


GPT2 = Model(1024, 70_000_000, 10_000)
"""70 ms an iteration and less than 1 ms more for an insertion (paper, 4.2.1): 10 microseconds a
token make 1 ms of 100 padded tokens (assumed)."""

GPT_NEO = Model(2048, round(70_000_000 * 32 / 12), round(10_000 * 2.65 / 0.124))
"""The same with 32 layers for 12, one after the other, and 2.65 billion parameters for 124 million
(physics; the paper prints no time for GPT-neo)."""


class InsertionCost(AffineCost):
    """An insertion as in section 3.4: every request of the batch is padded to the new prompt.

    The token vector of the iteration has the batch size times the longest new prompt.
    """

    model = "insertion"

    def mixed_ns(
        self, prompts: Sequence[int], active: int, context_sum: int = 0, context_max: int = 0
    ) -> int:
        """Duration of an iteration with new prompts: one fixed part, and all padded tokens."""
        padded = max(prompts) * (len(prompts) + active)
        return self.prefill_fixed_ns + self.prefill_token_ns * padded


def cloud(model: Model, batch_size: int, literal: bool = True) -> Worker:
    """Return a cloud; memory never binds (paper: the A6000 suffices)."""
    kind = InsertionCost if literal else AffineCost
    cost = kind(
        prefill_fixed_ns=model.iteration_ns,
        prefill_token_ns=model.token_ns,
        round_fixed_ns=model.iteration_ns,
        round_client_ns=0,
    )
    return Worker(batch_size, cost, padding=True)


def lengths(source: str, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return prompt and answer tokens before the cut.

    ``sharegpt``: drawn from ShareGPT's pairs, with replacement, where ``ORSCHED_DATA`` has them;
    else from two log-normals of the same shape. ``gsm8k``: GSM8K's prompts with the shipped law of
    answers, of which 54 % run to 512 tokens. ``short``: GSM8K's prompts with ShareGPT's
    answers (added after the first comparison, to tell prompts and answers apart).
    """
    if source != "sharegpt":
        rows = stream("mico/short", seed).integers(0, gsm8k.PROBLEMS, count)
        answers = gsm8k.output_tokens(count, seed, "mico")
        if source == "short":
            answers = lengths("sharegpt", count, seed)[1]
        return gsm8k.prompt_tokens()[rows], answers
    if os.environ.get(VARIABLE):
        pairs = read(data_directory() / "sharegpt_10k_llama2_tokens.csv").requests
        rows = stream("mico/rows", seed).integers(0, len(pairs), count)
        return pairs.prompt_tokens[rows], pairs.output_tokens[rows]
    prompts = lognormal_tokens("mico/prompts", seed, count, 295, 2.0, 1, 4000)
    return prompts, lognormal_tokens("mico/outputs", seed, count, 372, 0.8, 3, 2000)


def predictions(
    outputs: NDArray[np.int64], limit: int, accuracy: float, seed: int
) -> NDArray[np.int64]:
    """Return the middle of the right class with the given probability, else of a neighbour."""
    true = np.minimum(outputs * BUCKETS // limit, BUCKETS - 1)
    wrong = stream("mico/wrong", seed).random(len(outputs)) >= accuracy
    up = stream("mico/up", seed).random(len(outputs)) < 0.5
    side = np.where(true == 0, 1, np.where(true == BUCKETS - 1, -1, np.where(up, 1, -1)))
    found = true + side * wrong
    return (2 * found + 1) * limit // (2 * BUCKETS)


def instance(
    count: int,
    clouds: int,
    batch_size: int,
    seed: int,
    model: Model = GPT2,
    source: str = "sharegpt",
    accuracy: float = ACCURACY,
    literal: bool = True,
) -> Instance:
    """Return queries that are all there at time 0, in random order (paper)."""
    prompts, outputs = lengths(source, count, seed)
    prompts = np.minimum(prompts, round(model.limit * MOST_PROMPT))
    outputs = np.minimum(outputs, model.limit - prompts)
    requests = Requests(
        prompts, outputs, predicted_tokens=predictions(outputs, model.limit, accuracy, seed)
    )
    workers = (cloud(model, batch_size, literal),) * clouds
    return Instance(
        requests, workers, first_token="prefill", output_limit_tokens=model.limit, name="mico"
    )
