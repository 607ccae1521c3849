"""Arrivals from a coarse clock, spread inside its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.instances.streams import stream

if TYPE_CHECKING:
    from orsched.data.requests import Requests


def spread_arrivals(requests: Requests, seed: int | None = None) -> Requests:
    """Return requests whose equal arrival times are spread up to the next distinct time.

    Clocks that tick in steps (Mooncake's of about 3 s, BurstGPT's of 1 s) give many requests one
    time, which makes gaps look bursty. The g requests of one step of width w arrive, in the
    order of rows, at ``k w / g`` after its start, k = 0..g-1, or with a seed at g sorted uniform
    times inside it. The last step is as wide as the median step. All integers; a file with one
    time only is returned as it is.
    """
    times, inverse, counts = np.unique(requests.arrival_ns, return_inverse=True, return_counts=True)
    if len(times) < 2:
        return requests
    widths = np.diff(times)
    widths = np.append(widths, np.sort(widths)[len(widths) // 2])
    order = np.argsort(inverse, kind="stable")
    first = np.repeat(np.cumsum(counts) - counts, counts)
    place = np.arange(len(requests)) - first
    step = inverse[order]
    if seed is None:
        offset = widths[step] // counts[step] * place
    else:
        draws = stream("spread-arrivals", seed).random(len(requests))
        draws = draws[np.lexsort((draws, step))]
        offset = np.floor(draws * widths[step]).astype(np.int64)
    spread = np.empty(len(requests), np.int64)
    spread[order] = times[step] + offset
    return requests.replace(arrival_ns=spread)
