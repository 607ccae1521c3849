"""Makespan packing (Pang (26)-(30), P||Cmax): lengths onto identical clients.

Longest processing time first, then a local search that repartitions pairs of clients towards
the lower bound by exact subset sums. What meets the bound is proven optimal.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.columns import int_column, whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_MOVES = 20_000


@dataclass(frozen=True)
class PackingResult:
    """A packing and what is proven of it.

    Attributes:
        makespan: largest load of a client.
        bound: proven lower bound on the makespan.
        optimal: whether the two are equal.
        assignment: client of each job.
        certificate: ``{"bound": "volume" | "longest" | "lifted", ...}`` with the integers that
            re-derive the bound.
        runtime: seconds spent.
    """

    makespan: int
    bound: int
    optimal: bool
    assignment: list[int] = field(repr=False)
    certificate: dict[str, Any]
    runtime: float = field(compare=False)


def pack(
    processing_times: Sequence[int],
    clients: int,
    time_limit: float | None = None,
    seed: int = 0,
    moves: int = MAX_MOVES,
) -> PackingResult:
    """Assign jobs to clients so that the largest load is small.

    Args:
        processing_times: whole numbers, at least 0.
        clients: J, at least 1.
        time_limit: seconds; None: until ``moves`` (reproducible).
        seed: seed of the local search.
        moves: most repartitions of pairs.

    Raises:
        InputError: a time is negative or not whole, or there is no client.
    """
    begin = perf_counter()
    jobs = int_column(processing_times, "processing_times", maximum=2**53).tolist()
    clients = whole_number(clients, "clients", minimum=1)
    certificate = packing_bound(jobs, clients)
    bound = certificate["value"]
    groups = _longest_first(jobs, clients)
    deadline = None if time_limit is None else begin + time_limit
    _repartition(jobs, groups, bound, random.Random(seed), moves, deadline)
    assignment = [0] * len(jobs)
    for client, group in enumerate(groups):
        for job in group:
            assignment[job] = client
    makespan = max((sum(jobs[j] for j in group) for group in groups), default=0)
    return PackingResult(
        makespan, bound, makespan == bound, assignment, certificate, perf_counter() - begin
    )


def packing_bound(jobs: Sequence[int], clients: int) -> dict[str, Any]:
    """Return the best of volume, longest-job and lifted bounds, with what re-derives it.

    Lifted (Haouari, Gharbi and Jemmali 2006): of the k = q J + l longest jobs, 1 <= l <= J, the
    l fullest clients hold at least l (q + 1); the mean of that many shortest of them is due.
    """
    total = sum(jobs)
    if not jobs:
        return {"bound": "volume", "value": 0}
    best: dict[str, Any] = {"bound": "volume", "value": -(-total // clients)}
    longest = max(jobs)
    if longest > best["value"]:
        best = {"bound": "longest", "value": longest}
    ordered = np.sort(np.array(jobs, dtype=np.int64 if total < 2**62 else object))[::-1]
    prefix = np.concatenate([[0], np.cumsum(ordered)])
    k = np.arange(clients + 1, len(jobs) + 1)
    fullest = (k - 1) % clients + 1
    held = fullest * ((k - 1) // clients + 1)
    lifted = -(-(prefix[k] - prefix[k - held]) // fullest)
    if len(k) and int(lifted.max()) > best["value"]:
        at = int(np.argmax(lifted))
        best = {"bound": "lifted", "value": int(lifted[at]), "k": int(k[at]), "l": int(fullest[at])}
    return best


def _longest_first(jobs: Sequence[int], clients: int) -> list[list[int]]:
    """Return groups by LPT: each job, longest first, to the client with the least load."""
    heap = [(0, client) for client in range(clients)]
    heapify(heap)
    groups: list[list[int]] = [[] for _ in range(clients)]
    for job in sorted(range(len(jobs)), key=lambda j: -jobs[j]):
        load, client = heap[0]
        groups[client].append(job)
        heapreplace(heap, (load + jobs[job], client))
    return groups


def _repartition(
    jobs: Sequence[int],
    groups: list[list[int]],
    bound: int,
    rng: random.Random,
    moves: int,
    deadline: float | None,
) -> None:
    """Split pairs (overloaded, other) anew so that the larger load falls or ties, in place."""
    loads = [sum(jobs[j] for j in group) for group in groups]
    if len(groups) < 2:
        return
    over = {c for c, load in enumerate(loads) if load > bound}
    for move in range(moves):
        if not over or (deadline is not None and not move & 63 and perf_counter() > deadline):
            return
        a = rng.choice(sorted(over)) if move % 4 else max(over, key=lambda c: (loads[c], -c))
        b = rng.randrange(len(groups) - 1)
        b += b >= a
        both = groups[a] + groups[b]
        rng.shuffle(both)
        larger = max(loads[a], loads[b])
        part = _split([jobs[j] for j in both], bound, larger)
        if part is None:
            continue
        chosen = set(part)
        groups[a] = [both[i] for i in part]
        groups[b] = [both[i] for i in range(len(both)) if i not in chosen]
        for c in (a, b):
            loads[c] = sum(jobs[j] for j in groups[c])
            (over.add if loads[c] > bound else over.discard)(c)


def _split(sizes: Sequence[int], bound: int, larger: int) -> list[int] | None:
    """Return indices of a part whose load, and the rest's, is at most the bound if possible.

    Else the most even split if it is no worse than ``larger``. Subset sums are the bits of one
    integer per prefix, so a split is exact and costs a few shifts.
    """
    total = sum(sizes)
    if total > 64 * 1024 * max(1, len(sizes)):  # bitsets would be too long: leave the pair
        return None
    half = total // 2
    sums = [1]
    for size in sizes:
        sums.append(sums[-1] | sums[-1] << size)
    reachable = sums[-1] & ((1 << (half + 1)) - 1)
    target = reachable.bit_length() - 1
    if total - target > larger:
        return None
    if total - target <= bound:
        # Any part between total - bound and half will do; the smallest keeps slack together.
        low = max(0, total - bound)
        window = reachable >> low
        target = low + (window & -window).bit_length() - 1
    part = []
    for index in range(len(sizes) - 1, -1, -1):
        if not sums[index] >> target & 1:
            part.append(index)
            target -= sizes[index]
    return part
