"""Moves of the search, and the loop that tries them; loaded plain and compiled, like ``decoding``.
A move shifts a request in its worker's order or swaps two, takes one to another worker or swaps it
for one there, or sets gate, budget or stage of some that follow each other. It is kept if the
objective rises by no more than a threshold, which the caller draws; else it is undone. Only the
workers concerned are decoded again, from the last kept state before the first request that
moves."""

from __future__ import annotations

from typing import Any

from orsched.models.latency_search.decoding import (
    ALONE,
    BUDGET,
    CLIENTS,
    COUNT,
    DECODING,
    FINISH_WEIGHT,
    GATE,
    HEAD,
    INFINITE,
    NOW,
    OPEN,
    PARTIAL,
    PLACE,
    REALS,
    START,
    WHOLES,
    decode,
)

KEPT_PLACE = REALS + PLACE  # column of a mark: the place in the sequence; -1: nothing is kept

DRAWS = 7  # random numbers of a move

BUDGETS = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 1 << 40)
"""Most tokens of a step, to choose from."""

SHIFT, SWAP, MOVE, TRADE, GATES, SIZES, STAGES = range(7)
"""Kinds of moves."""

KINDS = 7


def evaluate(t: Any, j: int, position: int, change: float, most: float, keep: bool) -> float:
    """Decode a worker j from the last kept state before a changed place on; return its sum, which
    does not matter above ``most``. ``change``: what the weight of its requests has grown by since
    states were kept; ``keep``: whether states are kept."""
    state, place = t.state, t.place
    every = t.sizes[0]
    slot = max(position - 1, 0) // every
    while slot >= 0 and not 0 <= t.marks[j, slot, KEPT_PLACE] < max(position, 1):
        slot -= 1
    if slot < 0:
        weight = 0.0
        for k in range(t.lengths[j]):
            weight += t.real[t.sequences[j, k], FINISH_WEIGHT]
        for k in range(REALS):
            state[k] = 0.0
        for k in range(WHOLES):
            place[k] = 0
        state[OPEN], place[PARTIAL], place[HEAD] = weight, -1, 0
    else:
        for k in range(REALS):
            state[k] = t.marks[j, slot, k]
        for k in range(WHOLES):
            place[k] = int(t.marks[j, slot, REALS + k])
        state[OPEN] += change
        place[HEAD] = 0
        for k in range(place[DECODING]):
            t.ends[k] = t.mark_ends[j, slot, k]
            t.who[k] = t.mark_who[j, slot, k]
    if keep:
        for k in range(slot + 1, t.sizes[1]):
            t.marks[j, k, KEPT_PLACE] = -1.0
    value = decode(
        t.sequences[j],
        t.lengths[j],
        t.whole,
        t.real,
        t.times[j],
        t.limits[j],
        state,
        place,
        t.ends,
        t.who,
        t.marks[j],
        t.mark_ends[j],
        t.mark_who[j],
        every if keep else 0,
        most,
        t.script,
    )
    t.tried[j] = state[NOW]
    return float(value)


def evaluate_all(t: Any) -> float:
    """Decode all workers, keep their states, and return the objective."""
    for j in range(len(t.lengths)):
        t.values[j] = evaluate(t, j, 0, 0.0, INFINITE, True)
        t.finals[j] = t.tried[j]
    return total_of(t)


def total_of(t: Any) -> float:
    """Return the objective: the sums of the workers, and the makespan at its weight."""
    total, last = 0.0, 0.0
    for j in range(len(t.lengths)):
        total += t.values[j]
        last = max(last, t.finals[j])
    return float(min(total + t.weights[0] * last, INFINITE))


def run_moves(
    t: Any, value: float, best: float, draws: Any, thresholds: Any
) -> tuple[float, float]:
    """Try a move for each threshold; return the objective of the plan, and of the best one. The
    best plan is kept in ``best_sequences``, ``best_lengths`` and ``best_whole``."""
    for m in range(len(thresholds)):
        if not _propose(t, draws, m * DRAWS):
            continue
        made = _try(t, value + thresholds[m])
        if made > value + thresholds[m]:
            _undo(t)
            continue
        value = made
        _accept(t)
        if value < best:
            best = value
            _copy(t.sequences, t.best_sequences)
            t.best_lengths[:] = t.lengths
            _copy(t.whole, t.best_whole)
    return value, best


def _copy(rows: Any, into: Any) -> None:
    """Copy rows, which may be lists, into others."""
    for k in range(len(rows)):
        into[k, :] = rows[k]


