"""Kendall's rank correlation in n log n, by counting inversions bit by bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from orsched.common.columns import IntColumn


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Return Kendall's tau-b of two columns: from -1 to 1, NaN where one of them is flat.

    Pairs that are tied in one of them count in neither direction (Kendall 1945). Raises
    ``InputError`` for columns of different lengths.
    """
    x = np.unique(np.asarray(first), return_inverse=True)[1].astype(np.int64)
    y = np.unique(np.asarray(second), return_inverse=True)[1].astype(np.int64)
    if len(x) != len(y):
        raise InputError(
            f"{len(x)} values beside {len(y)}", field="second", remedy="give as many values in both"
        )
    both = _ties(x * (len(y) + 1) + y)
    pairs, in_x, in_y = len(x) * (len(x) - 1) // 2, _ties(x), _ties(y)
    if in_x == pairs or in_y == pairs:
        return float("nan")
    order = np.lexsort((y, x))
    agreed = pairs - in_x - in_y + both - 2 * inversions(y[order])
    return float(agreed / np.sqrt(float(pairs - in_x)) / np.sqrt(float(pairs - in_y)))


def _ties(values: IntColumn) -> int:
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def inversions(ranks: IntColumn) -> int:
    """Return the number of pairs whose earlier member is the larger; ranks are 0 or more.

    Two ranks are in the wrong order by the highest bit in which they differ: among those that
    agree above a bit, each 0 counts the 1s before it.
    """
    total = 0
    for bit in range(int(ranks.max(initial=0)).bit_length()):
        above = ranks >> (bit + 1)
        order = np.argsort(above, kind="stable")
        group, ones = above[order], (ranks[order] >> bit) & 1
        before = np.cumsum(ones) - ones
        starts = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
        within = before - np.repeat(before[starts], np.diff(np.append(starts, len(group))))
        total += int(within[ones == 0].sum())
    return total
