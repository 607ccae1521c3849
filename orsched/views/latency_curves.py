"""Distributions of latencies, and attainment over multiples of the limits, for both charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.errors import InputError
from orsched.metrics.class_metrics import class_limits
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import finishes_ns, first_tokens_ns
from orsched.views.style import LINE_STYLES, line_look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.service_classes import SLO

    Values = NDArray[np.float64]


MEASURES = {
    "ttft": ("TTFT, from arrival", "time to first token"),
    "tpot": ("TPOT, mean of a request", "time per further token"),
    "jct": ("JCT, from arrival", "time from arrival to finish"),
}
"""Title and words of each latency."""

POINTS = 600
"""Points of a curve at most; with more requests it goes through so many of its exact points."""

_TAIL = 60
"""The slowest requests are all points of a curve: p99 of 6,000 requests is among them."""

Limit = tuple[int | None, int | None]
"""Limits on TTFT and TPOT in nanoseconds, None where there is none."""


class Latencies(NamedTuple):
    """Latencies in nanoseconds, one entry a request.

    ``tpot_ns`` is rounded down, and defined where ``several``: of two tokens or more.
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
    """Return the latencies of all requests; ``InputError`` for a run that was stopped."""
    if schedule.is_partial:
        raise InputError(
            "a run that was stopped has no distribution of latencies", field="schedule",
            remedy="resume it: orsched run ... --resume",
        )  # fmt: skip
    line = Timeline(instance, schedule)
    requests = line.instance.requests
    first, finish = first_tokens_ns(line), finishes_ns(line)
    pace = (finish - first) // np.maximum(requests.output_tokens - 1, 1)
    arrival = requests.arrival_ns
    return Latencies(first - arrival, pace, finish - arrival, requests.output_tokens >= 2)


def ecdf(values: IntColumn | Values, points: int = POINTS) -> Ecdf:
    """Return exact points of the empirical distribution function, the slowest all among them.

    The k-th smallest of n values is at the share k / n: percentiles are by nearest rank.
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
    requests at m = 1 is the reported attainment. Judged are, with ``slo_ns``, all requests that are
    not bulk, else those of classes with limits, by their own. A TPOT that is not defined is met.
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


def has_limits(instance: Instance, limit: Limit | None) -> bool:
    """Return whether there are limits on TTFT or TPOT to judge requests by."""
    return limit is not None or any(
        kind.ttft_ns is not None or kind.tpot_ns is not None for kind in instance.classes
    )


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


PAGE_POINTS = 300
"""Points of a distribution, at most."""

FACTORS = 2.0 ** (np.arange(-36, 37) / 12)
"""Multiples of the limits at which the attainment is given; 1 is one of them."""

FAR = 1.6
"""Values above so many times the largest 99th percentile stand at the border of the chart."""


def latency_data(
    instance: Instance, schedules: Sequence[Schedule], slo: SLO | None = None
) -> dict[str, Any] | None:
    """Return the distributions of TTFT, TPOT and JCT and the attainment of all schedules.

    Each distribution has a ``title`` and ``methods``, with rising ``values`` (ns) and the shares of
    requests up to them, None for a run that was stopped, and ``border``: the end of the axis where
    some values lie far beyond the others, else None. ``attainment`` has shares over ``x``:
    multiples of the limits, or limits on TTFT in nanoseconds where there are none. ``lines`` are
    colour and number of the dashes of each schedule. None without requests.
    """
    if not len(instance):
        return None
    found = [None if each.is_partial else latencies(instance, each) for each in schedules]
    if all(each is None for each in found):
        return None
    looks = [line_look(k) for k in range(len(schedules))]
    return {
        **{name: _distributions(found, name) for name in MEASURES},
        "limits": {} if slo is None else {"ttft": slo.ttft_ns, "tpot": slo.tpot_ns},
        "attainment": _attainment(instance, found, slo),
        "lines": [[look["color"], LINE_STYLES.index(look["linestyle"])] for look in looks],
    }


def _distributions(found: Sequence[Latencies | None], name: str) -> dict[str, Any]:
    columns = [np.empty(0, np.int64) if each is None else each.of(name) for each in found]
    known = [column for column in columns if len(column)]
    usual = max((_rank(column, 0.99) for column in known), default=0)
    largest = max((int(column.max()) for column in known), default=0)
    return {
        "title": MEASURES[name][0],
        "methods": [_curve(column) if len(column) else None for column in columns],
        "border": round(1.15 * usual) if largest > FAR * usual > 0 else None,
    }


def _curve(values: IntColumn) -> dict[str, list[Any]]:
    points = ecdf(values, PAGE_POINTS)
    last = np.append(np.diff(points.value) > 0, True)  # of equal values the largest share is enough
    return {
        "values": points.value[last].astype(np.int64).tolist(),
        "shares": np.round(points.share[last], 6).tolist(),
    }


def _rank(values: IntColumn, share: float) -> int:
    """Return the nearest rank: the least value that so many are not above."""
    place = int(np.ceil(round(share * len(values), 6))) - 1
    return int(np.partition(values, place)[place])


def _attainment(
    instance: Instance, found: Sequence[Latencies | None], slo: SLO | None
) -> dict[str, Any]:
    slo_ns = None if slo is None or slo.limits_ns == (None, None) else slo.limits_ns
    shares: list[list[float] | None]
    if slo_ns is None and not has_limits(instance, None):
        every = [each.ttft_ns for each in found if each is not None]
        low = max(1, min(_rank(column, 0.01) for column in every))
        high = max(2 * low, *(int(column.max()) for column in every))
        edges = np.unique(np.rint(np.geomspace(low, high, 97)).astype(np.int64))
        shares = [None if each is None else _up_to(each.ttft_ns, edges) for each in found]
        return {"over": "ttft", "x": edges.tolist(), "methods": shares}
    needs = [None if each is None else needed_multiples(instance, each, slo_ns) for each in found]
    shares = [None if need is None or not len(need) else _up_to(need, FACTORS) for need in needs]
    return {"over": "multiple", "x": FACTORS.tolist(), "methods": shares}


def _up_to(values: NDArray[Any], edges: NDArray[Any]) -> list[float]:
    counts = np.searchsorted(np.sort(values), edges, side="right")
    return [round(share, 6) for share in (counts / len(values)).tolist()]
