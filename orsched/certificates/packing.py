"""What a certificate proves of makespan packing, in integers and without a solver.

``dual`` with a knapsack, ``cover`` with a search as well, ``tree`` along its branches.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.fields import STEP, Budget

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Table = np.ndarray[Any, np.dtype[np.int64]]

_LARGEST_WORTH = 2**62
_CELLS_A_PATTERN, _CELLS_A_STATE = 100, 500
"""What they take in memory, about."""
_NEVER = -(2**62)
"""In place of the worth of a load that no jobs have; with all jobs besides it stays below 0."""

SEARCHED = ("dual", "cover", "tree")
"""Kinds that come from a search: those with a number for each length."""


def proven(jobs: Sequence[int], clients: int, claim: Mapping[str, Any], budget: Budget) -> int:
    """Return the makespan's lower bound that a claim (``fields.PACKING``) proves, 0 for nothing."""
    kind, value, jobs = claim["bound"], int(claim["value"]), sorted(jobs, reverse=True)
    if kind == "volume":
        return -(-sum(jobs) // clients)
    if kind == "longest":
        return max(jobs, default=0)
    if kind == "lifted":
        # Of the k longest jobs, the l fullest clients hold at least ``held``.
        k, fullest = int(claim["k"]), int(claim["l"])
        if not (fullest <= k <= len(jobs) and fullest <= clients):
            raise ValueError(f"k={k} and l={fullest} are out of range")
        held = fullest * (k // clients) + min(fullest, k % clients)
        return -(-sum(jobs[k - held : k]) // fullest)
    # The capacity just below does not do: all that clients can waste there is known, so each is
    # filled to at least ``low``; and one that is holds at most ``most`` in terms of the duals.
    jobs = [job for job in jobs if job]
    waste = clients * (value - 1) - sum(jobs)
    if waste < 0 or (jobs and jobs[0] >= value):
        return value
    counts, low = Counter(jobs), max(0, value - 1 - waste)
    items = _Items.of(counts, dict(claim["duals"]), value - 1)
    total = sum(items.worth.get(job, 0) * many for job, many in counts.items())
    if total >= _LARGEST_WORTH:
        raise ValueError("the duals are worth more than 62 bits")
    tables = items.tables(kind != "dual", budget)
    most = int(tables[-1][low:].max())
    short = clients * most - total  # of ``most``, in all
    if most < 0 or short < 0:
        return value
    if kind == "dual":
        return 0
    patterns = list(items.patterns(tables, range(low, value), most - short, budget))
    if kind == "tree":
        return value if _ruled_out(counts, clients, patterns, claim["tree"], budget) else 0
    return 0 if _coverable(counts, clients, patterns, items.worth, most, budget) else value


class _Items(NamedTuple):
    """The jobs that a client can hold, equal ones in a row, and what lengths are worth.

    ``first``: for each item, the number of items before those of its length.
    """

    lengths: list[int]
    first: list[int]
    worth: dict[int, int]
    capacity: int

    @classmethod
    def of(cls, counts: Counter[int], worth: dict[int, int], capacity: int) -> _Items:
        """Return them, of each length no more than fit."""
        held = [(length, min(counts[length], capacity // length)) for length in counts]
        before = accumulate((many for _, many in held), initial=0)
        return cls(
            [length for length, many in held for _ in range(many)],
            [at for at, (_, many) in zip(before, held, strict=False) for _ in range(many)],
            worth,
            capacity,
        )

    def tables(self, keep: bool, budget: Budget) -> list[Table]:
        """Return what a set of all items is worth at most, by exact load; below 0: there is none.

        With ``keep``, for the first 0, 1, 2, ... items.
        """
        kept = len(self.lengths) + 1 if keep else 1
        budget.hold(kept * (self.capacity + 1))
        budget.spend((kept + len(self.lengths)) * (self.capacity + 1))
        tables = np.full((kept, self.capacity + 1), _NEVER, np.int64)
        tables[0, 0] = 0
        for number, job in enumerate(self.lengths):
            before = tables[number if keep else 0]
            with_job = before[: self.capacity + 1 - job] + self.worth.get(job, 0)
            best = tables[number + 1 if keep else 0]
            best[:job] = before[:job]
            np.maximum(before[job:], with_job, out=best[job:])
        return list(tables)

    def patterns(
        self, tables: list[Table], loads: range, least: int, budget: Budget
    ) -> Iterator[Counter[int]]:
        """Yield all contents of a client with such a load that are worth at least ``least``."""
        worthy = tables[-1][loads.start : loads.stop] >= max(0, least)
        starts = (np.flatnonzero(worthy) + loads.start).tolist()
        budget.hold(_CELLS_A_PATTERN * len(starts))
        stack: list[tuple[int, int, int, tuple[int, ...]]]
        stack = [(len(self.lengths), load, least, ()) for load in starts]
        found = 0
        while stack:
            budget.spend(STEP)
            end, load, due, taken = stack.pop()
            if tables[end][load] < max(0, due):
                continue
            if not end:
                found += 1
                budget.hold(_CELLS_A_PATTERN * found)
                yield Counter(taken)
                continue
            job, worth = self.lengths[end - 1], self.worth.get(self.lengths[end - 1], 0)
            for more in range(end - self.first[end - 1] + 1):
                if more * job > load:
                    break
                rest = (*taken, *[job] * more)
                stack.append((self.first[end - 1], load - more * job, due - more * worth, rest))


def _coverable(
    jobs: Counter[int],
    clients: int,
    patterns: list[Counter[int]],
    worth: Mapping[int, int],
    most: int,
    budget: Budget,
) -> bool:
    """Whether patterns cover the jobs exactly, no more than one a client: tries everything."""
    stack, seen = [(jobs, clients, patterns)], set[tuple[tuple[int, int], ...]]()
    while stack:
        left, free, usable = stack.pop()
        budget.spend(STEP * (1 + len(usable)))
        budget.hold(_CELLS_A_STATE * (len(seen) + len(stack)))
        if not left:
            return True
        key = tuple(sorted(left.items()))
        if key in seen or sum(worth.get(job, 0) * n for job, n in left.items()) > free * most:
            continue
        seen.add(key)
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
    budget: Budget,
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
        budget.spend(STEP * (1 + len(lengths) + len(usable)))
        duals, pair = next(nodes, ((), None))
        if len(duals) != len(lengths):
            raise ValueError("a node does not have an integer for each length")
        worth = dict(zip(lengths, duals, strict=True))
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
