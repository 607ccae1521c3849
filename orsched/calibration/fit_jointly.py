"""Fits of the linear and the roofline model: least squares, with a grid's own time of a token.

A grid repeats single steps on a device that is cooler than in a run, where its clock is lower: the
same stage of 2,048 tokens took 40 ms in a grid and 52 ms in runs on an H100. So where measurements
tell rows of a run from rows of a grid, a grid's prompt tokens have a time of their own, which is
left behind.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration.measurements import DECODE, MIXED, PHASES, PREFILL
from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS
from orsched.costs.exact import FS_PER_NS
from orsched.costs.linear import LinearCost, attended_tokens
from orsched.costs.profiled import GRIDS, ProfiledCost
from orsched.costs.profiled_grid import Grid
from orsched.costs.roofline import RooflineCost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.calibration.least_squares import FloatArray, Work
    from orsched.common.columns import IntColumn


MOST_KNOTS = 8


@dataclass(frozen=True)
class Basis:
    """Tables of a profiled cost with few unknowns: the time of a step is linear in them.

    ``dense`` has one unknown a knot. Attention has at most one each: ``prefill`` grows with the
    square of a chunk (at the points ``chunks``, linear between) and, since each of its c tokens
    attends to k cached ones as well, with 2 c k; ``decode`` with the sum of the contexts, as
    reading every cache once does.
    """

    knots: tuple[int, ...]  # numbers of tokens, growing
    chunks: tuple[int, ...] = (0,)  # points of ``prefill`` from 0 on; (0,) leaves its unknown out
    reads: bool = True  # whether ``decode`` has its unknown

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


ROOFLINE_NAMES = ("fixed_fs", "row_fs", "token_fs", "context_fs", "longest_fs", "attended_fs")
BESIDE_NAMES = ("beside_request_fs", "beside_context_fs")
STAGE_NAMES = ("stage_fixed_fs", "stage_token_fs", "attended_fs")

KNEES = tuple(int(2 ** (half / 2)) for half in range(2, 25))
"""Numbers of tokens, 2 to 4,096, at which a step may begin to be bound by its tokens."""


def fit_linear(work: Work) -> LinearCost:
    """Fit stages, rounds, and what mixed steps take beside the parts of both.

    Raises ``InputError`` that names the coefficients that the rows do not determine.
    """
    count, total = (_column(work, DECODE, name) for name in ("count", "context_sum"))
    round_names = ("round_fixed_fs", "round_request_fs", "context_fs")
    rounds = work.linear(DECODE, round_names, np.stack([np.ones_like(count), count, total], axis=1))
    fixed, token, attended, slower = _stages(work)
    names = (*STAGE_NAMES, *round_names)
    found = zip(names, (fixed, token, attended, *rounds), strict=True)
    whole = {name: round(value * FS_PER_NS) for name, value in found}
    cost = LinearCost(**whole, mixed_fixed_fs=0, mixed_context_fs=0)
    rows = work.data.rows(MIXED)
    if len(rows) == 0:
        work.notes.append("no mixed measurement: such a step takes one fixed part less than both")
        return cost
    return _with_mixed(work, cost, rows, slower)


def _stages(work: Work) -> tuple[float, float, float, float]:
    """Return the fixed part, a token's, an attended one's, and what a token of a grid has less."""
    rows, run = _rows_and_runs(work, PREFILL, ("stage_fixed_fs", "stage_token_fs"))
    tokens = _column(work, PREFILL, "tokens")
    attended = _attended(work, rows)
    columns = {"stage_fixed_fs": np.ones_like(tokens), "stage_token_fs": tokens}
    if (run > 0).any() and (run == 0).any():
        columns["stage_token_fs"] = np.where(run > 0, tokens, 0.0)
        columns["a grid's stage_token_fs"] = np.where(run > 0, 0.0, tokens)
    columns["attended_fs"] = attended
    columns = _determined(work, rows, columns)
    design = np.stack(list(columns.values()), axis=1)
    found = dict(zip(columns, work.linear(PREFILL, tuple(columns), design), strict=True))
    token = found["stage_token_fs"]
    slower = token - found.get("a grid's stage_token_fs", token)
    return found["stage_fixed_fs"], token, found.get("attended_fs", 0.0), slower


def _determined(
    work: Work, rows: IntColumn, columns: dict[str, FloatArray]
) -> dict[str, FloatArray]:
    """Return the columns without ``attended_fs``, with a note, where the rows do not tell it."""
    try:
        work.solve(tuple(columns), np.stack(list(columns.values()), axis=1), rows)
    except InputError:
        rest = {name: column for name, column in columns.items() if name != "attended_fs"}
        work.notes.append("attended_fs: the measurements do not tell it from the other parts")
        return rest
    return columns


def _with_mixed(work: Work, cost: LinearCost, rows: IntColumn, slower: float) -> LinearCost:
    """Fit what mixed steps take beside their stage and round, without one fixed part."""
    data = work.data
    total = data.column("context_sum")[rows].astype(np.float64)
    run = data.column("run")[rows]
    design = np.stack([np.ones_like(total), total], axis=1)
    kept = work.take(MIXED, rows, design)
    base = np.array([data.predicted_ns(cost, row) for row in rows.tolist()], np.float64)
    base -= np.where(run > 0, 0.0, slower * data.column("tokens")[rows])
    weights = work.weights(rows)[kept]
    target = weights * (data.column("duration_ns")[rows] - base)[kept]
    names = ("mixed_fixed_fs", "mixed_context_fs")
    weighted = design[kept] * weights[:, None]
    found = work.least(names, weighted, target, nonnegative=True)
    work.judge(names, weighted, target, found, nonnegative=True)
    fixed, context = (round(value * FS_PER_NS) for value in found)
    values = cost.to_dict() | {"mixed_fixed_fs": fixed, "mixed_context_fs": context}
    return LinearCost.from_dict(values)


ROBUST = 0.02
"""Share by which a row may be missed; beyond it a miss counts in proportion, not by its square: a
stage that the host delays, or whose kernels it launches one by one, is not the device's time."""

