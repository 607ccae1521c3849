"""The arrays that a search works on: the problem, the plan, and room for what is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.models.latency_search.decoding import CLIENTS, HEAD, PAIRS, REALS, WHOLES
from orsched.models.latency_search.moves import KEPT_PLACE, KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Whole = NDArray[np.int64]
    Real = NDArray[np.float64]

EVERY = 16
"""Positions from one kept state to the next."""


class Tables(NamedTuple):
    """What the decoder and the moves read and write; W workers, n requests, J clients.

    Attributes:
        whole, real: numbers of the requests (n by 7, n by 4), the columns of ``decoding``.
        times, limits: numbers of the workers.
        weights: of the makespan.
        sequences, lengths: the requests of each worker in order, and how many there are.
        values, finals, tried: sum and end of each worker; end as tried last.
        state, place, ends, who: the worker that is being decoded.
        sizes: positions from one kept state to the next, and how many states are kept.
        marks, mark_ends, mark_who: kept states.
        script: rows that decoding writes; none for a search.
        kinds: shares of the kinds of moves, added up.
        counts: moves of each kind that were kept.
        saved: what a move has overwritten.
        move: kind, worker, place, other worker and place there of the move that is tried.
        change: weight of the requests that the other worker gets by it.
        before: sum and end of both workers before it.
        best_sequences, best_lengths, best_whole: the best plan so far.
    """

    whole: Whole
    real: Real
    times: Real
    limits: Whole
    weights: Real
    sequences: Whole
    lengths: Whole
    values: Real
    finals: Real
    tried: Real
    state: Real
    place: Whole
    ends: Whole
    who: Whole
    sizes: Whole
    marks: Real
    mark_ends: Whole
    mark_who: Whole
    script: Whole
    kinds: Real
    counts: Whole
    saved: Whole
    move: Whole
    change: Real
    before: Real
    best_sequences: Whole
    best_lengths: Whole
    best_whole: Whole


def tables_of(
    whole: Whole,
    real: Real,
    times: Real,
    limits: Whole,
    makespan: float,
    orders: Sequence[Sequence[int]],
    shares: Sequence[float],
    rows: int = 0,
) -> Tables:
    """Return tables for a problem and the workers' orders, with room for that many script rows."""
    n, workers = len(whole), len(times)
    clients = max(1, min(int(limits[:, CLIENTS].max()), n))
    limits = limits.copy()
    limits[:, CLIENTS] = np.minimum(limits[:, CLIENTS], clients)
    slots = 1 if rows else n // EVERY + 1
    sequences = np.zeros((workers, n + 1), np.int64)
    lengths = np.array([len(order) for order in orders], np.int64)
    for j, order in enumerate(orders):
        sequences[j, : len(order)] = order
    marks = np.zeros((workers, slots, REALS + WHOLES))
    marks[:, :, KEPT_PLACE] = -1.0
    marked = (workers, slots, clients)
    kinds = np.cumsum(np.array(shares, float)) / sum(shares)
    assert len(kinds) == KINDS
    return Tables(
        np.ascontiguousarray(whole, np.int64).copy(),
        np.ascontiguousarray(real, np.float64).copy(),
        times,
        limits,
        np.array([makespan]),
        sequences,
        lengths,
        np.zeros(workers),
        np.zeros(workers),
        np.zeros(workers),
        np.zeros(PAIRS + 1),
        np.zeros(HEAD + 1, np.int64),
        np.zeros(2 * clients, np.int64),
        np.zeros(3 * clients, np.int64),
        np.array([EVERY, slots], np.int64),
        marks,
        np.zeros(marked, np.int64),
        np.zeros(marked, np.int64),
        np.zeros((rows, 4), np.int64),
        kinds,
        np.zeros(KINDS, np.int64),
        np.zeros(n + 1, np.int64),
        np.zeros(5, np.int64),
        np.zeros(1),
        np.zeros(4),
        sequences.copy(),
        lengths.copy(),
        np.ascontiguousarray(whole, np.int64).copy(),
    )
