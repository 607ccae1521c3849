"""Fit of the profiled cost model: tables that are linear in what is fitted."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from orsched.calibration.measurements import DECODE, PHASES, PREFILL
from orsched.common.errors import InputError
from orsched.costs.profiled import GRIDS, ProfiledCost
from orsched.costs.profiled_grid import Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration.fit_work import Work
    from orsched.calibration.least_squares import FloatArray
    from orsched.common.columns import IntColumn

MOST_KNOTS = 8


@dataclass(frozen=True)
class Basis:
    """Tables of a profiled cost with few unknowns: the time of a step is linear in them.

    ``dense`` has one unknown a knot. Attention has at most one each: ``prefill`` grows with the
    square of a chunk (at the points ``chunks``, linear between) and, since each of its c tokens
    attends to k cached ones as well, with 2 c k; ``decode`` with the sum of the contexts, as
    reading every cache once does.

    Attributes:
        knots: numbers of tokens, growing.
        chunks: points of ``prefill`` from 0 on; (0,) leaves its unknown out.
        reads: whether ``decode`` has its unknown.
    """

    knots: tuple[int, ...]
    chunks: tuple[int, ...] = (0,)
    reads: bool = True

    @property
    def names(self) -> list[str]:
        """What the unknowns are called in errors and notes."""
        found = [f"dense at {knot}" for knot in self.knots]
        return found + ["prefill"] * (len(self.chunks) > 1) + ["decode"] * self.reads

    def row(
        self,
        prompts: Sequence[int],
        active: int,
        context_sum: int,
        cached: Sequence[int] = (),
    ) -> list[float]:
        """Return what each unknown counts for in a step; ``cached`` as in ``prefill_ns``."""
        found = _hats(self.knots, sum(prompts) + active)
        if len(self.chunks) > 1:
            squares = [chunk**2 for chunk in self.chunks]
            behind = sum(2 * c * k for c, k in zip(prompts, cached, strict=False))
            found.append(float(sum(np.interp(prompts, self.chunks, squares))) + behind)
        return found + [float(context_sum)] * self.reads

    def cost(self, values: Sequence[float], batch: int, context: int) -> ProfiledCost:
        """Return the cost model: values in nanoseconds, a squared token, a token of context.

        ``batch`` and ``context`` are the sizes that the table of rounds covers; beyond them it is
        extrapolated along the same line.
        """
        rest = list(values[len(self.knots) :])
        square = rest.pop(0) if len(self.chunks) > 1 else 0.0
        corner = round(rest[0] * batch * context) if self.reads else 0
        times = tuple(round(value) for value in values[: len(self.knots)])
        behind = (0, self.chunks[-1]) if len(self.chunks) > 1 else (0,)  # exact between and beyond
        return ProfiledCost(
            fixed_ns=0,
            dense=Grid(GRIDS["dense"], (self.knots,), times),
            prefill=Grid(
                GRIDS["prefill"],
                (self.chunks, behind),
                tuple(round(square * c * (c + 2 * k)) for c in self.chunks for k in behind),
            ),
            decode=Grid(GRIDS["decode"], ((0,), (0, batch), (0, context)), (0, 0, 0, corner)),
        )


def _hats(knots: Sequence[int], x: int) -> list[float]:
    """Return the weights of the knots in the straight line at x, which they span."""
    found = [0.0] * len(knots)
    high = min(max(bisect_right(knots, x), 1), len(knots) - 1)
    if len(knots) == 1 or x <= knots[0]:
        found[0] = 1.0
        return found
    share = (x - knots[high - 1]) / (knots[high] - knots[high - 1])
    found[high - 1 : high + 1] = [1 - share, share]
    return found


def fit_profiled(work: Work) -> ProfiledCost:
    """Fit tables: knots at measured numbers of tokens, at least twice the one before, up to 8.

    All phases are fitted together, since they share the dense layers. A part of attention that
    the rows do not tell apart from the dense layers is left out, with a note.
    """
    rows = {phase: work.data.rows(phase) for phase in PHASES}
    for phase in (PREFILL, DECODE):
        work.rows(phase, [f"the table of {phase}"])
    steps = {phase: [_step(work, phase, row) for row in found] for phase, found in rows.items()}
    every = [step for found in steps.values() for step in found]
    basis = _basis(work, every)
    kept: list[IntColumn] = []
    designs: list[FloatArray] = []
    for phase, found in steps.items():
        if found:
            design = np.array([basis.row(*step) for step in found])
            part = work.take(phase, rows[phase], design)
            kept.append(rows[phase][part])
            designs.append(design[part])
    design, chosen = np.concatenate(designs), np.concatenate(kept)
    values = work.solve(basis.names, design, chosen)
    weights = work.weights(chosen)
    target = weights * work.data.column("duration_ns")[chosen]
    work.judge(basis.names, design * weights[:, None], target, values)
    plain = work.solve(basis.names, design, chosen, nonnegative=False)
    work.notes += [
        f"{name} would be negative: held to at least 0"
        for name, value in zip(basis.names, plain, strict=True)
        if value < 0
    ]
    batch = max(active for _, active, *_ in every)
    longest = int(work.data.column("context_max").max())
    return basis.cost(values, batch, max(1, longest))


def _step(work: Work, phase: str, row: int) -> tuple[list[int], int, int, list[int]]:
    """Return prompts, requests in the round, the sum of their contexts, and what is cached."""
    data = work.data
    context_sum = int(data.column("context_sum")[row])
    active = 0 if phase == PREFILL else int(data.column("count")[row])
    return data.prompts(row), active, context_sum, data.before(row)


def _basis(work: Work, steps: Sequence[tuple[list[int], int, int, list[int]]]) -> Basis:
    """Choose the knots, and leave out what the steps do not determine."""
    knots = _thinned(sorted({sum(prompts) + active for prompts, active, *_ in steps}))
    longest = max(max(prompts, default=0) for prompts, *_ in steps)
    chunks = [0, *(2**k for k in range(4, longest.bit_length()) if 2**k < longest), longest]
    numbers = np.array([row for phase in PHASES for row in work.data.rows(phase)], np.int64)

    def told(name: str, more: Basis) -> bool:
        try:
            work.solve(more.names, np.array([more.row(*step) for step in steps]), numbers)
        except InputError:
            work.notes.append(f"{name}: the measurements do not tell it from the dense layers")
            return False
        return True

    basis = Basis(knots, (0,), reads=False)
    if told("decode", more := replace(basis, reads=True)):
        basis = more
    if all(len(prompts) < 2 and not cached for prompts, _, _, cached in steps):
        # One prompt's square shows only in what lies between knots, which is too little.
        text = (
            "no stage over several prompts, or behind cached tokens, tells it from the dense layers"
        )
        work.notes.append(f"prefill: {text}")
    elif told("prefill", more := replace(basis, chunks=tuple(chunks))):
        basis = more
    return basis


def _thinned(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the first and the last size, and some between that grow by a factor."""
    first, last = sizes[0], sizes[-1]
    factor = max(2.0, (last / first) ** (1 / (MOST_KNOTS - 2)))
    knots = [first]
    for size in sizes[1:]:
        if size >= factor * knots[-1]:
            knots.append(size)
    if knots[-1] < last:
        if len(knots) > 1 and last < factor * knots[-1]:
            knots.pop()
        knots.append(last)
    return tuple(knots)