LAUNCHED = 256  # tokens up to which launching a step's kernels may take longer than they do
TURNS = 6  # of weighing rows by what the fit before has missed them by


def fit_roofline(work: Work) -> RooflineCost:
    """Fit the roofline: rounds and stages together, then what rounds beside prompts take more.

    At a knee of k tokens the weights take as long as k tokens, ``max(weights, token x)`` is
    ``token max(k, x)``, and the model is linear in what is left: least squares for each knee, and
    the best knee. Where there are stages of runs, those of a grid have a fixed part and a token's
    time of their own (see above), and say what attended tokens take. The launch is the shortest of
    the small stages: what else the host does only makes them longer.

    Raises ``InputError`` that names the coefficients that the rows do not determine.
    """
    for phase in (PREFILL, DECODE):
        work.rows(phase, ["weights_fs", "token_fs"])
    steps, best = _weighed(work)
    steps.judge(work, best)
    named = {name: best.values.get(name, 0.0) for name in ROOFLINE_NAMES}
    named["weights_fs"] = best.knee * named["token_fs"]
    whole: dict[str, Any] = {name: round(value * FS_PER_NS) for name, value in named.items()}
    cost = RooflineCost(**whole)
    shortest = _shortest_ns(work, PREFILL)
    if shortest > cost.prefill_ns([1]):
        cost = replace(cost, launch_fs=shortest * FS_PER_NS)
    return _with_beside(work, cost)


def _shortest_ns(work: Work, phase: str) -> int:
    """Return the shortest of a phase's steps of up to ``LAUNCHED`` tokens; 0 without any."""
    rows = work.data.rows(phase)
    small = rows[_all_tokens(work, phase, rows) <= LAUNCHED]
    return int(work.data.column("duration_ns")[small].min(initial=MAX_TIME_NS)) if len(small) else 0


