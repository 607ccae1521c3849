"""Longest first, then pairs of clients repartitioned by exact subset sums, or jobs exchanged. Jobs
stand for themselves by their lengths: a group is the list of lengths of one client."""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.pcmax.exchange_loops import WIDTH, Clients

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from orsched.common.stop import Clock


Groups = list[list[int]]

_LONGEST_BITSET = 1 << 17
_FREE_JOBS = 24


def longest_first(jobs: Sequence[int], clients: int) -> Groups:
    """Return groups by LPT: each job, longest first, to the client with the least load."""
    heap = [(0, client) for client in range(clients)]
    heapify(heap)
    groups: Groups = [[] for _ in range(clients)]
    for job in sorted(jobs, reverse=True):
        load, client = heap[0]
        groups[client].append(job)
        heapreplace(heap, (load + job, client))
    return groups


def repartition(groups: Groups, target: int, rng: random.Random, moves: int, clock: Clock) -> int:
    """Split pairs (above the target, other) again so that the larger load falls or ties, in place,
    until every load is at most the target, moves or time end; return the largest load."""
    loads = [sum(group) for group in groups]
    over = [c for c, load in enumerate(loads) if load > target]
    count, draw = len(groups), rng.random
    under: list[int] = []
    for move in range(moves if count > 1 else 0):
        if not over or (not move & 63 and clock.out()):
            break
        if not move & 127:
            under = [c for c, load in enumerate(loads) if load < target]
        if move & 3:
            at = int(draw() * len(over))
            a = over[at]
            if loads[a] <= target:  # brought down since it was listed
                over[at] = over[-1]
                over.pop()
                continue
        else:  # clients that have their load get other jobs: new splits for the others
            a = int(draw() * count)
            if move & 4 and under:  # room moves to where it is of use
                a = under[int(draw() * len(under))]
        b = int(draw() * (count - 1))
        b += b >= a
        if not move & 1 and under:  # one that had room lately
            c = under[int(draw() * len(under))]
            if c != a:
                b = c
        load_a, load_b = loads[a], loads[b]
        stay_a, stay_b = _stays(groups[a], draw), _stays(groups[b], draw)
        both = groups[a][len(stay_a) :] + groups[b][len(stay_b) :]
        fixed = (sum(stay_a), sum(stay_b))
        parts = split(both, load_a + load_b, target, max(load_a, load_b), rng, fixed)
        if parts is None:
            continue
        groups[a], groups[b] = stay_a + parts[0], stay_b + parts[1]
        loads[a] = fixed[0] + parts[2]
        loads[b] = load_a + load_b - loads[a]
        if loads[b] > target >= load_b:
            over.append(b)
        if loads[a] > target >= load_a:
            over.append(a)
    return max(loads, default=0)


def _stays(group: list[int], draw: Callable[[], float]) -> list[int]:
    """Return the jobs that stay with their client: of many, all but some in a row, put last."""
    surplus = len(group) - _FREE_JOBS // 2
    if surplus <= 0:
        return []
    at = int(draw() * len(group))
    group[:] = group[at:] + group[:at]
    return group[:surplus]


def split(
    jobs: list[int],
    total: int,
    target: int,
    larger: int,
    rng: random.Random,
    fixed: tuple[int, int] = (0, 0),
) -> tuple[list[int], list[int], int] | None:
    """Split jobs between two clients that hold ``fixed`` already, ``total`` in all. Returns the two
    parts and the length of the first; both loads are at most the target if that is possible, else
    as even as can be if no worse than ``larger``. Which of several splits is found depends on the
    order of the jobs, which is shuffled."""
    if total > _LONGEST_BITSET:
        return _split_large(jobs, total, target, larger, rng, fixed)
    draw = rng.random
    jobs.sort(key=lambda _: draw())  # several times faster than shuffle
    half = total // 2 - fixed[0]
    if half < 0:
        return None
    reachable = 1
    sums = [1]
    for job in jobs:
        reachable |= reachable << job
        sums.append(reachable)
    best = (reachable & ((1 << (half + 1)) - 1)).bit_length() - 1
    rest = total - fixed[0]
    if rest - best > larger:
        return None
    if rest - best <= target:
        # Any part from rest - target to best will do; the smallest keeps slack together.
        low = max(0, rest - target)
        if draw() < 0.5:
            low += int(draw() * (best - low + 1))
        window = reachable >> low
        best = low + (window & -window).bit_length() - 1
    first, second, left = [], [], best
    for index in range(len(jobs) - 1, -1, -1):
        if sums[index] >> left & 1:
            second.append(jobs[index])
        else:
            first.append(jobs[index])
            left -= jobs[index]
    return first, second, best


