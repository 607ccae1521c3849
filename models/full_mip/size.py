"""The size of each model, known before it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from orsched.models.full_mip.problem import Problem


class Size(NamedTuple):
    """Size of a model, known before it is built."""

    variables: int
    rows: int
    nonzeros: int


def stages_size(problem: Problem, stages: int, starts: int, tokens: int) -> Size:
    """Return the size of what ``Stages`` holds: eq. (2)-(7) and the length of decode stages.

    ``starts`` and ``tokens`` count the columns that enter eq. (5)-(6) and the lengths, in all bins.
    """
    k, levels = stages, len(problem.levels)
    costly = sum(1 for _, time in problem.levels if time)
    nonzeros = 9 * k - 3  # (2)-(4)
    nonzeros += k * (1 + costly) + (problem.prompt_token > 0) * starts  # (5)
    nonzeros += starts + 2 * k * levels  # (6), (7)
    nonzeros += k * (1 + (problem.round_fixed > 0)) + (problem.round_client > 0) * tokens
    return Size(k * (levels + 5) + 1, 7 * k - 1, nonzeros)


def symmetry_size(problem: Problem, stages: int) -> Size:
    """Return the size of ``Stages.used_first``."""
    levels = len(problem.levels)
    rounds = stages * (1 + levels * (problem.most_rounds > 0))
    return Size(0, 2 * stages - 1, (stages - 1) * 2 * levels + rounds)


def full_mip_size(
    problem: Problem, stages: int, formulation: str = "compact", symmetry_breaking: bool = True
) -> Size:
    """Return variables, rows and nonzeros of ``FullMip`` without building it.

    With n requests, J clients, K bins and L levels the families p, d and w have nJK variables
    each; the printed eq. (10) and (11) have nJ(K-1)^2 rows and about nJK^3/6 nonzeros.
    """
    n, clients, k = len(problem), problem.clients, stages
    nj, njk = n * clients, n * clients * k
    decoding = sum(1 for due in problem.needed if due) * clients  # with a term of x in (14)
    late = sum(1 for arrival in problem.arrivals if arrival)
    parts = [
        stages_size(problem, k, njk, njk),
        Size(nj + 3 * njk, 3 * clients * k, 3 * njk + clients * k),  # (8), (12), (16)
        Size(0, late * k, late * k * (1 + clients)),
        Size(0, 2 * njk, 3 * njk + decoding * k),  # (9), w <= d
        Size(0, 2 * nj + 2 * n, 3 * njk + 2 * nj + decoding),  # (14), (17), (15), (18)
    ]
    if problem.memory_blocks is not None:
        parts.append(Size(0, k, njk))
    if formulation == "compact":
        parts.append(Size(0, njk + 2, 3 * njk - nj + k + k * len(problem.levels)))
    else:
        spans = sum((k - gap) * (gap + 1) for gap in range(2, k))
        parts.append(Size(0, nj * (k - 1) ** 2, nj * (k * (k - 1) + spans)))
    if symmetry_breaking:
        most = [min(i, clients - 1) for i in range(1, n)]  # clients 1..most, for request i
        terms = sum(m * (i + 2) - m * (m + 1) // 2 for i, m in enumerate(most, 1))
        parts += [symmetry_size(problem, k), Size(0, sum(most), terms)]
    return Size(*(sum(column) for column in zip(*parts, strict=True)))


def windows_mip_size(problem: Problem, stages: int, symmetry_breaking: bool = True) -> Size:
    """Return variables, rows and nonzeros of ``WindowsMip`` without building it."""
    n, k = len(problem), stages
    windows = k * (k + 1) // 2
    covered = k * (k + 1) * (k + 2) // 6  # bins in all windows together
    decoding = sum(1 for due in problem.needed if due)
    arriving = sum(1 for arrival in problem.arrivals if arrival)
    tokens = n * k if problem.round_client else 0
    parts = [
        stages_size(problem, k, n * windows, tokens),
        Size(n * windows, k, n * covered),  # clients
        Size(0, arriving * k, arriving * (k + windows)),
        Size(0, n * (windows + 1), n * (windows + covered) + decoding * windows),
    ]
    if problem.memory_blocks is not None:
        parts.append(Size(0, k, n * covered))
    if tokens:
        parts.append(Size(tokens, n + 2 * tokens, 4 * tokens + decoding * covered))
    if symmetry_breaking:
        parts.append(symmetry_size(problem, k))
    return Size(*(sum(column) for column in zip(*parts, strict=True)))
