"""Weights as rows of a linear program, and the contents and roundings that are heaviest under them.

For ``alignment_bound``: what they prove is worked out in ``orsched.certificates.alignment``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.certificates.alignment import Contents, Shorts, Weights, least_weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.certificates.alignment import Floats, Numbers
    from orsched.certificates.jobs import Jobs

MOST_REQUESTS = 200
_NONE = -(2**60)
WHOLE = 1 << 26
"""Of weights in whole numbers: what is 1 in the linear program."""


def shorts_of(jobs: Jobs) -> Shorts | None:
    """Return the requests by length, or None where there are none or too many."""
    return None if len(jobs) > MOST_REQUESTS else Shorts.of(jobs.rounds, jobs.clients)


def from_row(row: Numbers) -> Weights:
    """Return the parts of a row of the linear program."""
    end, middle, single, window = row[:-1].reshape(4, -1)
    return Weights(end, middle, single, window, row[-1])


def whole(weights: Weights) -> Weights:
    """Return weights in whole numbers, not below 0."""
    parts = [np.rint(part * WHOLE).astype(np.int64) for part in weights[:4]]
    end, middle, single, window = (np.maximum.accumulate(part) for part in parts)
    return Weights(end, middle, single, window, round(float(weights.long) * WHOLE))


def heaviest_rows(contents: Contents, rounds: int) -> Iterator[Floats]:
    """Yield the heaviest content for each number of longs, as a row over the weights."""
    long, n = contents.shorts.long, len(contents.sizes)
    for longs in range(rounds // long + 1):
        row, left = np.zeros(4 * n + 1), rounds - longs * long
        row[-1] = longs
        other = contents.one[left] if longs else contents.only[left]
        if contents.two[left] >= max(other, 0):
            left = _add_end(contents, row, left, contents.last)
            left = _add_end(contents, row, left, contents.middles[-1])
            _add_middles(contents, row, left)
        elif longs and other > 0:
            _add_end(contents, row, left, np.zeros_like(contents.one))
        elif other > 0:
            fitting = sum(size <= left for size in contents.sizes)
            row[[2 * n + fitting - 1, 3 * n + fitting - 1]] += 1
        yield row


def _add_end(contents: Contents, row: Floats, left: int, before: Numbers) -> int:
    """Add the best first or last short to a row; return the rounds that are left."""
    n, rest = len(contents.sizes), left - contents.shorts.sizes
    values = before[np.maximum(rest, 0)] + contents.weights.end + contents.weights.window
    possible = (rest >= 0) & (before[np.maximum(rest, 0)] >= 0)
    at = int(np.argmax(np.where(possible, values, _NONE)))
    row[[at, 3 * n + at]] += 1
    return int(rest[at])


def _add_middles(contents: Contents, row: Floats, left: int) -> None:
    n = len(contents.sizes)
    for number in range(len(contents.items) - 1, -1, -1):
        at, times = contents.items[number]
        if contents.middles[number + 1][left] > contents.middles[number][left]:
            row[[n + at, 3 * n + at]] += times
            left -= times * contents.sizes[at]


def rounded_rows(
    shorts: Shorts, weights: Weights, places: int, windows: int
) -> tuple[float, Floats, Floats]:
    """Return the least weight of all requests, by role and by window, and a row for each."""
    n = len(shorts.sizes)
    by_role, by_window, longs = least_weight(shorts, weights, places, windows)
    roles, in_windows = np.zeros(4 * n + 1), np.zeros(4 * n + 1)
    for at, many in enumerate(shorts.counts.tolist()):
        up = int(by_role.lengths[at])
        options = (weights.end[up], weights.middle[at], weights.single[at])
        roles[(up, n + at, 2 * n + at)[int(np.argmin(options))]] += many
        in_windows[3 * n + int(by_window.lengths[at])] += many
    roles[-1] = shorts.longs
    return by_role.total + by_window.total + longs, roles, in_windows
