"""Who waits and who runs over time: requests on clients and before them, as step functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.views.curves import curve_of, interval_curve

if TYPE_CHECKING:
    from orsched.metrics.timeline import Timeline
    from orsched.views.curves import Curve


def load_curves(line: Timeline) -> dict[str, Curve]:
    """Return how many requests are ``running``, on a client, and ``waiting`` for one, at each time.

    A request waits from its arrival, and after an eviction, until its next stay begins.
    """
    begin, end = line.start_ns[line.stay_first], line.end_ns[line.stay_last]
    evicted = end[line.stay_evicted]
    arrival = line.instance.requests.arrival_ns
    joins = np.ones(len(arrival) + len(evicted), np.int64)
    return {
        "running": interval_curve(begin, end),
        "waiting": curve_of(
            np.concatenate([arrival, evicted, begin]),
            np.concatenate([joins, -np.ones(len(begin), np.int64)]),
        ),
    }
