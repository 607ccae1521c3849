"""Latencies of requests as distribution curves, and attainment over multiples of the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.metrics.class_metrics import class_limits
from orsched.metrics.request_times import finishes_ns, first_tokens_ns
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

    Values = NDArray[np.float64]

POINTS = 600
"""Points of a curve at most; with more requests it goes through so many of its exact points."""

_TAIL = 60
"""The slowest requests are all points of a curve: p99 of 6,000 requests is among them."""

Limit = tuple[int | None, int | None]
"""Limits on TTFT and TPOT in nanoseconds, None where there is none."""


class Latencies(NamedTuple):
    """Latencies in nanoseconds, one entry a request.

    Attributes:
        ttft_ns: from arrival to the first token.
        tpot_ns: between tokens after the first, on average, rounded down.
        jct_ns: from arrival to the end.
        several: whether the request has two tokens or more, so that its TPOT is defined.
    """

    ttft_ns: IntColumn
    tpot_ns: IntColumn
    jct_ns: IntColumn
    several: NDArray[np.bool_]

    def of(self, name: str) -> IntColumn:
        """Return the defined values of ``ttft``, ``tpot`` or ``jct``."""
        values: IntColumn = getattr(self, f"{name}_ns")
        return values[self.several] if name == "tpot" else values


class Ecdf(NamedTuple):
    """A distribution: ``share[k]`` of the values are ``value[k]`` at most; values do not fall."""

    value: Values
    share: Values


def latencies(instance: Instance, schedule: Schedule) -> Latencies:
    """Return the latencies of all requests.

    Raises ``InputError`` for a run that was stopped: most of its requests have none.
    """
    if schedule.is_partial:
        raise InputError(
            "a run that was stopped has no distribution of latencies", field="schedule",
            remedy="resume it: orsched run ... --resume",
        )  # fmt: skip
    line = Timeline(instance, schedule)
    requests = instance.requests
    first, finish = first_tokens_ns(line), finishes_ns(line)
    pace = (finish - first) // np.maximum(requests.output_tokens - 1, 1)
    arrival = requests.arrival_ns
    return Latencies(first - arrival, pace, finish - arrival, requests.output_tokens >= 2)


def ecdf(values: IntColumn | Values, points: int = POINTS) -> Ecdf:
    """Return exact points of the empirical distribution function, the slowest all among them.

    The value of the k-th smallest of n values stands at the share k / n, so that percentiles by
    nearest rank can be read off.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    n = len(ordered)
    rank = np.arange(1, n + 1)
    if n > points:
        even = np.linspace(1, n, points - _TAIL).round().astype(np.int64)
        rank = np.union1d(even, rank[-_TAIL:])
    return Ecdf(ordered[rank - 1], rank / max(n, 1))


def needed_multiples(instance: Instance, found: Latencies, slo_ns: Limit | None = None) -> Values:
    """Return by which factor the limits of each judged request would have to be multiplied.

    A request is within m times its limits exactly if its value is m at most; the share of such
    requests at m = 1 is the reported attainment. With ``slo_ns`` judged are all requests that
    are not bulk, without it those of classes with limits, by their own. A TPOT that is not
    defined is met.
    """
    judged, limits = _limits(instance, slo_ns)
    need = np.zeros(len(instance))
    for values, limit in zip((found.ttft_ns, found.tpot_ns), limits, strict=True):
        given = limit >= 0
        if values is found.tpot_ns:
            given &= found.several
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(values == 0, 0.0, values / limit)
        need = np.where(given, np.maximum(need, ratio), need)
    return need[judged]


def limits_of(instance: Instance, schedule: Schedule, slo_ns: Limit | None = None) -> Limit | None:
    """Return the limits that are given, else those that the schedule was judged by, if any."""
    if slo_ns is None:
        reported = schedule.results.get("slo") or {}
        slo_ns = reported.get("ttft_ns"), reported.get("tpot_ns")
    return None if slo_ns == (None, None) else slo_ns


def _limits(
    instance: Instance, slo_ns: Limit | None
) -> tuple[NDArray[np.bool_], tuple[IntColumn, IntColumn]]:
    """Return who is judged, and each request's limits on TTFT and TPOT, -1 where there is none."""
    if slo_ns is not None:
        judged = ~instance.bulk if instance.names_classes else np.ones(len(instance), bool)
        by_class = [slo_ns]
        codes = np.zeros(len(instance), np.int64)
    else:
        by_class = [(each.ttft_ns, each.tpot_ns) for each in class_limits(instance)]
        codes = np.asarray(instance.requests.service_class, np.int64)
        judged = np.array([limits != (None, None) for limits in by_class])[codes]
    ttft, tpot = (
        np.array([-1 if limits[k] is None else limits[k] for limits in by_class], np.int64)[codes]
        for k in (0, 1)
    )
    return judged, (ttft, tpot)
