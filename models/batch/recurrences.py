"""The recurrence of SCLS eq. (10) three times: as printed, in numpy by groups, and by lines. By
groups all requests of one length are one step; by lines integers may have any size."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.models.batch.batch_problem import Problem


def as_printed(problem: Problem) -> list[int]:
    """Return the positions between batches, 0 and n included: SCLS Algorithm 1 as it is printed.

    For every request it tries every batch that could end with it, in O(n N_max) steps. Ties go to
    the smaller batch, as in the paper (line 12 asks for strictly less time). A batch of one is
    never tested for memory there; ``build`` has refused requests that do not fit alone."""
    n = len(problem)
    least = [0] * (n + 1)
    split = [0] * (n + 1)
    for start, end, size, slope, base in problem.groups():
        for i in range(start + 1, end + 1):
            split[i] = i - 1
            least[i] = least[i - 1] + slope + base
            j = i - 1
            while j > 0 and i - j + 1 <= size:
                time = least[j - 1] + slope * (i - j + 1) + base
                if time < least[i]:
                    least[i] = time
                    split[i] = j - 1
                j -= 1
    found = [n]
    while found[-1] > 0:
        found.append(split[found[-1]])
    return found[::-1]


# -- by groups of equal lengths ---------------------------------------------------------------

UNKNOWN = -1


def by_groups(problem: Problem) -> list[int]:
    """Return the positions between batches, 0 and n included, ties to the smaller last batch.

    Within a group of equal lengths let ``U[j] = T[j] - A j``. Then ``U[i] = B + min U`` over the N
    positions before i. While i moves through the group the positions before it drop out one by one,
    so their part is a suffix minimum ``m(i)``, which never falls. For ``B > 0`` a position of the
    group is at least ``B + m(first)``, and so

        U[i] = B + min(m(i), B + m(first))     for the first N of the group,
        U[i] = B + U[i - N]                    for all after them,

    because U never falls within the group. For ``B <= 0`` a request alone is always best:
    ``U[i] = U[i - 1] + B``. O(n + groups x N_max). ``docs/batches-and-slices.md`` has the proof.
    """
    n = len(problem)
    dtype = np.int64 if fits(problem) else object
    positions = np.arange(n + 1).astype(dtype)
    least = np.zeros(n + 1, dtype=dtype)
    for start, end, size, slope, base in problem.groups():
        _fill_group(least, positions, start, end, size, slope, base)
    return _cuts(problem, least, _inner_splits(problem, least))


def fits(problem: Problem) -> bool:
    """Whether every number that is compared is proven to lie within 62 bits. T itself may exceed 64
    bits: it is kept modulo 2**64, and only differences over one window are compared. No batch takes
    a negative time, so with C the longest time of a batch, two values of T at most N_max apart
    differ by at most q C, where q batches cover any N_max requests: q = 1 if N_max never grows with
    the length."""
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


def _fill_group(
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
    """Return the last batch's start for positions whose window is in their group. U never falls
    within a group, so the best start is i - N or the last position with the same U."""
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


# -- by lines ---------------------------------------------------------------------------------


class Pieces:
    """Runs of positions whose last batch begins at the same position, in parallel lists. The first
    run is position 0 alone, where T is 0."""

    def __init__(self) -> None:
        self.ends = [0]
        self.splits = [0]
        self.levels = [0]  # U: T minus the group's slope times the position
        self.slopes = [0]


class Queue:
    """The last positions of pieces in the order in which they will be best. If A never falls and
    windows only advance, a later candidate that is as good as an earlier one at some position stays
    so at every later one. So each candidate is best on one run of positions, and these runs are in
    order. Candidate c hands over to a later d at the first position where d is as good *or c has
    left the window*. The usual hull of lines forgets the second and drops d while an even later e
    is below, although c may leave before e is best."""

    def __init__(self, pieces: Pieces, problem: Problem) -> None:
        self.pieces = pieces
        self.slopes = problem.slopes
        self.ends = problem.ends
        self.sizes = problem.sizes
        self.starts = [0, *problem.ends][:-1]
        # First position of the first window of each group; the last entry is beyond all.
        self.lows = [
            start + 1 - size for start, size in zip(self.starts, problem.sizes, strict=True)
        ]
        self.lows.append(len(problem) + 1)
        self.starts.append(len(problem))  # what is best there is best nowhere
        self.leaving = 0  # the last group whose first window holds the newest candidate
        # (T[j], j, first position where it is best, last position with j in its window)
        self.waiting: deque[tuple[int, int, int, int]] = deque()
        self.absorb(0, 0)

    def best(self, i: int, slope: int) -> tuple[int, int]:
        """Return (U, j) with the least ``U = T[j] - slope j`` for j in the window of a batch that
        ends before position i, the largest such j. ``i`` never falls from call to call."""
        waiting = self.waiting
        while len(waiting) > 1 and waiting[1][2] <= i:
            waiting.popleft()
        time, j, _, _ = waiting[0]
        return time - slope * j, j

    def absorb(self, first: int, low: int) -> None:
        """Take in the pieces from index ``first``; later windows begin at ``low`` or after it."""
        ends, levels = self.pieces.ends, self.pieces.levels
        slopes, starts, lows, waiting = self.slopes, self.starts, self.lows, self.waiting
        own = self.pieces.slopes[-1]  # all are of one group
        group = self.leaving
        for index in range(max(first, bisect_left(ends, low, lo=first)), len(ends)):
            j = ends[index]
            time = levels[index] + own * j
            while lows[group + 1] <= j:
                group += 1
            last = min(j + self.sizes[group], self.ends[group])
            begin = j + 1
            while waiting:
                other_time, other, other_begin, other_last = waiting[-1]
                # As good from the first A that is at least this quotient, rounded up.
                begin = starts[bisect_left(slopes, -((other_time - time) // (j - other)))] + 1
                if begin > other_last:
                    begin = other_last + 1
                if begin > other_begin:
                    break
                waiting.pop()
            if begin <= last:
                waiting.append((time, j, begin, last))
        self.leaving = group


def by_lines_holds(problem: Problem) -> bool:
    """Whether queries and windows come in order: A never falls, and no window goes back."""
    return problem.conditions["slope_grows"] and problem.conditions["windows_advance"]


def by_lines(problem: Problem) -> list[int]:
    """Return the positions between batches, 0 and n included, ties to the smaller last batch. T is
    kept in pieces: runs of positions of one group whose last batch begins at the same position. On
    a piece T is linear with slope A, so a later query needs its last position alone, for A grows. A
    group costs a query a piece, however many requests it has. It needs ``by_lines_holds``;
    ``docs/batches-and-slices.md`` has the proof."""
    pieces = Pieces()
    queue = Queue(pieces, problem)
    following = [*problem.sizes, 1][1:]
    for (start, end, size, slope, base), next_size in zip(problem.groups(), following, strict=True):
        first = len(pieces.ends)
        fill = _fill if base > 0 else _fill_alone
        fill(pieces, queue, start, end, size, slope, base)
        queue.absorb(first, end + 1 - next_size)
    i = len(problem)
    found = [i]
    while i > 0:
        i = pieces.splits[bisect_left(pieces.ends, i)]
        found.append(i)
    return found[::-1]


def _fill(
    pieces: Pieces, queue: Queue, start: int, end: int, size: int, slope: int, base: int
) -> None:
    """Add the pieces of a group; a batch has a positive fixed time. U never falls within the group:
    of its own pieces the first one in the window is the best."""
    ends, levels, splits = pieces.ends, pieces.levels, pieces.splits
    own = first = len(ends)
    i = start + 1
    while i <= end:
        if own < len(ends) and ends[own] + size < i:
            own += 1
        if i <= start + size:
            level, split = queue.best(i, slope)
            if own < len(ends) and levels[own] <= level:
                level, split = levels[own], ends[own]
        else:
            level, split = levels[own], ends[own]
        i = min(split + size, end)
        ends.append(i)
        splits.append(split)
        levels.append(level + base)
        i += 1
    pieces.slopes += [slope] * (len(ends) - first)


def _fill_alone(
    pieces: Pieces, queue: Queue, start: int, end: int, size: int, slope: int, base: int
) -> None:
    """Add the pieces of a group whose batches cost nothing but their requests: each alone. Only the
    batch with the group's first request may hold more."""
    level, split = queue.best(start + 1, slope)
    count = end - start
    pieces.ends += range(start + 1, end + 1)
    pieces.splits += [split, *range(start + 1, end)]
    pieces.levels += [level + base * k for k in range(1, count + 1)]
    pieces.slopes += [slope] * count
