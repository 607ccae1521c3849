"""Re-derivation of what is proven of the rounds by where clients begin and end (docs/bounds.md).

Weights are given for requests in each role. If all requests weigh more than J clients can hold,
however few lengths the ends and the windows are rounded up to, the rounds are too few.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from orsched.certificates.budget import STEP, Budget

Table = np.ndarray[Any, np.dtype[np.int64]]

LARGEST_HORIZON, LARGEST_WEIGHT = 20_000, 2**40
_NONE = -(2**60)


class _Entry(NamedTuple):
    """The weights of an entry, by length, the greatest length last."""

    end: list[int]
    middle: list[int]
    single: list[int]
    window: list[int]
    long: int


def proven_rounds(
    rounds: list[int], clients: int, entries: list[dict[str, Any]], budget: Budget
) -> list[tuple[int, int]]:
    """Return all claims (stages, rounds) of the entries; ``ValueError`` if one is not proven."""
    counts = Counter(d for d in rounds if d > 0)
    lengths = sorted(counts)
    if len(lengths) < 2:
        raise ValueError("there is nothing to prove")
    found = []
    for entry in entries:
        weights = _read(entry, len(lengths))
        for stages, needed in entry["proves"]:
            if stages > len(rounds) or needed > LARGEST_HORIZON:
                raise ValueError(f"{stages} stages, {needed} rounds are beyond what is verified")
            if not _too_few(lengths, counts, clients, weights, stages, needed - 1, budget):
                raise ValueError(f"it is not proven that {stages} stages need {needed} rounds")
            found.append((stages, needed))
    return found


def _read(entry: dict[str, Any], lengths: int) -> _Entry:
    parts = [entry[name] for name in ("end", "middle", "single", "window")]
    if any(sorted(part) != part for part in parts):
        raise ValueError("weights fall")
    if any(len(part) != lengths for part in parts):
        raise ValueError("not one weight for each length")
    end, middle, single, window = parts
    return _Entry(end, middle, single, window, entry["long"])


def _too_few(
    lengths: list[int],
    counts: Counter[int],
    clients: int,
    weights: _Entry,
    stages: int,
    horizon: int,
    budget: Budget,
) -> bool:
    """Whether so many stages need more rounds than the horizon."""
    longest = lengths[-1]
    fitting = horizon // longest
    if fitting < 1 or counts[longest] <= (fitting - 1) * clients:
        return False
    others = max(0, stages - fitting)
    roles = [min(m, s) for m, s in zip(weights.middle, weights.single, strict=True)]
    never = [LARGEST_WEIGHT] * len(lengths)
    many = [counts[length] for length in lengths]
    top = len(lengths) - 1
    budget.spend(2 * STEP * top + 3 * top * top * (min(2 * others, top) + top))
    total = _rounded_up(weights.end, roles, many, 2 * others)
    total += _rounded_up(weights.window, never, many, others * (others + 3) // 2)
    total += counts[longest] * weights.long
    return total > clients * _most(lengths, many, weights, horizon, budget)


def _rounded_up(up: list[int], instead: list[int], many: list[int], values: int) -> int:
    """Least weight of all shorts, each rounded up to a value or to the greatest length.

    Or not, if it weighs less ``instead``. By length, from above: the least for each value that is
    the last so far, and each number of values that are left.
    """
    top = len(up) - 1
    left = min(values, top)
    least = np.full((left + 1, top + 1), 2**60, np.int64)
    least[left, top] = 0
    weights = np.array(up)
    for at in range(top - 1, -1, -1):
        opened = least[1:].min(axis=1)
        least[:-1, at] = np.minimum(least[:-1, at], opened)
        least += many[at] * np.minimum(weights, instead[at])
    return int(least.min())


def _most(
    lengths: list[int], many: list[int], weights: _Entry, horizon: int, budget: Budget
) -> int:
    """Most that the content of a client weighs: longs and one short alone, or several shorts."""
    longest, shorts = lengths[-1], sum(many[:-1])
    windowed = [
        [weight + window for weight, window in zip(part, weights.window, strict=True)]
        for part in (weights.end, weights.middle, weights.single)
    ]
    ends, middles, singles = (list(zip(lengths, part, strict=True)) for part in windowed)
    nothing = np.zeros(horizon + 1, np.int64)
    between = nothing
    as_short = 0
    for at, (size, weight) in enumerate(middles):
        as_short = shorts if size == longest else as_short + many[at]
        fitting, before = min(as_short, horizon // size), between
        for _ in range(fitting):
            budget.spend(STEP + 3 * horizon)
            step = np.maximum(before, _besides(before, [(size, weight)]))
            if (step == before).all():
                break
            before = step
        between = before if fitting else between
    budget.spend(4 * len(lengths) * (STEP + 2 * horizon))
    two = _besides(_besides(between, ends), ends)
    one, alone = _besides(nothing, ends), _besides(nothing, singles)
    best = 0
    budget.spend(STEP * (horizon // longest))
    for longs in range(horizon // longest + 1):
        room = horizon - longs * longest
        short = max(0, int(two[room]), int((one if longs else alone)[room]))
        best = max(best, longs * weights.long + short)
    return best


def _besides(before: Table, things: list[tuple[int, int]]) -> Table:
    """The most with exactly one of the things besides what was there, by the room for both."""
    best = np.full(len(before), _NONE, np.int64)
    for size, weight in things:
        if size < len(before):
            best[size:] = np.maximum(best[size:], before[: len(before) - size] + weight)
    return best
