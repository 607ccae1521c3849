"""Which limits each request is judged by, and how many keep theirs: the attainment, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.common.units import NEVER

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.slo import SLO


class RequestLimits(NamedTuple):
    """Limits by request, -1 for none, and the requests that are judged, as ``slo_attainment`` does.

    Attributes:
        judged: the rows that count; all others may take as long as they like.
        ttft_ns: limit on the time to the first token.
        decode_ns: limit on the time from the first token to the last, that of TPOT times tokens.
    """

    judged: IntColumn
    ttft_ns: IntColumn
    decode_ns: IntColumn

    def attained(self, instance: Instance, first_ns: IntColumn, finish_ns: IntColumn) -> int:
        """Return how many of the judged requests are within their limits."""
        rows = self.judged
        ttft = (first_ns - instance.requests.arrival_ns)[rows]
        decode = (finish_ns - first_ns)[rows]
        met = (self.ttft_ns[rows] < 0) | (ttft <= self.ttft_ns[rows])
        met &= (self.decode_ns[rows] < 0) | (decode <= self.decode_ns[rows])
        return int(met.sum())


def request_limits(instance: Instance, slo: SLO | None) -> RequestLimits:
    """Return the limits of an SLO for all requests that are not bulk, or those of the classes.

    TPOT is the mean, rounded down to whole nanoseconds, over the tokens after the first: a request
    of d tokens keeps p if it decodes for at most (d - 1) (p + 1) - 1 ns; one of a token has none.
    """
    n, requests = len(instance), instance.requests
    ttft, tpot = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    if slo is not None:
        judged = ~instance.bulk if instance.names_classes else np.ones(n, bool)
        ttft[:] = -1 if slo.ttft_ns is None else slo.ttft_ns
        tpot[:] = -1 if slo.tpot_ns is None else slo.tpot_ns
    else:
        judged = np.zeros(n, bool)
        for code, kind in enumerate(instance.classes):
            rows = requests.service_class == code
            ttft[rows] = -1 if kind.ttft_ns is None else kind.ttft_ns
            tpot[rows] = -1 if kind.tpot_ns is None else kind.tpot_ns
            judged |= rows & ((ttft >= 0) | (tpot >= 0))
    further = requests.output_tokens - 1
    decode = np.full(n, -1, np.int64)
    for row in np.flatnonzero((tpot >= 0) & (further > 0)).tolist():
        longest = int(further[row]) * (int(tpot[row]) + 1) - 1
        decode[row] = min(longest, NEVER)
    return RequestLimits(np.flatnonzero(judged), ttft, decode)
