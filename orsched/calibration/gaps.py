"""Gaps between the steps of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.data.schedule import PREFILL

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.metrics.timeline import Timeline


def gaps_ns(instance: Instance, line: Timeline) -> IntColumn:
    """Return the gap before each step but the workers' first ones, by place."""
    ready = np.zeros(len(line.order), np.int64)
    rows = np.flatnonzero(line.work.phase == PREFILL)
    arrivals = instance.requests.arrival_ns[line.work.request[rows]]
    np.maximum.at(ready, line.first[rows], arrivals)
    follows = np.flatnonzero(line.worker[1:] == line.worker[:-1]) + 1
    since = np.maximum(line.end_ns[follows - 1], ready[follows])
    found: IntColumn = np.maximum(line.start_ns[follows] - since, 0)
    return found