def _weighed(work: Work) -> tuple[_Steps, _Found]:
    """Return rounds and stages, and the fit to them.

    Rows that it misses count less, unless sums of seconds are to be met.
    """
    parts = [_fitted_steps(work, phase) for phase in (PREFILL, DECODE)]
    steps = plain = _Steps(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    best = _best_knee(work, steps)
    for _ in range(TURNS if work.weighting == "relative" else 0):
        factor = (1 + (plain.misses(best) / (ROBUST * plain.target)) ** 2) ** -0.25
        steps = plain._replace(weights=plain.weights * factor, target=plain.target * factor)
        best = _best_knee(work, steps)
    return steps, best


def _with_beside(work: Work, cost: RooflineCost) -> RooflineCost:
    """Fit what a request and a token of context of a round take more beside prompts."""
    data, rows = work.data, work.data.rows(MIXED)
    if len(rows) == 0:
        work.notes.append("no mixed measurement: a round takes no more beside prompts than alone")
        return cost
    design = np.stack([data.column(name)[rows] for name in ("count", "context_sum")], axis=1)
    kept = work.take(MIXED, rows, design.astype(np.float64))
    base = np.array([data.predicted_ns(cost, row) for row in rows[kept].tolist()], np.float64)
    weights = work.weights(rows[kept])
    target = weights * (data.column("duration_ns")[rows[kept]] - base)
    weighted = design[kept] * weights[:, None]
    try:
        found = work.least(BESIDE_NAMES, weighted, target, nonnegative=True)
    except InputError:
        work.notes.append("the mixed measurements do not determine what a round takes more there")
        return cost
    work.judge(BESIDE_NAMES, weighted, target, found, nonnegative=True)
    named: dict[str, Any] = {
        name: round(value * FS_PER_NS) for name, value in zip(BESIDE_NAMES, found, strict=True)
    }
    launch = _shortest_ns(work, MIXED) * FS_PER_NS
    return replace(cost, **named, beside_launch_fs=launch if launch > cost.launch_fs else 0)


def _fitted_steps(work: Work, phase: str) -> _Steps:
    """Return the steps of a phase, without those that are held out."""
    rows, run = _rows_and_runs(work, phase, ())
    apart = (run == 0) & (run > 0).any() & (phase == PREFILL)
    x = _all_tokens(work, phase, rows)
    contexts = [work.data.column(name)[rows] for name in ("context_sum", "context_max")]
    more = np.stack([*contexts, _attended(work, rows)], axis=1).astype(np.float64)
    kept = work.take(phase, rows, np.column_stack([np.ones_like(x), x, more]))
    weights = work.weights(rows[kept])
    target = weights * work.data.column("duration_ns")[rows[kept]]
    return _Steps(x[kept], more[kept], apart[kept], weights, target)


def _best_knee(work: Work, steps: _Steps) -> _Found:
    """Return the best of the known knees, or of those near it; raises as ``work.least``."""
    best: _Found | None = None
    problem: InputError | None = None
    for knee in KNEES:
        try:
            found = steps.at(work, knee)
        except InputError as error:
            problem = error
            continue
        best = found if best is None or found.squared < best.squared else best
    if best is None:
        assert problem is not None
        raise problem
    for width in (4, 8, 16, 32, 64, 128, 256):
        for near in (best.knee * 2 ** (1 / width), best.knee / 2 ** (1 / width)):
            with suppress(InputError):
                best = min(best, steps.at(work, near), key=lambda each: each.squared)
    return best


class _Found(NamedTuple):
    """The least squares at a knee: the error, and the coefficients in nanoseconds."""

    squared: float
    knee: float
    values: dict[str, float]  # by name; without those that the rows do not determine


class _Steps(NamedTuple):
    """Steps that a roofline is fitted to, by row."""

    x: FloatArray  # tokens through the layers
    more: FloatArray  # contexts that are read, the longest of them, and attended tokens
    apart: NDArray[np.bool_]  # stages of a grid beside those of runs
    weights: FloatArray  # of the residuals
    target: FloatArray  # what is to be met, weighted

    def at(self, work: Work, knee: float) -> _Found:
        """Return the least squares at a knee; raises as ``work.least``.

        A longest context and a token below the knee are left out where the rows do not tell them
        from the other parts.
        """
        columns = self.columns(knee)
        for left in ((), ("longest_fs",), ("row_fs",), ("row_fs", "longest_fs")):
            names = [name for name in columns if name not in left]
            design = np.stack([columns[name] for name in names], axis=1)
            try:
                values = work.least(names, design, self.target, nonnegative=True)
            except InputError as error:
                problem = error
                continue
            misses = design @ values - self.target
            named = dict(zip(names, values, strict=True))
            return _Found(float(misses @ misses), knee, named)
        raise problem

    def misses(self, found: _Found) -> FloatArray:
        """Return by how much the fit at a knee is above what is to be met, weighted."""
        columns, total = self.columns(found.knee), -self.target
        for name, value in found.values.items():
            total = total + value * columns[name]
        return total

    def judge(self, work: Work, found: _Found) -> None:
        """Say how firm the coefficients are at this knee, which counts as known."""
        columns = self.columns(found.knee)
        design = np.stack([columns[name] for name in found.values], axis=1)
        values = list(found.values.values())
        work.judge(list(found.values), design, self.target, values, nonnegative=True)

    def columns(self, knee: float) -> dict[str, FloatArray]:
        """Return what each coefficient counts for, weighted."""
        one, larger = np.ones_like(self.x), np.maximum(knee, self.x)
        grid = self.apart.astype(np.float64)
        own = one - grid
        found: dict[str, FloatArray] = {
            "fixed_fs": own * one,
            "row_fs": own * self.x,
            "token_fs": own * larger,
        }
        found |= zip(("context_fs", "longest_fs", "attended_fs"), self.more.T, strict=True)
        if grid.any():
            found |= {"a grid's fixed_fs": grid * one, "a grid's token_fs": grid * larger}
        return {name: self.weights * column for name, column in found.items()}


def _rows_and_runs(work: Work, phase: str, names: tuple[str, ...]) -> tuple[IntColumn, IntColumn]:
    rows = work.rows(phase, names) if names else work.data.rows(phase)
    return rows, work.data.column("run")[rows]


def _column(work: Work, phase: str, name: str) -> FloatArray:
    column: FloatArray = work.data.column(name)[work.data.rows(phase)].astype(np.float64)
    return column


def _all_tokens(work: Work, phase: str, rows: IntColumn) -> FloatArray:
    """Return the tokens that go through the layers."""
    tokens, count = (work.data.column(name)[rows] for name in ("tokens", "count"))
    found: FloatArray = (tokens + (0 if phase == PREFILL else count)).astype(np.float64)
    return found


def _attended(work: Work, rows: IntColumn) -> FloatArray:
    data = work.data
    found = [attended_tokens(data.prompts(row), data.before(row)) for row in rows.tolist()]
    return np.array(found, np.float64)
