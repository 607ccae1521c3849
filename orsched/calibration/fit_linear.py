"""Fits of the linear and the roofline model: least squares, with a grid's own time of a token.

A grid repeats single steps on a device that is cooler than in a run, where its clock is lower: the
same stage of 2,048 tokens took 40 ms in a grid and 52 ms in runs on an H100. So where measurements
tell rows of a run from rows of a grid, a grid's prompt tokens have a time of their own, which is
left behind.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.calibration.measurements import DECODE, MIXED, PHASES, PREFILL
from orsched.common.errors import InputError
from orsched.costs.exact import FS_PER_NS
from orsched.costs.linear import LinearCost, attended_tokens
from orsched.costs.roofline import COEFFICIENTS, RooflineCost

if TYPE_CHECKING:
    from orsched.calibration.fit_work import Work
    from orsched.calibration.least_squares import FloatArray
    from orsched.common.columns import IntColumn

ROOFLINE_NAMES = ("fixed_fs", "token_fs", "context_fs", "attended_fs")
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


def fit_roofline(work: Work) -> RooflineCost:
    """Fit the roofline to all phases together: least squares for each knee, and the best knee.

    At a knee of k tokens the weights take as long as k tokens, ``max(weights, token x)`` is
    ``token max(k, x)``, and the model is linear in what is left. What lies above the knee takes
    less in a grid (see above).

    Raises ``InputError`` that names the coefficients that the rows do not determine.
    """
    for phase in (PREFILL, DECODE):
        work.rows(phase, ["weights_fs", "token_fs"])
    parts = [_fitted_steps(work, phase) for phase in PHASES if len(work.data.rows(phase))]
    steps = _Steps(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    best = _best_knee(work, steps)
    steps.judge(work, best)
    fixed, token, context, attended = best.values[:4]
    values = (fixed, token * best.knee, token, context, attended)
    named = zip(COEFFICIENTS, values, strict=True)
    return RooflineCost(**{name: round(value * FS_PER_NS) for name, value in named})


def _fitted_steps(work: Work, phase: str) -> _Steps:
    """Return the steps of a phase, without those that are held out."""
    rows, run = _rows_and_runs(work, phase, ())
    x = _all_tokens(work, phase, rows)
    contexts = work.data.column("context_sum")[rows].astype(float)
    more = np.stack([contexts, _attended(work, rows)], axis=1)
    kept = work.take(phase, rows, np.column_stack([np.ones_like(x), x, more]))
    weights = work.weights(rows[kept])
    target = weights * work.data.column("duration_ns")[rows[kept]]
    return _Steps(x[kept], more[kept], run[kept], weights, target)


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
    for width in (4, 8, 16, 32, 64):
        for near in (best.knee * 2 ** (1 / width), best.knee / 2 ** (1 / width)):
            with suppress(InputError):
                best = min(best, steps.at(work, near), key=lambda each: each.squared)
    return best


class _Found(NamedTuple):
    """The least squares at a knee: the error, and the coefficients in nanoseconds."""

    squared: float
    knee: float
    values: list[float]


class _Steps(NamedTuple):
    """Steps that a roofline is fitted to, by row.

    Attributes:
        x: tokens through the layers.
        more: tokens of context that are read, and attended ones.
        run: 0 for rows of a grid.
        weights, target: of the residuals, and what is to be met, weighted.
    """

    x: FloatArray
    more: FloatArray
    run: IntColumn
    weights: FloatArray
    target: FloatArray

    def at(self, work: Work, knee: float) -> _Found:
        """Return the least squares at a knee; raises as ``work.least``."""
        design = self._design(knee)
        values = _slower_in_runs(work, list(ROOFLINE_NAMES), design, self.target)
        misses = design[:, : len(values)] @ values - self.target
        return _Found(float(misses @ misses), knee, values)

    def judge(self, work: Work, found: _Found) -> None:
        """Say how firm the coefficients are at this knee, which counts as known."""
        design = self._design(found.knee)[:, : len(found.values)]
        names = [*ROOFLINE_NAMES, "a grid's token_fs"][: len(found.values)]
        turned = np.array([-1.0 if name.startswith("a grid") else 1.0 for name in names])
        values = (np.array(found.values) * turned).tolist()
        work.judge(names, design * turned, self.target, values, nonnegative=True)

    def _design(self, knee: float) -> FloatArray:
        columns = [np.ones_like(self.x), np.maximum(knee, self.x), *self.more.T]
        if (self.run > 0).any() and (self.run == 0).any():
            columns.append(np.where(self.run > 0, 0.0, np.maximum(0.0, self.x - knee)))
        weighted: FloatArray = np.stack(columns, axis=1) * self.weights[:, None]
        return weighted


def _slower_in_runs(
    work: Work, names: list[str], design: FloatArray, target: FloatArray
) -> list[float]:
    """Solve with coefficients of at least 0, but for the last one, a grid's: at most 0."""
    if design.shape[1] == len(names):
        return work.least(names, design, target, nonnegative=True)
    turned = design.copy()
    turned[:, -1] *= -1
    if not turned[:, -1].any():
        return work.least(names, design[:, :-1], target, nonnegative=True)
    found = work.least([*names, "a grid's token_fs"], turned, target, nonnegative=True)
    found[-1] *= -1
    return found


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
