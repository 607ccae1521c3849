"""Intervals of a share that is measured over replications, or over the parts of one trace."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.planning.study.confidence import mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

_RESAMPLES = 2000
_FEWEST_PARTS = 10


class ShareInterval(NamedTuple):
    """A share with the ends of its interval, and what the interval is."""

    share: float
    low: float
    high: float
    kind: str


def over_replications(shares: Sequence[float], level: float) -> ShareInterval:
    """Return the mean of the shares of two or more replications, by Student's t."""
    found = mean_interval(shares, level)
    assert found.low is not None
    assert found.high is not None
    low, high = max(0.0, found.low), min(1.0, found.high)
    return ShareInterval(found.mean, low, high, f"Student's t over {len(shares)} replications")


def over_parts(parts: Sequence[Sequence[int]], level: float) -> ShareInterval:
    """Return the share of one trace: the wider ends of a block bootstrap and Wilson's interval.

    ``parts`` are pairs (attained, requests) of consecutive requests. Neighbouring requests share
    their fate, which Wilson's interval for independent ones does not see; the bootstrap over parts
    does, but says nothing where all parts are equal.
    """
    counts = np.array(parts, np.int64).reshape(-1, 2)
    attained, requests = (int(total) for total in counts.sum(axis=0))
    share = attained / requests
    low, high = wilson(attained, requests, level)
    if len(counts) < _FEWEST_PARTS:
        return ShareInterval(share, low, high, f"Wilson over {requests} requests")
    draws = np.random.default_rng(0).integers(0, len(counts), (_RESAMPLES, len(counts)))
    sums = counts[draws].sum(axis=1)
    shares = np.sort(sums[:, 0] / sums[:, 1])
    cut = int((1 - level) / 2 * _RESAMPLES)
    low, high = min(low, float(shares[cut])), max(high, float(shares[-1 - cut]))
    kind = f"block bootstrap over {len(counts)} parts of the trace, not inside Wilson's"
    return ShareInterval(share, low, high, kind)


def wilson(attained: int, requests: int, level: float) -> tuple[float, float]:
    """Return Wilson's interval of a share of independent requests (Wilson 1927)."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, square = attained / requests, z * z / requests
    middle = (share + square / 2) / (1 + square)
    half = z / (1 + square) * math.sqrt(share * (1 - share) / requests + square / (4 * requests))
    low = 0.0 if attained == 0 else max(0.0, middle - half)
    return low, 1.0 if attained == requests else min(1.0, middle + half)
