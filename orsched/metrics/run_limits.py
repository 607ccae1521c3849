"""Limits on figures of a run, such as the 95th percentile of all gaps between tokens, and whether
the run keeps them; and whether its queue grows without end."""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.common.columns import exact_sum
from orsched.data.service_classes import require_slo
from orsched.metrics.flat_figures import ranked, ratio
from orsched.metrics.timeline_rows import exact_product

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.service_classes import SLO, FigureLimit
    from orsched.metrics.timeline_rows import Mask
    from orsched.metrics.token_times import TokenGaps


class Latencies(NamedTuple):
    """What limits are held against: times in nanoseconds, one for each request, and all gaps."""

    instance: Instance
    first_ns: IntColumn
    finish_ns: IntColumn
    gaps: TokenGaps

    @property
    def pace(self) -> IntColumn:
        """The mean time per token after the first, rounded down."""
        further = np.maximum(self.instance.requests.output_tokens - 1, 1)
        found: IntColumn = (self.finish_ns - self.first_ns) // further
        return found

    def of(self, metric: str, wanted: Mask) -> tuple[IntColumn, IntColumn | None]:
        """Return the values of a latency of the wanted requests, and how often each occurs."""
        requests = self.instance.requests
        if metric == "itl":
            return self.gaps.spread(wanted)
        if metric in ("tpot", "stall"):
            wanted = wanted & (requests.output_tokens >= 2)
            return (self.pace if metric == "tpot" else self.gaps.largest())[wanted], None
        until = self.first_ns if metric == "ttft" else self.finish_ns
        return (until - requests.arrival_ns)[wanted], None

    def held_against(self, slo: SLO, judged: Mask, refused: int) -> dict[str, Any]:
        """Return under ``limits`` each limited figure by name with its limit, value and whether it
        is kept, and under ``kept`` whether all are; nothing without such limits. ``judged`` and
        ``refused`` are the requests of limits without a class."""
        if not slo.figures:
            return {}
        require_slo(slo, self.instance.classes)
        names, limits = [kind.name for kind in self.instance.classes], {}
        for limit in slo.figures:
            wanted, missing = judged, refused
            if limit.service_class is not None:
                code = names.index(limit.service_class)
                wanted = self.instance.requests.service_class == code
                missing = (*self.instance.refused, *[0] * (code + 1))[code]
            value, kept = self._value(limit, wanted, missing)
            limits[limit.name] = {"limit_ns": limit.limit_ns, "value_ns": value, "kept": kept}
        return {"limits": limits, "kept": all(each["kept"] for each in limits.values())}

    def _value(
        self, limit: FigureLimit, wanted: Mask, refused: int
    ) -> tuple[int | float | None, bool]:
        """A figure and whether it is within its limit. Refused requests never have a first token:
        their TTFT and JCT are above each limit. What no request has is kept."""
        values, counts = self.of(limit.metric, wanted)
        missing = refused if limit.metric in ("ttft", "jct") else 0
        n = (len(values) if counts is None else exact_sum(counts)) + missing
        if n == 0:
            return None, True
        if limit.figure == "mean":
            if missing:
                return None, False
            total = exact_sum(values) if counts is None else exact_product(counts, values)
            return ratio(total, n), total <= limit.limit_ns * n
        rank = max(1, ceil(limit.share * n))
        if rank > n - missing:
            return None, False
        value = ranked(values, counts, [rank])[0]
        return value, value <= limit.limit_ns


_FEWEST, _PARTS = 40, 4


def overloaded(arrival_ns: IntColumn, begin_ns: IntColumn) -> bool:
    """Return whether the queue of a run grows as long as requests arrive.

    Requests are split by arrival into four parts of equal number. The run is overloaded if the mean
    wait, from the arrival to the first work (``begin_ns``), grows from part to part, is at least
    twice as long in the last as in the second, and then at least a twentieth of the time in which
    requests arrive. With fewer than 40 requests nothing is said: False.
    """
    if len(arrival_ns) < _FEWEST:
        return False
    order = np.argsort(arrival_ns, kind="stable")
    span = int(arrival_ns[order[-1]] - arrival_ns[order[0]])
    size = len(order) // _PARTS
    parts = order[: size * _PARTS].reshape(_PARTS, size)
    waits = [exact_sum((begin_ns - arrival_ns)[part]) for part in parts]
    grows = all(a < b for a, b in pairwise(waits))
    return grows and waits[3] >= 2 * waits[1] and 20 * waits[3] >= span * size > 0
