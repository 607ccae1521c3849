"""Families of makespan-packing instances from the literature, drawn anew from their rules.

Lawrinenko (L1-L7), França and Frangioni (U, NU), Berndt (E, BIG), planted optima (P), zero-waste
triplets (T), GSM8K-like lengths (G), the same with large integers (W), three large jobs a client
(H), Lawrinenko's rules at 500-600 jobs on 200 clients (X). No published file is redistributed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.instances.synthetic import output_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Rng = np.random.Generator


class Packing(NamedTuple):
    """Jobs, clients, and the optimum where the rule plants one."""

    jobs: list[int]
    clients: int
    optimum: int | None = None


LAWRINENKO_SIZES = ((50, 20), (100, 40), (200, 80), (220, 80), (198, 66))
U_SIZES = ((50, 10), (50, 25), (100, 10), (100, 25), (500, 25))
PLANTED_SIZES = ((75, 30), (100, 40), (150, 50), (200, 80), (250, 100))
X_SIZES = ((500, 200), (550, 200), (600, 200))


def _uniform(rng: Rng, low: int, high: int, n: int) -> list[int]:
    return [int(v) for v in rng.integers(low, high + 1, n)]


def _normal(rng: Rng, mean: float, deviation: float, n: int) -> list[int]:
    """Truncate to whole numbers; redraw what is not positive."""
    jobs: list[int] = []
    while len(jobs) < n:
        value = int(rng.normal(mean, deviation))
        if value > 0:
            jobs.append(value)
    return jobs


def _lawrinenko_jobs(rng: Rng, kind: int, n: int) -> list[int]:
    rules: dict[int, Callable[[], list[int]]] = {
        1: lambda: _uniform(rng, 1, 100, n),
        2: lambda: _uniform(rng, 20, 100, n),
        3: lambda: _uniform(rng, 50, 100, n),
        4: lambda: _normal(rng, 100, 20, n),
        5: lambda: _normal(rng, 100, 50, n),
        6: lambda: _uniform(rng, n, 4 * n, n),
        7: lambda: _normal(rng, 4 * n, n, n),
    }
    return rules[kind]()


def lawrinenko(kind: int, seed: int) -> Packing:
    """Return class 1 to 7 at n / m from 2.5 to 3."""
    n, m = LAWRINENKO_SIZES[seed % len(LAWRINENKO_SIZES)]
    return Packing(_lawrinenko_jobs(_rng(f"L{kind}", seed), kind, n), m)


def scaled_lawrinenko(seed: int) -> Packing:
    """Return X: the seven classes in turn, at 500 to 600 jobs on 200 clients."""
    n, m = X_SIZES[seed % len(X_SIZES)]
    kind = seed % 7 + 1
    return Packing(_lawrinenko_jobs(_rng("X", seed), kind, n), m)


def franca(kind: int, seed: int, uniform: bool) -> Packing:
    """Return U or NU: lengths to 10^(kind + 1); NU: 98 % of them within a tenth of that."""
    n, m = U_SIZES[seed % len(U_SIZES)]
    high = 10 ** (kind + 1)
    rng = _rng(f"{'U' if uniform else 'NU'}{kind}", seed)
    if uniform:
        return Packing(_uniform(rng, 1, high, n), m)
    long = rng.random(n) < 0.98
    large, small = rng.integers(9 * high // 10, high + 1, n), rng.integers(1, high // 5 + 1, n)
    return Packing([int(v) for v in np.where(long, large, small)], m)


def berndt(kind: int, seed: int) -> Packing:
    """Return E1 to E4: few clients."""
    rng = _rng(f"E{kind}", seed)
    if kind == 1:
        m = int(rng.choice([3, 4, 5]))
        low, high = ((1, 20), (20, 50))[rng.integers(2)]
        return Packing(_uniform(rng, low, high, m * int(rng.choice([2, 3, 5]))), m)
    if kind == 2:
        m = int(rng.choice([2, 3, 4, 6, 8, 10]))
        n = int(rng.choice([10, 30, 50, 100] if m < 4 else [30, 50, 100]))
        return Packing(_uniform(rng, 100, 800, n), m)
    if kind == 3:
        m, k = int(rng.choice([3, 5, 8, 10])), int(rng.choice([3, 4, 5]))
        low, high = ((1, 100), (100, 200))[rng.integers(2)]
        return Packing(_uniform(rng, low, high, k * m + int(rng.choice([1, 2]))), m)
    m, n = ((2, 10), (3, 9))[rng.integers(2)]
    low, high = ((1, 20), (20, 50), (50, 100), (100, 200), (100, 800), (1, 100))[rng.integers(6)]
    return Packing(_uniform(rng, low, high, n), m)


def big(seed: int) -> Packing:
    """Return BIG: four jobs a client, lengths to 1,000."""
    m = (25, 50, 75, 100)[seed % 4]
    return Packing(_uniform(_rng("BIG", seed), 1, 1000, 4 * m), m)


def planted(seed: int) -> Packing:
    """Return bars of one length cut at random points; in three of four, some jobs one longer."""
    rng = _rng("P", seed)
    n, m = PLANTED_SIZES[seed % len(PLANTED_SIZES)]
    length = (100, 300, 1000, 3000)[seed % 4]
    share = (0, 0.01, 0.05, 0.1)[seed // 4 % 4]
    points = [(bar, at) for bar in range(m) for at in range(1, length)]
    cuts: list[list[int]] = [[int(rng.integers(1, length))] for _ in range(m)]
    left = n - 2 * m
    while left > 0:
        bar, at = points[int(rng.integers(len(points)))]
        if at not in cuts[bar]:
            cuts[bar].append(at)
            left -= 1
    jobs = [b - a for c in cuts for a, b in _pieces(sorted(c), length)]
    for job in rng.permutation(n)[: math.ceil(share * n)]:
        jobs[job] += 1
    return Packing([int(jobs[j]) for j in rng.permutation(n)], m, None if share else length)


def _pieces(cuts: list[int], length: int) -> Iterator[tuple[int, int]]:
    return zip([0, *cuts], [*cuts, length], strict=True)


def triplets(seed: int) -> Packing:
    """Return Falkenauer's triplets: every client is filled by three jobs without waste."""
    rng = _rng("T", seed)
    m, length = (20, 40, 83, 167)[seed % 4], (1_000, 10_000)[seed // 4 % 2]
    jobs: list[int] = []
    for _ in range(m):
        first = int(rng.integers(38 * length // 100, 49 * length // 100 + 1))
        second = int(rng.integers(length // 4 + 1, (length - first) // 2 + 1))
        jobs += [first, second, length - first - second]
    return Packing([int(jobs[j]) for j in rng.permutation(len(jobs))], m, length)


def gsm8k_like(seed: int, n: int = 1319, m: int = 200) -> Packing:
    """Return G: the output lengths of the main instance."""
    return Packing(output_tokens(n, seed).tolist(), m)


def wide(seed: int) -> Packing:
    """Return W: G times 10, 100 or 1,000 plus random low digits."""
    factor = (10, 100, 1000)[seed % 3]
    low = _rng("W", seed).integers(0, factor, 1319)
    jobs = output_tokens(1319, 10_000 + seed) * factor + low
    return Packing([int(v) for v in jobs], 200)


def hard(seed: int) -> Packing:
    """Return H: three jobs a client, lengths to 10^4 (four of five) or 10^5."""
    n, m = ((75, 25), (150, 50), (152, 50), (150, 50))[seed % 4]
    return Packing(_uniform(_rng("H", seed), 1, 10**5 if seed % 5 == 4 else 10**4, n), m)


def _rng(family: str, seed: int) -> Rng:
    return np.random.default_rng([*family.encode(), seed])


FAMILIES: dict[str, Callable[[int], Packing]] = {
    **{f"L{k}": lambda s, k=k: lawrinenko(k, s) for k in range(1, 8)},
    **{f"U{k}": lambda s, k=k: franca(k, s, True) for k in (1, 2, 3)},
    **{f"NU{k}": lambda s, k=k: franca(k, s, False) for k in (1, 2, 3)},
    **{f"E{k}": lambda s, k=k: berndt(k, s) for k in (1, 2, 3, 4)},
    "BIG": big,
    "P": planted,
    "T": triplets,
    "W": wide,
    "G": gsm8k_like,
    "X": scaled_lawrinenko,
    "H": hard,
}
