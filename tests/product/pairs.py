"""Covering arrays: few rows in which every allowed pair of levels of two factors occurs."""

from __future__ import annotations

from itertools import combinations


def pairs_of(factors, allowed):
    """Return all pairs of levels that may stand in one row, in order: ``factors`` maps a name to
    its levels; ``allowed(level, level)`` is asked for two pairs (factor, level)."""
    return [
        (one, other)
        for first, second in combinations(factors, 2)
        for one in ((first, level) for level in factors[first])
        for other in ((second, level) for level in factors[second])
        if allowed(one, other)
    ]


def pairwise(factors, allowed=lambda one, other: True):
    """Return rows (factor -> level) that cover every allowed pair; equal input, equal rows. Greedy:
    a row begins with the first pair that is not covered, and takes of each other factor the level
    that covers the most; among equals the one in the fewest rows so far. A level is taken back
    where it leaves another factor without one. Raises ``ValueError`` for a pair that no row can
    hold."""
    left = dict.fromkeys(pairs_of(factors, allowed))
    used = {(name, level): 0 for name, levels in factors.items() for level in levels}
    rows = []
    while left:
        pair = next(iter(left))
        row = _fill(dict(pair), factors, allowed, left, used)
        if row is None:
            raise ValueError(f"no row can hold {pair}")
        for name, level in row.items():
            used[name, level] += 1
        rows.append({name: row[name] for name in factors})
        for covered in combinations(rows[-1].items(), 2):
            left.pop(covered, None)
    return rows


def _fill(row, factors, allowed, left, used):
    """Return the row with a level of each factor, or None."""
    open_factors = [name for name in factors if name not in row]
    if not open_factors:
        return row
    place = {name: k for k, name in enumerate(factors)}
    name = open_factors[0]

    def covers(level):
        pairs = [sorted(((name, level), item), key=lambda x: place[x[0]]) for item in row.items()]
        return sum(tuple(pair) in left for pair in pairs)

    levels = [
        level
        for level in factors[name]
        if all(allowed(item, (name, level)) for item in row.items())
    ]
    for level in sorted(levels, key=lambda level: (-covers(level), used[name, level])):
        filled = _fill({**row, name: level}, factors, allowed, left, used)
        if filled is not None:
            return filled
    return None
