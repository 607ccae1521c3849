"""Annealing over which worker serves which request; numba compiles this very source, so there is
nothing but plain arithmetic and arrays. Requests are sorted by the tokens that they decode, most
first: the first one that a worker has is its longest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn

    Floats = NDArray[np.float64]

NEAR = 40
"""Exchanges are mostly between requests that are at most so far apart in the order of lengths."""


class Tables(NamedTuple):
    """What requests need and workers have. Lines are in nanoseconds; moments begin suffixes."""

    tokens: Floats  # [n]
    held: Floats  # [kinds, n] block rounds
    own: Floats  # [kinds, lines, n] what a request adds to a line
    fits: NDArray[np.bool_]  # [kinds, n]
    suffix: IntColumn  # [n] the last moment at or before the arrival
    moments: Floats  # [moments] from the first arrival on
    kind: IntColumn  # [workers]
    round: Floats  # [kinds, lines]
    fixed: Floats  # [kinds, lines]
    clients: Floats  # [kinds]
    blocks: Floats  # [kinds], 0 without a limit
    factor: Floats  # [workers] by how much longer than this a worker takes


class Loads(NamedTuple):
    """What the workers have by an assignment; the sums are over what is released from a moment."""

    where: IntColumn  # [n]
    first: IntColumn  # [workers]
    tokens: Floats  # [workers, moments]
    held: Floats  # [workers, moments]
    lines: Floats  # [workers, moments, lines]
    ends: Floats  # [workers]


def end_of(t: Tables, s: Loads, worker: int, longest: int, gone: int, come: int) -> float:
    """Return when a worker ends, times its factor, if one request goes and another comes (-1: none)
    and ``longest`` is then its longest one; see ``Shares``."""
    n, kind, end = len(t.tokens), t.kind[worker], 0.0
    for moment in range(len(t.moments)):
        goes = gone >= 0 and t.suffix[gone] >= moment
        comes = come >= 0 and t.suffix[come] >= moment
        tokens, held = s.tokens[worker, moment], s.held[worker, moment]
        if goes:
            tokens -= t.tokens[gone]
            held -= t.held[kind, gone]
        if comes:
            tokens += t.tokens[come]
            held += t.held[kind, come]
        if moment > 0 and tokens < 0.5:
            break
        steps = tokens / t.clients[kind]
        if moment == 0 and longest < n and t.tokens[longest] > steps:
            steps = t.tokens[longest]
        if t.blocks[kind] > 0 and held / t.blocks[kind] > steps:
            steps = held / t.blocks[kind]
        for line in range(t.round.shape[1]):
            ended = t.moments[moment] + t.round[kind, line] * steps + t.fixed[kind, line]
            ended += s.lines[worker, moment, line]
            if goes:
                ended -= t.own[kind, line, gone]
            if comes:
                ended += t.own[kind, line, come]
            end = max(end, ended)
    corrected: float = end * t.factor[worker]
    return corrected


def load(t: Tables, s: Loads) -> None:
    """Sum up what an assignment gives each worker."""
    n = len(t.tokens)
    s.tokens[:] = 0.0
    s.held[:] = 0.0
    s.lines[:] = 0.0
    s.first[:] = n
    for request in range(n - 1, -1, -1):
        s.first[s.where[request]] = request
        add(t, s, s.where[request], request, 1.0)
    for worker in range(len(t.kind)):
        s.ends[worker] = end_of(t, s, worker, s.first[worker], -1, -1)


def add(t: Tables, s: Loads, worker: int, request: int, sign: float) -> None:
    """Add a request to what a worker has, or take it away."""
    kind = t.kind[worker]
    for moment in range(t.suffix[request] + 1):
        s.tokens[worker, moment] += sign * t.tokens[request]
        s.held[worker, moment] += sign * t.held[kind, request]
        for line in range(t.round.shape[1]):
            s.lines[worker, moment, line] += sign * t.own[kind, line, request]


def next_of(s: Loads, worker: int, gone: int, come: int) -> int:
    """Return the first request that a worker has after one has gone and another has come."""
    first = s.first[worker]
    if first == gone:
        first += 1
        while first < len(s.where) and s.where[first] != worker:
            first += 1
    return come if 0 <= come < first else first


def weight(share: float) -> float:
    """Return the 24th power: in a sum over workers the latest counts most, but each counts."""
    cube = share * share * share
    sixth = cube * cube
    twelfth = sixth * sixth
    return twelfth * twelfth


def anneal(
    t: Tables, s: Loads, best: IntColumn, draws: Floats, heat: float, base: float, found: float
) -> float:
    """Move requests and exchange pairs, at one temperature; return the latest end of ``best``, the
    assignment that ends first, which so far ends at ``found``.

    What falls is the sum of the ``weight`` of each worker's end over ``base``. ``draws``:
    [moves, 4] between 0 and 1.
    """
    n, workers = len(t.tokens), len(t.kind)
    for move in range(len(draws)):
        one = int(draws[move, 0] * n)
        source, other = s.where[one], -1
        if draws[move, 1] < 0.6:
            other = int(draws[move, 2] * n)
            if draws[move, 1] < 0.42:
                other = one + int(draws[move, 2] * (2 * NEAR + 1)) - NEAR
            if other < 0 or other >= n:
                continue
            target = s.where[other]
        else:
            target = int(draws[move, 2] * workers)
        if target == source or not t.fits[t.kind[target], one]:
            continue
        if other >= 0 and not t.fits[t.kind[source], other]:
            continue
        firsts = next_of(s, source, one, other), next_of(s, target, other, one)
        left = end_of(t, s, source, firsts[0], one, other)
        right = end_of(t, s, target, firsts[1], other, one)
        before = max(s.ends[source], s.ends[target])
        rise = weight(left / base) + weight(right / base)
        rise -= weight(s.ends[source] / base) + weight(s.ends[target] / base)
        if rise > 0 and draws[move, 3] >= math.exp(-rise / heat):
            continue
        add(t, s, source, one, -1.0)
        add(t, s, target, one, 1.0)
        s.where[one] = target
        if other >= 0:
            add(t, s, target, other, -1.0)
            add(t, s, source, other, 1.0)
            s.where[other] = source
        s.first[source], s.first[target] = firsts
        s.ends[source], s.ends[target] = left, right
        if before >= found:
            latest = s.ends.max()
            if latest < found:
                found = latest
                best[:] = s.where
    return found
