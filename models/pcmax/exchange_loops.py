"""Loops of the search that exchanges jobs between clients; numba compiles this very source. Nothing
but plain arithmetic and arrays, as in ``belief_loops``. A client's jobs stand in a row of
``jobs``; of the first ``WIDTH`` of them, drawn again after each exchange, all subsets are known:
their sums in order, and the bits of the jobs in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.models.pcmax.patterns import Ints

    Floats = NDArray[np.float64]

WIDTH = 8
_STAYS = 0.5  # how often the client that found no partner is the one that rearranges its jobs
_CHOICES = 64


class Clients(NamedTuple):
    """What the clients hold. ``count``: [clients]; ``sums``, ``bits``: [clients, 2^WIDTH] of the
    subsets, by rising sum; ``size`` of them count."""

    jobs: Ints  # [clients, most jobs] lengths; ``count`` of them in each row count
    count: Ints  # type: ignore[assignment] # shadows tuple.count, which is not called
    room: Ints  # [clients] target less load; negative above the target
    sums: Ints
    bits: Ints
    size: Ints  # [clients]


def subsets(c: Clients, client: int, draws: Floats, at: int) -> int:
    """List the subsets of some jobs of a client, which are put first; return the next draw."""
    jobs, sums = c.jobs[client], c.sums[client]
    held: int = c.count[client]
    chosen = min(held, WIDTH)
    for place in range(chosen):
        other = place + int(draws[at + place] * (held - place))
        job = jobs[place]
        jobs[place] = jobs[other]
        jobs[other] = job
    total = 1
    sums[0] = 0
    for place in range(chosen):
        for k in range(total):
            sums[total + k] = sums[k] + jobs[place]
        total *= 2
    order = np.argsort(sums[:total], kind="mergesort")
    sums[:total] = sums[:total][order]
    c.bits[client, :total] = order
    c.size[client] = total
    return at + chosen


def best_relief(c: Clients, client: int, partner: int, excess: int, hit: Ints) -> int:
    """Return what an exchange can take of a client's excess and leave its partner within."""
    own, theirs = c.sums[client], c.sums[partner]
    most, last, start = c.room[partner], c.size[partner], 0
    found: int = 0
    for i in range(c.size[client]):
        while start < last and theirs[start] < own[i] - most:
            start += 1
        j = start
        while j < last and theirs[j] < own[i]:
            useful: int = min(own[i] - theirs[j], excess)
            if useful > found:
                found = useful
                hit[0], hit[1] = i, j
                if useful == excess:
                    return found
            j += 1
    return found


def any_change(
    c: Clients, client: int, partner: int, hit: Ints, draws: Floats, at: int
) -> tuple[int, int]:
    """Choose an exchange that leaves no load further above the target than one of the two was.
    Returns how many there are (up to a limit), and the next draw."""
    own, theirs = c.sums[client], c.sums[partner]
    worst = min(c.room[client], c.room[partner], 0)
    least, most = worst - c.room[client], c.room[partner] - worst
    last, start, seen = c.size[partner], 0, 0
    for i in range(1, c.size[client] - 1):  # to give nothing, or all, is no exchange
        while start < last and theirs[start] < own[i] - most:
            start += 1
        j = start
        while j < last and theirs[j] <= own[i] - least:
            seen += 1
            if draws[at] * seen < 1.0:
                hit[0], hit[1] = i, j
            at += 1
            if seen == _CHOICES:
                return seen, at
            j += 1
    return seen, at


def swap(c: Clients, client: int, partner: int, hit: Ints, spare: Ints) -> None:
    """Exchange the jobs of two subsets."""
    relief = c.sums[client, hit[0]] - c.sums[partner, hit[1]]
    pair = (client, partner)
    moved = np.zeros(2, dtype=np.int64)
    for side in range(2):
        row = pair[side]
        bits, jobs, kept = c.bits[row, hit[side]], c.jobs[row], 0
        for k in range(c.count[row]):
            if k < WIDTH and bits >> k & 1:
                spare[side, moved[side]] = jobs[k]
                moved[side] += 1
            else:
                jobs[kept] = jobs[k]
                kept += 1
        c.count[row] = kept
    for side in range(2):
        row, other = pair[side], 1 - side
        for k in range(moved[other]):
            c.jobs[row, c.count[row] + k] = spare[other, k]
        c.count[row] += moved[other]
    c.room[client] += relief
    c.room[partner] -= relief


def reliever(c: Clients, client: int, hit: Ints, first: int) -> int:
    """Return the partner that takes most of a client's excess, -1 if there is none."""
    clients, excess = len(c.room), -c.room[client]
    best, found, given, taken = 0, -1, 0, 0
    for k in range(clients):
        partner = (first + k) % clients
        if partner != client and c.room[partner] > 0:
            useful = best_relief(c, client, partner, excess, hit)
            if useful > best:
                best, found, given, taken = useful, partner, hit[0], hit[1]
                if useful == excess:
                    break
    hit[0], hit[1] = given, taken
    return found


def changer(
    c: Clients, client: int, hit: Ints, first: int, draws: Floats, at: int
) -> tuple[int, int]:
    """Return a partner for a change that is not for the worse, else -1; and the next draw."""
    clients = len(c.room)
    for k in range(clients):
        partner = (first + k) % clients
        if partner != client:
            seen, at = any_change(c, client, partner, hit, draws, at)
            if seen:
                return partner, at
    return -1, at


def walk(c: Clients, draws: Floats, moves: int) -> int:
    """Exchange until all loads are within the target, or moves or draws end; return the moves. A
    client above the target gives load to those below it, as long as there is an exchange that
    leaves its partner within the target. Otherwise two clients exchange jobs without a change for
    the worse."""
    clients, most = len(c.room), c.jobs.shape[1] - WIDTH
    enough = len(draws) - 5 - _CHOICES * clients - 2 * WIDTH
    hit, spare = np.zeros(2, dtype=np.int64), np.zeros((2, WIDTH), dtype=np.int64)
    at = done = 0
    while done < moves and at < enough:
        over = np.flatnonzero(c.room < 0)
        if not len(over):
            break
        client = over[int(draws[at] * len(over))]
        partner = reliever(c, client, hit, int(draws[at + 1] * clients))
        at += 2
        if partner < 0:
            if draws[at] >= _STAYS:
                client = int(draws[at + 1] * clients)
            partner, at = changer(c, client, hit, int(draws[at + 2] * clients), draws, at + 3)
        if partner >= 0 and c.count[client] <= most and c.count[partner] <= most:
            swap(c, client, partner, hit, spare)
            at = subsets(c, client, draws, at)
            at = subsets(c, partner, draws, at)
        done += 1
    return done