def _propose(t: Any, draws: Any, u: int) -> bool:
    """Draw a move and make it; say whether there is one."""
    kind = 0
    while kind < KINDS - 1 and draws[u] >= t.kinds[kind]:
        kind += 1
    j, workers = _worker(t, draws[u + 1]), len(t.lengths)
    length = t.lengths[j]
    p = int(draws[u + 2] * length)
    far = _far(draws[u + 3], length)
    if draws[u + 4] < 0.5:
        far = -far
    other, at = j, p + far
    if kind in (MOVE, TRADE):
        other = (j + 1 + int(draws[u + 5] * (workers - 1))) % workers
        near = _joins(t, other, t.real[t.sequences[j, p], START])
        last = t.lengths[other] - (1 if kind == TRADE else 0)
        at = min(max(near + far // 2, 0), last)
        if at < 0:
            return False
    elif kind in (SHIFT, SWAP):
        if at < 0 or at >= length:
            at = p - far
        if at < 0 or at >= length or at == p:
            return False
    else:
        at = p + 1 if draws[u + 4] < 0.5 else min(p + abs(far), length)
    t.move[0], t.move[1], t.move[2], t.move[3], t.move[4] = kind, j, p, other, at
    return _make(t, draws[u + 5], draws[u + 6])


def _make(t: Any, which: float, how: float) -> bool:
    """Make the move; say whether the plan is another now."""
    kind, j, p, other, at = t.move[0], t.move[1], t.move[2], t.move[3], t.move[4]
    t.change[0] = 0.0
    if kind == SHIFT:
        _shift(t.sequences[j], p, at)
    elif kind == SWAP:
        _swap(t, j, p, j, at)
    elif kind == MOVE:
        t.change[0] = t.real[t.sequences[j, p], FINISH_WEIGHT]
        _move(t, j, p, other, at)
    elif kind == TRADE:
        t.change[0] = t.real[t.sequences[j, p], FINISH_WEIGHT]
        t.change[0] -= t.real[t.sequences[other, at], FINISH_WEIGHT]
        _swap(t, j, p, other, at)
    else:
        return _set(t, kind, j, p, at, which, how)
    return True


def _undo(t: Any) -> None:
    """Take the move back, and the values of the workers."""
    kind, j, p, other, at = t.move[0], t.move[1], t.move[2], t.move[3], t.move[4]
    t.values[other], t.finals[other] = t.before[2], t.before[3]
    t.values[j], t.finals[j] = t.before[0], t.before[1]
    if kind == SHIFT:
        _shift(t.sequences[j], at, p)
    elif kind in (SWAP, TRADE):
        _swap(t, j, p, other, at)
    elif kind == MOVE:
        _move(t, other, at, j, p)
    else:
        column = GATE + kind - GATES
        for k in range(p, at):
            t.whole[t.sequences[j, k], column] = t.saved[k]


def _first(t: Any) -> int:
    """Return the first place of the move's worker that is another."""
    return int(min(t.move[2], t.move[4]) if t.move[0] in (SHIFT, SWAP) else t.move[2])


def _try(t: Any, most: float) -> float:
    """Decode the workers of the move; return the objective, if it is not above ``most``."""
    j, other, at = t.move[1], t.move[3], t.move[4]
    t.before[0], t.before[1] = t.values[j], t.finals[j]
    t.before[2], t.before[3] = t.values[other], t.finals[other]
    for k in range(len(t.lengths)):
        if k not in (j, other):
            most -= t.values[k]
    t.values[j] = evaluate(t, j, _first(t), -t.change[0], most, False)
    t.finals[j] = t.tried[j]
    if other != j and t.values[j] < INFINITE:
        t.values[other] = evaluate(t, other, at, t.change[0], most - t.values[j], False)
        t.finals[other] = t.tried[other]
    return total_of(t)


def _accept(t: Any) -> None:
    """Keep the states of the workers of the move, which have been tried."""
    j, other = t.move[1], t.move[3]
    t.counts[t.move[0]] += 1
    evaluate(t, j, _first(t), -t.change[0], INFINITE, True)
    if other != j:
        evaluate(t, other, t.move[4], t.change[0], INFINITE, True)


def _worker(t: Any, draw: float) -> int:
    """Return a worker, each as likely as its share of the requests."""
    n = 0
    for j in range(len(t.lengths)):
        n += t.lengths[j]
    place, j = int(draw * n), 0
    while place >= t.lengths[j]:
        place -= t.lengths[j]
        j += 1
    return j


def _far(draw: float, length: int) -> int:
    """Return a distance from 1 to the length, each size of it as likely."""
    return min(int(float(max(length, 1)) ** draw), max(length - 1, 1))


def _joins(t: Any, j: int, moment: float) -> int:
    """Return the place of a worker's first request that joins at a moment or after it."""
    low, high = 0, t.lengths[j]
    while low < high:
        middle = (low + high) // 2
        if t.real[t.sequences[j, middle], START] < moment:
            low = middle + 1
        else:
            high = middle
    return low


def _shift(sequence: Any, p: int, at: int) -> None:
    """Let the request at a place be at another one, and those between move up."""
    i = sequence[p]
    step = 1 if at > p else -1
    for k in range(p, at, step):
        sequence[k] = sequence[k + step]
    sequence[at] = i


def _swap(t: Any, j: int, p: int, other: int, at: int) -> None:
    """Swap two requests."""
    i = t.sequences[j, p]
    t.sequences[j, p] = t.sequences[other, at]
    t.sequences[other, at] = i


def _move(t: Any, j: int, p: int, other: int, at: int) -> None:
    """Take a request to a place of another worker."""
    i = t.sequences[j, p]
    for k in range(p, t.lengths[j] - 1):
        t.sequences[j, k] = t.sequences[j, k + 1]
    t.lengths[j] -= 1
    for k in range(t.lengths[other], at, -1):
        t.sequences[other, k] = t.sequences[other, k - 1]
    t.sequences[other, at] = i
    t.lengths[other] += 1


def _set(t: Any, kind: int, j: int, p: int, end: int, which: float, how: float) -> bool:
    """Set gate, budget or stage of the requests at some places; say whether one is another now."""
    sequence, whole = t.sequences[j], t.whole
    i = sequence[p]
    column = ALONE
    if kind == GATES:
        column, clients = GATE, t.limits[j, CLIENTS]
        value = clients
        if which < 0.7:
            by = int(float(clients) ** how)
            value = whole[i, COUNT] - by if which < 0.35 else whole[i, COUNT] + by
            value = min(max(value, 1), clients)
    elif kind == SIZES:
        column = BUDGET
        value = BUDGETS[int(which * len(BUDGETS))]
    else:
        value = 1 - whole[i, ALONE]
    changed = False
    for k in range(p, end):
        changed = changed or whole[sequence[k], column] != value
        t.saved[k] = whole[sequence[k], column]
        whole[sequence[k], column] = value
    return changed
