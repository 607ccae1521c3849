"""Least possible sums of ends and starts on one machine, which all workers together are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, cmp_to_key
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Machine:
    """All workers as one machine of their summed speed, and each request's least time on it.

    Attributes:
        scale: times on the machine are in 1 / scale nanoseconds.
        arrivals: in nanoseconds.
        times: least time of each request on the machine.
        after_ns: least distance of a request's end from the mean time at which it is charged.
        alone_ns: least time until the request's end if served alone.
    """

    scale: int
    arrivals: list[int]
    times: list[int]
    after_ns: list[int]
    alone_ns: list[int]

    def releases(self) -> list[int]:
        """Arrivals in the machine's unit."""
        return [arrival * self.scale for arrival in self.arrivals]

    @cached_property
    def ends(self) -> list[int]:
        """Earliest k-th ends, for each k: of requests served alone, and of the machine.

        Shortest remaining time first has at every moment the most requests done (Schrage 1968).
        """
        alone = sorted(a + t for a, t in zip(self.arrivals, self.alone_ns, strict=True))
        ends = shortest_remaining_first(self.releases(), self.times)
        return [max(one, -(-end // self.scale)) for one, end in zip(alone, ends, strict=True)]


def least_sum(kind: str, machine: Machine, whole: Machine | None = None, clients: int = 0) -> int:
    """Return what a relaxation proves of the sum of times from arrivals on.

    For the queues the machine is that until first tokens, and ``whole`` that until the ends, which
    starts wait for.
    """
    arrivals = sum(machine.arrivals)
    if kind == "ranked":
        return sum(machine.ends) - arrivals
    if kind == "mean_busy":
        return mean_busy(machine) - arrivals
    assert whole is not None
    starts = (queue if kind == "queue" else queue_busy)(whole, clients)
    return starts - arrivals + sum(machine.alone_ns)


def queue(whole: Machine, clients: int) -> int:
    """Sum of starts: the k-th start is no earlier than the (k - J)-th end."""
    ends = whole.ends[: max(0, len(whole.arrivals) - clients)]
    earliest = [0] * (len(whole.arrivals) - len(ends)) + ends
    return sum(max(a, e) for a, e in zip(sorted(whole.arrivals), earliest, strict=True))


def queue_busy(whole: Machine, clients: int) -> int:
    """Sum of starts: all but J of them wait for ends, whose sum mean busy times bound.

    Of all sets of n - J requests that may end first, the shortest have the least mean busy times
    (all there at the first arrival), and what must lie after these is least for some such set.
    """
    n = len(whole.arrivals)
    ending = max(0, n - clients)
    twice_busy = clock = 0
    for time in sorted(whole.times)[:ending]:
        twice_busy += 2 * clock + time
        clock += time
    ends = twice_busy // (2 * whole.scale) + sum(sorted(whole.after_ns)[:ending])
    return n * min(whole.arrivals) + ends


def shortest_remaining_first(releases: Sequence[int], times: Sequence[int]) -> list[int]:
    """Return the ends, in order, of shortest remaining processing time first on one machine."""
    order = sorted(zip(releases, times, strict=True))
    ends: list[int] = []
    open_jobs: list[int] = []
    now = at = 0
    while at < len(order) or open_jobs:
        if not open_jobs:
            now = max(now, order[at][0])
        while at < len(order) and order[at][0] <= now:
            heappush(open_jobs, order[at][1])
            at += 1
        left = heappop(open_jobs)
        if at == len(order) or now + left <= order[at][0]:
            now += left
            ends.append(now)
        else:
            heappush(open_jobs, left - (order[at][0] - now))
            now = order[at][0]
    return ends


def mean_busy(machine: Machine, weights: Sequence[int] | None = None) -> int:
    """Sum over requests of mean busy time on the machine and what must lie after it, by weights.

    The sum of mean busy times is least when the machine always serves the shortest request there
    is, for its weight (Goemans 1996). Each mean is rounded down.
    """
    weights = [1] * len(machine.times) if weights is None else weights
    columns = (machine.times, machine.releases(), machine.after_ns, weights)
    kept = (row for row in zip(*columns, strict=True) if row[3])
    rows = sorted(kept, key=None if min(weights) == max(weights) else cmp_to_key(_before))
    squares = _busy_squares([row[1] for row in rows], [row[0] for row in rows])
    total = 0
    for (time, release, after, weight), square in zip(rows, squares, strict=True):
        mean = square // (2 * machine.scale * time) if time else release // machine.scale
        total += weight * (mean + after)
    return total


def _before(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> int:
    """Order requests by their time over their weight; equal ones are served in any order."""
    return one[0] * other[3] - other[0] * one[3] or (one > other) - (one < other)


def _busy_squares(releases: Sequence[int], times: Sequence[int]) -> list[int]:
    """Return the sum of end^2 - start^2 over each job's pieces, the first job there is first."""
    order = sorted(range(len(times)), key=lambda job: (releases[job], job))
    left, squares = list(times), [0] * len(times)
    open_jobs: list[int] = []
    now = at = 0
    while at < len(order) or open_jobs:
        if not open_jobs:
            now = max(now, releases[order[at]])
        while at < len(order) and releases[order[at]] <= now:
            heappush(open_jobs, order[at])
            at += 1
        job = open_jobs[0]
        end = now + left[job]
        if at < len(order):
            end = min(end, releases[order[at]])
        squares[job] += end * end - now * now
        left[job] -= end - now
        if not left[job]:
            heappop(open_jobs)
        now = end
    return squares