def _subset_sums(jobs: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the sums of all subsets; bit i of the position tells whether job i is in."""
    sums = np.zeros(1, dtype=np.int64)
    for job in jobs:
        sums = np.concatenate([sums, sums + job])
    return sums


def _split_large(
    jobs: list[int],
    total: int,
    target: int,
    larger: int,
    rng: random.Random,
    fixed: tuple[int, int],
) -> tuple[list[int], list[int], int] | None:
    """Split by meeting in the middle."""
    rng.shuffle(jobs)
    middle = len(jobs) // 2
    left, right = _subset_sums(jobs[:middle]), _subset_sums(jobs[middle:])
    order = np.argsort(left)
    ordered = left[order]
    # The largest left sum such that the whole part stays within half of the total.
    at = np.searchsorted(ordered, total // 2 - fixed[0] - right, side="right") - 1
    reached = np.where(at >= 0, ordered[np.maximum(at, 0)] + right, -1)
    best = int(reached.argmax())
    load = int(reached[best])
    if load < 0 or total - fixed[0] - load > larger:
        return None
    bits = int(order[at[best]]) | best << middle
    first: list[int] = []
    second: list[int] = []
    for index, job in enumerate(jobs):
        (first if bits >> index & 1 else second).append(job)
    return first, second, load


MOVES = 80_000  # moves of a walk, before the next one begins
WALKS = 4  # walks without a time limit
_AT_ONCE = 500
_DRAWS_OF_A_MOVE = 40


def exchange(
    groups: Groups, target: int, rng: np.random.Generator, clock: Clock, loops: Any
) -> Groups:
    """Return the best groups that some walks find, the first from ``groups``; ends when all loads
    are at most the target. Where lengths are large, hardly a split of a given pair meets the target
    to the unit, but some pair's exchange does: each client is held against all others. Walks go on
    until the clock's deadline, else a fixed number; ``loops``: ``exchange_loops``, compiled or
    plain."""
    best, jobs = groups, [job for group in groups for job in group]
    walks = 0
    while max(map(sum, best)) > target and not clock.out():
        found = _walk(
            groups if not walks else longest_first(jobs, len(groups)), target, rng, clock, loops
        )
        best = min(best, found, key=lambda each: max(map(sum, each)))
        walks += 1
        if not clock.limited and walks == WALKS:
            break
    return best


def _walk(
    groups: Groups, target: int, rng: np.random.Generator, clock: Clock, loops: Any
) -> Groups:
    clients = _clients(groups, target)
    at, draws = 0, rng.random(WIDTH * len(groups))
    for client in range(len(groups)):
        at = loops.subsets(clients, client, draws, at)
    moves = 0
    while moves < MOVES and clients.room.min() < 0 and not clock.out():
        # a tour of all clients needs many draws, a move but few
        draws = rng.random(_AT_ONCE * _DRAWS_OF_A_MOVE + 100 * len(groups))
        moves += max(1, loops.walk(clients, draws, _AT_ONCE))
    rows = zip(clients.jobs.tolist(), clients.count.tolist(), strict=True)
    return [row[:count] for row, count in rows]


def _clients(groups: Groups, target: int) -> Clients:
    """Return the groups as arrays; the subsets are not listed yet."""
    count = np.array([len(group) for group in groups], dtype=np.int64)
    jobs = np.zeros((len(groups), 2 * int(count.max()) + 2 * WIDTH), dtype=np.int64)
    for row, group in zip(jobs, groups, strict=True):
        row[: len(group)] = group
    table = np.zeros((len(groups), 1 << WIDTH), dtype=np.int64)
    return Clients(
        jobs, count, target - jobs.sum(axis=1), table, table.copy(), np.zeros_like(count)
    )
