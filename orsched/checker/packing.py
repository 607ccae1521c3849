"""Verification of a makespan packing and of its certificate, in integers and without a solver.

``packing_violations`` looks at the packing and at what comes in; ``_proven`` re-derives the bound:
for ``dual`` with a knapsack, for ``cover`` with a search as well, for ``tree`` along its branches.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Table = np.ndarray[Any, np.dtype[np.int64]]

LARGEST_CAPACITY = 10**8
LARGEST_SEARCH = 50_000
LARGEST_TABLE = 30_000_000


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
    """Return the lower bound on the makespan that a certificate proves, 0 if it proves nothing."""
    kind = certificate["bound"]
    jobs = sorted(jobs, reverse=True)
    if kind == "volume":
        return -(-sum(jobs) // clients)
    if kind == "longest":
        return max(jobs, default=0)
    if kind == "lifted":
        # Of the k longest jobs, the l fullest clients hold at least ``held``.
        k, fullest = int(certificate["k"]), int(certificate["l"])
        if not (1 <= k <= len(jobs) and 1 <= fullest <= clients):
            raise ValueError("k or l out of range")
        held = fullest * (k // clients) + min(fullest, k % clients)
        return -(-sum(jobs[k - held : k]) // fullest)
    if kind not in ("dual", "cover", "tree"):
        raise ValueError(f"no certificate {kind!r}")
    # The capacity just below does not do: all that clients can waste there is known, so each is
    # filled to at least ``low``; and one that is holds at most ``most`` in terms of the duals.
    value = int(certificate["value"])
    worth = {int(length): int(dual) for length, dual in certificate["duals"]}
    jobs = [job for job in jobs if job]
    waste = clients * (value - 1) - sum(jobs)
    if waste < 0 or (jobs and jobs[0] >= value):
        return value
    low = max(0, value - 1 - waste)
    tables = _most_worth(jobs, worth, value - 1, kind != "dual")
    most = int(tables[-1][low:].max())
    short = clients * most - sum(worth.get(job, 0) for job in jobs)  # of ``most``, in all
    if most < 0 or short < 0:
        return value
    if kind == "dual":
        return 0
    patterns = list(_patterns(jobs, worth, tables, range(low, value), most - short))
    if kind == "tree":
        return value if _ruled_out(Counter(jobs), clients, patterns, certificate["tree"]) else 0
    return 0 if _coverable(Counter(jobs), clients, patterns, worth, most) else value


def _most_worth(
    jobs: list[int], worth: Mapping[int, int], capacity: int, keep: bool
) -> list[Table]:
    """Return what a set of all jobs is worth at most, by exact load; -1 where there is no set.

    With ``keep``, for the first 0, 1, 2, ... jobs.
    """
    if capacity > LARGEST_CAPACITY or (keep and len(jobs) * capacity > LARGEST_TABLE):
        raise ValueError("a capacity beyond what is verified")
    if min(worth.values(), default=0) < 0 or sum(worth.get(job, 0) for job in jobs) >= 2**62:
        raise ValueError("duals beyond what is verified")
    best = np.full(capacity + 1, -1, dtype=np.int64)
    best[0] = 0
    tables = [best]
    for job in jobs:
        shifted = tables[-1][: capacity + 1 - job]
        with_job = np.where(shifted >= 0, shifted + worth.get(job, 0), -1)
        if keep:
            tables.append(tables[-1].copy())
        np.maximum(tables[-1][job:], with_job, out=tables[-1][job:])
    return tables


def _patterns(
    jobs: list[int], worth: Mapping[int, int], tables: list[Table], loads: range, least: int
) -> Iterator[Counter[int]]:
    """Yield all contents of a client with such a load that are worth at least ``least``."""
    seen: set[tuple[int, ...]] = set()
    stack: list[tuple[int, int, int, tuple[int, ...]]]
    stack = [(len(jobs), load, least, ()) for load in loads]
    while stack:
        first, load, due, taken = stack.pop()
        if tables[first][load] < max(0, due):
            continue
        if first:
            job = jobs[first - 1]
            stack.append((first - 1, load, due, taken))
            if job <= load:
                stack.append((first - 1, load - job, due - worth.get(job, 0), (*taken, job)))
        elif taken not in seen:
            seen.add(taken)
            if len(seen) > LARGEST_SEARCH:
                raise ValueError("a search beyond what is verified")
            yield Counter(taken)


def _coverable(
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


def _ruled_out(
    jobs: Counter[int],
    clients: int,
    patterns: list[Counter[int]],
    tree: Sequence[tuple[Sequence[int], Sequence[int] | None]],
) -> bool:
    """Whether a tree proves that patterns, one a client, never cover the jobs exactly.

    Each node has an integer for each length, longest first. All patterns of a packing together
    are worth as much as all jobs; none is worth more than the best, hence none much less. Where
    that is not to be, there is no packing; else two jobs, the only ones of their lengths, are on
    one client (the next branch) or on two (the one after).
    """
    lengths, nodes, open_ = sorted(jobs, reverse=True), iter(tree), [patterns]
    while open_:
        usable = open_.pop()
        duals, pair = next(nodes, ((), None))
        if len(duals) != len(lengths):
            raise ValueError("a node does not have an integer for each length")
        worth = {length: int(dual) for length, dual in zip(lengths, duals, strict=True)}
        values = [sum(worth[job] * n for job, n in pattern.items()) for pattern in usable]
        best = max(values, default=0)
        short = clients * best - sum(worth[job] * n for job, n in jobs.items())
        if not values or short < 0:
            continue
        if pair is None:
            return False
        first, second = pair
        if first == second or jobs[first] != 1 or jobs[second] != 1:
            raise ValueError("no two jobs to branch on")
        usable = [p for p, value in zip(usable, values, strict=True) if value >= best - short]
        open_.append([p for p in usable if not (first in p and second in p)])
        open_.append([p for p in usable if (first in p) == (second in p)])
    return True
