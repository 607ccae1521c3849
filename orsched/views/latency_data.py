"""Distributions of latencies and attainment over the limits, as columns for the page's charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.views.latency_curves import ecdf, latencies, needed_multiples
from orsched.views.style import LINE_STYLES, line_look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.slo import SLO
    from orsched.views.comparison import Row
    from orsched.views.latency_curves import Latencies

PAGE_POINTS = 300
"""Points of a distribution, at most."""

FACTORS = 2.0 ** (np.arange(-36, 37) / 12)
"""Multiples of the limits at which the attainment is given; 1 is one of them."""

FAR = 1.6
"""Values above so many times the largest 99th percentile stand at the border of the chart."""


def latency_data(
    instance: Instance, rows: Sequence[Row], slo: SLO | None = None
) -> dict[str, Any] | None:
    """Return the distributions of TTFT, TPOT and JCT and the attainment of all schedules.

    Each distribution has ``methods``, with rising ``values`` (ns) and the shares of requests up to
    them, None for a run that was stopped, and ``border``: the end of the axis where some values
    lie far beyond the others, else None. ``attainment`` has shares over ``x``: multiples of the
    limits, or limits on TTFT in nanoseconds where there are none. ``lines`` are colour and number
    of the dashes of each schedule. None without requests.
    """
    if not len(instance):
        return None
    found = [None if row.schedule.is_partial else latencies(instance, row.schedule) for row in rows]
    if all(each is None for each in found):
        return None
    looks = [line_look(k) for k in range(len(rows))]
    return {
        **{name: _distributions(found, name) for name in ("ttft", "tpot", "jct")},
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
    slo_ns = None if slo is None else (slo.ttft_ns, slo.tpot_ns)
    shares: list[list[float] | None]
    if slo_ns is None and not _has_limits(instance):
        every = [each.ttft_ns for each in found if each is not None]
        low = max(1, min(_rank(column, 0.01) for column in every))
        high = max(2 * low, *(int(column.max()) for column in every))
        edges = np.unique(np.rint(np.geomspace(low, high, 97)).astype(np.int64))
        shares = [None if each is None else _up_to(each.ttft_ns, edges) for each in found]
        return {"over": "ttft", "x": edges.tolist(), "methods": shares}
    needs = [None if each is None else needed_multiples(instance, each, slo_ns) for each in found]
    shares = [None if need is None or not len(need) else _up_to(need, FACTORS) for need in needs]
    return {"over": "multiple", "x": FACTORS.tolist(), "methods": shares}


def _has_limits(instance: Instance) -> bool:
    """Whether a class has limits on tokens; deadlines have no part in attainment."""
    kinds = instance.classes if instance.names_classes else ()
    return any((kind.ttft_ns, kind.tpot_ns) != (None, None) for kind in kinds)


def _up_to(values: NDArray[Any], edges: NDArray[Any]) -> list[float]:
    counts = np.searchsorted(np.sort(values), edges, side="right")
    return [round(share, 6) for share in (counts / len(values)).tolist()]
