"""Loops of belief propagation and of the search that ends it; numba compiles this very source.
Nothing but plain arithmetic and arrays, so that both ways give the same bits: ``compiled_kernels``
loads it once more. Patterns and sizes are numbers; an edge is a pattern with a size it holds."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.models.pcmax.patterns import Ints

    Floats = NDArray[np.float64]

LEAST, MOST = 1e-60, 1e60
SETTLED = 1e-3
FOUND, NONE, STOPPED = 1, 0, -1


def pass_messages(
    start: Ints, row: Ints, left: Floats, message: Floats, odds: Floats, rounds: int
) -> float:
    """Update the messages of each size in turn, for so many rounds at most; return the last change.
    ``start``: first edge of each size, edges lie size by size; ``row``: pattern of each edge;
    ``left``: jobs left of each size. Changed in place: ``message``, by which the size of an edge
    asks for its pattern, and ``odds``, product of the weight and all messages of each pattern."""
    change = 0.0
    for _ in range(rounds):
        change = 0.0
        for size in range(len(left)):
            if left[size] <= 0:
                continue
            total = 0.0
            for edge in range(start[size], start[size + 1]):
                total += odds[row[edge]] / message[edge]
            for edge in range(start[size], start[size + 1]):
                before = message[edge]
                others = odds[row[edge]] / before
                asked = left[size] / max(total - others, LEAST)
                asked = min(max(sqrt(min(asked, MOST) * before), LEAST), MOST)
                change = max(change, abs(asked - before) / (asked + before))
                odds[row[edge]] = min(max(others * asked, LEAST), MOST)
                message[edge] = asked
        if change < SETTLED:
            break
    return change


def search(
    start: Ints,
    size: Ints,
    times: Ints,
    loss: Ints,
    share: Ints,
    left: Ints,
    budget: int,
    work: Ints,
    cover: Ints,
) -> int:
    """Look for an exact cover, depth first through the size that fewest patterns hold. Returns
    FOUND, NONE (there is no cover), or STOPPED (out of work).

    Edges lie pattern by pattern, likely patterns first: ``start`` is the first of each pattern,
    ``size`` the size of each, ``times`` how many jobs of it the pattern holds. ``loss``: what each
    pattern costs of the ``budget``; ``share``: the part of that on each of its jobs, rounded down.
    In place: ``left``, jobs left of each size; ``work``, nodes and looks at patterns that are left;
    ``cover``: its patterns, from entry 1; entry 0 is their number."""
    many, depths = len(start) - 1, len(cover)
    lists = np.empty((depths, many), dtype=np.int32)
    lists[0] = np.arange(many)
    lens, at, pick = (
        np.zeros(depths, dtype=np.int64),
        np.zeros(depths, dtype=np.int64),
        np.zeros(depths, dtype=np.int64),
    )
    due = np.zeros(depths, dtype=np.int64)
    held = np.zeros(len(left), dtype=np.int64)
    least = np.zeros(len(left), dtype=np.int64)
    lens[0], due[0], depth = many, budget, 0
    pick[0] = choose(start, size, share, left, lists[0], many, budget, held, least)
    while depth >= 0:
        if pick[depth] == -2:
            cover[0] = depth
            return FOUND
        p = -1
        while pick[depth] >= 0 and at[depth] < lens[depth] and p < 0:
            q = lists[depth, at[depth]]
            at[depth] += 1
            for edge in range(start[q], start[q + 1]):
                if size[edge] == pick[depth]:
                    p = q
        if p < 0:
            if depth:
                p = cover[depth]
                for edge in range(start[p], start[p + 1]):
                    left[size[edge]] += times[edge]
            depth -= 1
            continue
        work[0] -= 1
        work[1] -= lens[depth]
        if work[0] < 0 or work[1] < 0 or depth + 1 >= depths:
            return STOPPED
        for edge in range(start[p], start[p + 1]):
            left[size[edge]] -= times[edge]
        some, rest = 0, due[depth] - loss[p]
        for i in range(lens[depth]):
            q = lists[depth, i]
            fits = loss[q] <= rest
            if fits:
                for edge in range(start[q], start[q + 1]):
                    if times[edge] > left[size[edge]]:
                        fits = False
                        break
            if fits:
                lists[depth + 1, some] = q
                some += 1
        depth += 1
        cover[depth], lens[depth], at[depth], due[depth] = p, some, 0, rest
        pick[depth] = choose(start, size, share, left, lists[depth], some, rest, held, least)
    return NONE


def choose(
    start: Ints,
    size: Ints,
    share: Ints,
    left: Ints,
    usable: Ints,
    many: int,
    budget: int,
    held: Ints,
    least: Ints,
) -> int:
    """Return the size that fewest usable patterns hold; -1: a dead end, -2: no job is left. A dead
    end as well: the least shares of the jobs that are left exceed the budget."""
    held[:] = 0
    for i in range(many):
        p = usable[i]
        for edge in range(start[p], start[p + 1]):
            kind = size[edge]
            if held[kind] == 0 or share[p] < least[kind]:
                least[kind] = share[p]
            held[kind] += 1
    best, fewest, total = -2, many + 1, 0
    for kind in range(len(left)):
        if left[kind] > 0:
            if held[kind] == 0:
                return -1
            total += least[kind] * left[kind]
            if held[kind] < fewest:
                best, fewest = kind, held[kind]
    if total > budget:
        return -1
    return best
