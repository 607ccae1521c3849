"""The setting of SSJF's experiments: workload, worker and every constant, with its source.

All constants were fixed before the comparison. What the paper prints is marked (paper), what is
taken because nothing is said (assumed). Its V100s, models and Azure function trace are not modelled
one by one: it gives the execution time of a request as T = C + K N, and so does this.
"""

from __future__ import annotations

import csv
import os
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.costs import AffineCost
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances import predict, with_arrivals
from orsched.instances.datasets import VARIABLE, data_directory
from orsched.instances.predictions import load_confusion
from orsched.instances.streams import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHORTEST, LIMIT = 2, 511
"""Replies of 1 < N < 512 tokens (paper, 4.3: data processing)."""

MEAN_TOKENS = 176.8
"""Mean length of the published replies."""

MEAN_S, LEAST_S = 9.8, 0.120
"""Mean and least execution time of a request (paper, predictor overhead)."""

TOKEN_S = (MEAN_S - LEAST_S) / (MEAN_TOKENS - SHORTEST)
"""K of T = C + K N, from the mean length's and the shortest reply's time (paper)."""

FIXED_S = LEAST_S - SHORTEST * TOKEN_S
"""C (paper, as K). What a prompt costs is in it: their T has no term for its length."""

SLOWER = 0.05
"""A round takes so much of K more for each request beside the first (assumed: a round of at most
16 requests mostly reads the weights)."""

BATCH = 4
"""Largest batch of the dynamic and continuous modes (paper)."""

TIMEOUT_S = 0.1
"""batch_wait_timeout of the dynamic mode (assumed)."""

LATENCY_S = 0.0076
"""Mean latency of the predictor (paper): a request cannot start before."""

PROMPT_TOKENS = 70
"""No part in the times (assumed)."""

WINDOW_S = 1800
"""Requests arrive within this time; throughput is what is done by its end (assumed)."""

LOADS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Arrivals over what first come first served can serve in the mode (assumed: the paper's rates are
in its figures alone). No order can complete more than the load times as many requests as it does,
so the 2.2 to 3.6 of the paper need overload."""

LOAD = 4.0
"""Load of the figures by burstiness and batch size: the least of ``LOADS`` above 3.6 (assumed)."""

CVS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Coefficients of variation of the Gamma gaps (assumed)."""

SIZES = (2, 4, 8, 16)
"""Batch sizes of Fig. 8 (assumed)."""

SIGMA = 0.5
"""Relative error of the regression row: its accuracy in five classes is the paper's 0.615."""

MODES = ("none", "dynamic", "continuous")


class Case(NamedTuple):
    """One experiment: batching mode and size, arrivals, and the constants that may change."""

    batching: str
    load: float = LOAD
    cv: float | None = None
    size: int = BATCH
    rate: float | None = None
    token_s: float = TOKEN_S
    fixed_s: float = FIXED_S
    slower: float = SLOWER
    timeout_s: float = TIMEOUT_S

    @property
    def arrivals_per_s(self) -> float:
        """The rate of arrivals."""
        return self.load / self.seconds_each() if self.rate is None else self.rate

    def seconds_each(self) -> float:
        """Return the time that first come first served takes for each request when all wait."""
        size = 1 if self.batching == "none" else self.size
        round_s = self.token_s * (1 + self.slower * (size - 1))
        if self.batching == "continuous":
            return self.fixed_s + round_s * mean_longest(1) / size
        return (self.fixed_s + round_s * mean_longest(size)) / size

    def cost(self) -> AffineCost:
        """Return the cost of stages and rounds."""
        more = self.token_s * self.slower
        return AffineCost(
            prefill_fixed_s=self.fixed_s,
            prefill_token_s=0,
            round_fixed_s=self.token_s - more,
            round_client_s=more,
        )


@cache
def mean_longest(count: int) -> float:
    """Return the mean of the longest of so many replies, by the shipped counts."""
    confusion = load_confusion(5)
    ends = np.cumsum(confusion.counts.sum(axis=1)) / confusion.counts.sum()
    starts = np.concatenate([[SHORTEST], confusion.up_to_tokens[:-1] + 1])
    middles = (starts + confusion.up_to_tokens) / 2
    return float((np.diff(np.concatenate([[0.0], ends**count])) * middles).sum())


def lengths(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, str]:
    """Return true lengths, the classes that were predicted for them if known, and the source.

    Rows of the published predictions, with replacement, where ``ORSCHED_DATA`` has them; else
    drawn from the shipped counts: a bin by its share, a length in it.
    """
    draws = stream("ssjf/lengths", seed)
    if os.environ.get(VARIABLE):
        truth, told = _published()
        rows = draws.integers(0, len(truth), count)
        return truth[rows], told[rows], "published predictions"
    confusion = load_confusion(5)
    ends = np.cumsum(confusion.counts.sum(axis=1)) / confusion.counts.sum()
    starts = np.concatenate([[SHORTEST], confusion.up_to_tokens[:-1] + 1])
    pairs = draws.random((count, 2))
    bins = np.searchsorted(ends, pairs[:, 0], side="right")
    low, high = starts[bins], confusion.up_to_tokens[bins]
    return low + (pairs[:, 1] * (high - low + 1)).astype(np.int64), None, "shipped counts"


@cache
def _published() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    path = data_directory() / "output_length_predictions.csv"
    with path.open(encoding="utf-8") as file:
        rows = [(r["true_output_tokens"], r["pred_bucket_5class"]) for r in csv.DictReader(file)]
    table = np.array(rows, dtype=np.int64)
    return table[:, 0], table[:, 1]


def workload(case: Case, seed: int) -> Instance:
    """Return the requests that arrive within the window, with their predicted classes' medians."""
    expected = case.arrivals_per_s * WINDOW_S
    spread = 1.0 if case.cv is None else case.cv
    count = int(expected + 8 * max(1.0, spread) * expected**0.5 + 100 * max(1.0, spread))
    outputs, told, _ = lengths(count, seed)
    requests = Requests(np.full(count, PROMPT_TOKENS), outputs)
    worker = Worker(1 if case.batching == "none" else case.size, case.cost())
    instance = Instance(
        requests, worker, output_limit_tokens=512, name="ssjf", first_token="decode"
    )
    rate = case.arrivals_per_s
    law = {"law": "poisson", "rate": rate}
    if case.cv is not None:
        law = {"law": "gamma", "rate": rate, "cv": case.cv}
    instance = with_arrivals(instance, law, seed)
    arrivals = instance.requests.arrival_ns
    if arrivals[-1] < WINDOW_S * 10**9:
        raise AssertionError(f"{count} requests do not fill the window, seed {seed}")
    if told is None:
        instance = predict(instance, "classes", seed)
    else:
        medians = np.array(load_confusion(5).medians(), np.int64)
        instance = instance.replace(
            requests=instance.requests.replace(predicted_tokens=medians[told])
        )
    kept = np.flatnonzero(arrivals < WINDOW_S * 10**9)
    return instance.replace(requests=instance.requests.take(kept))
