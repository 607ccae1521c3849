"""The recurrence of SCLS eq. (10) in numpy: all requests of one length at once.

Within a group of equal lengths let ``U[j] = T[j] - A j``. Then ``U[i] = B + min U`` over the N
positions before i. While i moves through the group the positions before it drop out one by one,
so their part is a suffix minimum ``m(i)``, which never falls. For ``B > 0`` a position of the group
is at least ``B + m(first)``, and so

    U[i] = B + min(m(i), B + m(first))     for the first N of the group,
    U[i] = B + U[i - N]                    for all after them,

because U never falls within the group. For ``B <= 0`` a request alone is always best:
``U[i] = U[i - 1] + B``. O(n + groups x N_max) in all. ``docs/batcher.md`` has the proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.models.batch.problem import Problem

UNKNOWN = -1


def boundaries(problem: Problem) -> list[int]:
    """Return the positions between batches, 0 and n included, ties to the smaller last batch."""
    n = len(problem)
    dtype = np.int64 if fits(problem) else object
    positions = np.arange(n + 1).astype(dtype)
    least = np.zeros(n + 1, dtype=dtype)
    for start, end, size, slope, base in problem.groups():
        _group(least, positions, start, end, size, slope, base)
    return _cuts(problem, least, _inner_splits(problem, least))


def fits(problem: Problem) -> bool:
    """Whether every number that is compared is proven to lie within 62 bits.

    T itself may exceed 64 bits: it is kept modulo 2**64, and only differences over one window are
    compared. No batch takes a negative time, so with C the longest time of a batch, two values
    of T at most N_max apart differ by at most q C, where q batches cover any N_max requests: q = 1
    if N_max never grows with the length.
    """
    if not problem.ends:
        return True
    widths = [min(size, end) for size, end in zip(problem.sizes, problem.ends, strict=True)]
    widest = max(widths)
    falls = problem.conditions["largest_batch_falls"]
    covers = 1 if falls else -(-widest // min(problem.sizes))
    pairs = list(zip(widths, problem.slopes, problem.bases, strict=True))
    longest = max(max(a + b, a * width + b) for width, a, b in pairs)
    largest = max(max(abs(a) * (width + 1), abs(b)) for width, a, b in pairs)
    return 4 * (covers * longest + 2 * largest) < 2**62


def _group(
    least: NDArray[Any],
    positions: NDArray[Any],
    start: int,
    end: int,
    size: int,
    slope: int,
    base: int,
) -> None:
    """Fill ``least[start + 1:end + 1]``; U is counted from ``U[start]``."""
    low = max(0, start + 1 - size)
    old = least[low : start + 1] - slope * positions[low : start + 1]
    origin = old[-1:].copy()
    old -= origin
    if base <= 0:
        values = old.min() + base * positions[1 : end - start + 1]
    else:
        reach = min(size, end - start)
        # As i passes, positions drop out from the left only once the window has left 0 behind.
        whole = min(reach, max(1, size - start))
        front = old[: reach - whole + 1].copy()
        front[-1] = old[reach - whole :].min()
        suffix = np.minimum.accumulate(front[::-1])[::-1]
        values = np.empty(reach, dtype=least.dtype)
        values[:whole] = suffix[0]
        values[whole:] = suffix[1:]
        values = np.minimum(values, suffix[0] + base) + base
        if end - start > size:
            steps = positions[: end - start]
            values = np.resize(values, end - start) + base * (steps // size)
    least[start + 1 : end + 1] = values + origin + slope * positions[start + 1 : end + 1]


def _inner_splits(problem: Problem, least: NDArray[Any]) -> NDArray[np.int64]:
    """Return the last batch's start for positions whose window is in their group.

    U never falls within a group, so the best start is i - N or the last position with the same U.
    """
    n = len(problem)
    ends = np.array(problem.ends, dtype=np.int64)
    counts = np.diff(ends, prepend=0)
    starts = np.repeat(ends - counts, counts)
    sizes = np.repeat(np.array(problem.sizes, dtype=np.int64), counts)
    rises = np.repeat(np.array(problem.slopes, dtype=least.dtype), counts)
    index = np.arange(1, n + 1)
    ends_here = np.repeat(ends, counts) == index
    flat = np.empty(n, dtype=bool)  # U of the position equals U of the next in the group
    flat[:-1] = (least[2:] - least[1:-1] == rises[1:]) & ~ends_here[:-1]
    flat[-1:] = False
    # Position of the last of each run of equal U: the next position that is not flat.
    stops = np.where(flat, n, index)
    last = np.minimum.accumulate(stops[::-1])[::-1]
    splits = np.full(n + 1, UNKNOWN, dtype=np.int64)
    inner = np.flatnonzero(index > starts + sizes)
    splits[inner + 1] = last[index[inner] - sizes[inner] - 1]
    alone = np.repeat(np.array([b <= 0 for b in problem.bases], dtype=bool), counts)
    single = np.flatnonzero(alone & (index > starts + 1))
    splits[single + 1] = single
    return splits


def _cuts(problem: Problem, least: NDArray[Any], splits: NDArray[np.int64]) -> list[int]:
    """Follow the splits from the end; the few that are unknown are searched in their window."""
    known = splits.tolist()
    group = len(problem.ends) - 1
    i = len(problem)
    found = [i]
    while i > 0:
        split = known[i]
        if split == UNKNOWN:
            while group > 0 and problem.ends[group - 1] >= i:
                group -= 1
            slope, base = problem.slopes[group], problem.bases[group]
            low = max(0, i - problem.sizes[group])
            sizes = np.arange(i - low, 0, -1).astype(least.dtype)
            times = least[low:i] + slope * sizes + base
            split = low + int(np.flatnonzero(times == least[i])[-1])
        i = split
        found.append(i)
    return found[::-1]
