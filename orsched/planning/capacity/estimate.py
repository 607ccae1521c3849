"""What the simulations of one fleet say of it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration.intervals import mean_interval, wilson
from orsched.common.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.planning.capacity.question import Fleet, Question


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


class Estimate(NamedTuple):
    """A fleet's measured attainment, latencies and throughput: means over the replications.

    Attributes:
        fleet: workers of each machine.
        suffices: whether it keeps the attainment, by the question's criterion.
        attainment, low, high: share of the requests that keep both limits, and its interval.
        interval: what the interval is.
        ttft_p99_s, tpot_p99_s: 99th percentiles, or None.
        bulk_tokens_per_s: output tokens of bulk requests a second, or None without any.
        tokens_per_s: output tokens of all requests a second.
        idle: share of the time that each machine's workers run no step.
    """

    fleet: Fleet
    suffices: bool
    attainment: float
    low: float
    high: float
    interval: str
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    bulk_tokens_per_s: float | None
    tokens_per_s: float
    idle: tuple[float, ...]

    @property
    def workers(self) -> int:
        """All workers of the fleet."""
        return sum(self.fleet)


def estimate_of(question: Question, fleet: Fleet, results: Sequence[Mapping[str, Any]]) -> Estimate:
    """Return the estimate from the results of all replications of a fleet."""
    shares = [each["attained"] / each["requests"] for each in results]
    if len(results) > 1:
        found = over_replications(shares, question.confidence)
    else:
        found = over_parts(results[0]["parts"], question.confidence)
    exact = sum(Fraction(each["attained"], each["requests"]) for each in results) / len(results)
    suffices = exact >= question.attainment
    if question.criterion == "confident" and suffices:
        suffices = Fraction(found.low) >= question.attainment or found.low >= float(
            question.attainment
        )
    return Estimate(
        fleet,
        suffices,
        found.share,
        found.low,
        found.high,
        found.kind,
        _mean_s([each["ttft_p99_ns"] for each in results]),
        _mean_s([each["tpot_p99_ns"] for each in results]),
        _bulk(results),
        _rate(results, "output_tokens"),
        _idle(fleet, results),
    )


def _mean_s(values: Sequence[int | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) / NS_PER_S if there else None


def _bulk(results: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the output tokens of bulk requests a second, until all requests are done."""
    if not any(each["bulk_requests"] for each in results):
        return None
    return _rate(results, "bulk_tokens")


def _rate(results: Sequence[Mapping[str, Any]], name: str) -> float:
    tokens = sum(each[name] for each in results)
    spent = sum(each["makespan_ns"] for each in results)
    return float(tokens * NS_PER_S / spent) if spent else 0.0


def _idle(fleet: Fleet, results: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    spent = sum(each["makespan_ns"] for each in results)
    found, first = [], 0
    for count in fleet:
        busy = sum(sum(each["busy_ns"][first : first + count]) for each in results)
        found.append(1 - busy / (count * spent) if count and spent else 0.0)
        first += count
    return tuple(found)
