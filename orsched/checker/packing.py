"""Verification of a makespan packing and of its certificate, in integers and without a solver."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LARGEST_CAPACITY = 10**8
LARGEST_SEARCH = 50_000
LARGEST_TABLE = 25_000_000


class Packed(Protocol):
    """What is read of a result: ``orsched.models.packing.PackingResult`` has it."""

    @property
    def makespan(self) -> int: ...  # noqa: D102
    @property
    def bound(self) -> int: ...  # noqa: D102
    @property
    def optimal(self) -> bool: ...  # noqa: D102
    @property
    def assignment(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def certificate(self) -> Mapping[str, Any]: ...  # noqa: D102


def packing_violations(jobs: Sequence[int], clients: int, result: Packed) -> list[str]:
    """Return what is wrong with a packing result; empty if everything it says is proven."""
    if len(result.assignment) != len(jobs):
        return ["not one client for each job"]
    if not all(type(c) is int and 0 <= c < clients for c in result.assignment):
        return ["a job is on no client"]
    loads: Counter[int] = Counter()
    for job, client in zip(jobs, result.assignment, strict=True):
        loads[client] += int(job)
    found = []
    if max(loads.values(), default=0) != result.makespan:
        found.append("the makespan is not the largest load")
    try:
        proven = _proven([int(job) for job in jobs], clients, result.certificate)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return [*found, f"the certificate cannot be read: {error!r}"]
    if result.bound > proven:
        found.append(f"the certificate proves {proven}, not {result.bound}")
    if result.optimal != (result.bound == result.makespan):
        found.append("optimal is not what bound and makespan say")
    return found


def _proven(jobs: list[int], clients: int, certificate: Mapping[str, Any]) -> int:
    """Return the lower bound on the makespan that a certificate proves."""
    kind = certificate["bound"]
    if kind == "volume":
        return -(-sum(jobs) // clients)
    if kind == "longest":
        return max(jobs)
    if kind == "lifted":
        # Of the k longest jobs, the l fullest clients hold at least ``held``.
        k, fullest = int(certificate["k"]), int(certificate["l"])
        if not (1 <= k <= len(jobs) and 1 <= fullest <= clients):
            raise ValueError("k or l out of range")
        held = fullest * (k // clients) + min(fullest, k % clients)
        return -(-sum(sorted(sorted(jobs, reverse=True)[:k])[:held]) // fullest)
    if kind in ("dual", "cover"):
        value = int(certificate["value"])
        search = kind == "cover"
        return value if _too_small(jobs, clients, value - 1, certificate["duals"], search) else 0
    raise ValueError(f"no certificate {kind!r}")


def _too_small(
    jobs: list[int], clients: int, capacity: int, duals: Sequence[Sequence[int]], search: bool
) -> bool:
    """Whether integers >= 0 for the lengths prove that the clients cannot hold the jobs.

    The waste of all clients is fixed, so each is filled to at least the capacity less that
    waste. An exact knapsack gives the most that one such client holds in terms of the integers.
    """
    waste = clients * capacity - sum(jobs)
    if waste < 0:
        return True
    worth = {int(length): int(value) for length, value in duals}
    jobs = sorted((job for job in jobs if job), reverse=True)
    values = [worth.get(job, 0) for job in jobs]
    if capacity > LARGEST_CAPACITY or min(values, default=0) < 0 or sum(values) >= 2**62:
        raise ValueError("numbers beyond what is verified")
    if search and len(jobs) * capacity > LARGEST_TABLE:
        raise ValueError("a search beyond what is verified")
    best = np.full(capacity + 1, -1, dtype=np.int64)  # by exact load; -1: no such load
    best[0] = 0
    tables = [best]  # of the first 0, 1, 2, ... jobs, if they are searched
    for job, value in zip(jobs, values, strict=True):
        if job > capacity:
            return True
        before, best = best, best.copy() if search else best
        shifted = before[: capacity + 1 - job]
        best[job:] = np.maximum(before[job:], np.where(shifted >= 0, shifted + value, -1))
        tables.append(best)
    low = max(0, capacity - waste)
    most = int(best[low:].max())
    if most < 0 or sum(values) > clients * most:
        return True
    if not search:
        return False
    least = most * (1 - clients) + sum(values)  # the others hold at most ``most`` each
    patterns = _patterns(jobs, values, tables, range(low, capacity + 1), least)
    return not _cover(Counter(jobs), clients, patterns, worth, most)


def _patterns(
    jobs: list[int], values: list[int], tables: list[Any], loads: range, least: int
) -> list[Counter[int]]:
    """Return all contents of a client with such a load that are worth at least ``least``."""
    found: dict[tuple[int, ...], Counter[int]] = {}
    stack: list[tuple[int, int, int, tuple[int, ...]]]
    stack = [(len(jobs), load, least, ()) for load in loads]
    while stack:
        first, load, due, taken = stack.pop()
        if tables[first][load] < max(0, due):
            continue
        if first == 0:
            found[taken] = Counter(taken)
            if len(found) > LARGEST_SEARCH:
                raise ValueError("a search beyond what is verified")
            continue
        job, value = jobs[first - 1], values[first - 1]
        stack.append((first - 1, load, due, taken))
        if job <= load:
            stack.append((first - 1, load - job, due - value, (*taken, job)))
    return list(found.values())


def _cover(
    jobs: Counter[int],
    clients: int,
    patterns: list[Counter[int]],
    worth: Mapping[int, int],
    most: int,
) -> bool:
    """Whether patterns cover the jobs exactly, no more than one a client: tries everything."""
    stack, seen = [(jobs, clients, patterns)], set()
    while stack:
        left, free, usable = stack.pop()
        if not left:
            return True
        key = tuple(sorted(left.items()))
        if key in seen or sum(worth.get(job, 0) * n for job, n in left.items()) > free * most:
            continue
        seen.add(key)
        if len(seen) > LARGEST_SEARCH:
            raise ValueError("a search beyond what is verified")
        fitting = [p for p in usable if all(left[job] >= n for job, n in p.items())]
        holding = Counter(job for pattern in fitting for job in pattern)
        rarest = min(left, key=lambda job: holding[job])
        stack += [(left - p, free - 1, fitting) for p in fitting if rarest in p]
    return False
