"""Which term of the cost model was wrong: measured steps against what they hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.calibration.fit import FITS_CACHED, FITS_MIXED, fit
from orsched.calibration.least_squares import solve
from orsched.calibration.measurements import MIXED, Measurements
from orsched.calibration.observed import Observed, observed
from orsched.calibration.stages import PHASES
from orsched.common.errors import InputError
from orsched.costs.floor import floor_of
from orsched.data.schedule import DECODE, PREFILL
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.calibration.least_squares import FloatArray
    from orsched.calibration.stages import StepTimes
    from orsched.calibration.step_contents import StepContents
    from orsched.common.columns import IntColumn
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule

NEW_SHARE = 1e-3
"""A term whose column is nearer than this to those before it is left out: it cannot be told."""

MOST_ROWS = 20_000
"""Rows, about, that the cost model is fitted to."""

_DIGITS = 6  # of a nanosecond: below is noise of the solution


class Term(NamedTuple):
    """A term of the time of steps.

    Attributes:
        phase: of the steps.
        term: ``constant`` (a step, a round), ``tokens`` (prompt tokens), ``active`` (requests in a
            round) or ``context`` (tokens that are attended to).
        planned_ns: its coefficient in the cost model, as the executed steps show it; nanoseconds.
        measured_ns: its coefficient in the measured times, fitted together with the others.
        error_ns: what the difference adds up to over all steps.
        alone_ns: the best coefficient, at least 0, if the other terms are as planned.
        explains: share of the phase's squared error that this alone would remove.
    """

    phase: str
    term: str
    planned_ns: float
    measured_ns: float
    error_ns: int
    alone_ns: float
    explains: float


def error_terms(contents: StepContents, times: StepTimes) -> list[Term]:
    """Return the terms of each phase: both cost model and measured times fitted to the same ones.

    Weighted least squares, a run of rounds counting as that many measured means; coefficients of
    the measured times are at least 0. What the terms do not explain is the rest of the phase's
    error.
    """
    found: list[Term] = []
    parts = (contents.rounds, times.model_ns, times.took_ns)
    for phase, name in PHASES.items():
        rows = np.flatnonzero(contents.phase == phase)
        if len(rows) == 0:
            continue
        columns = _told_apart(_features(contents, phase, rows), contents.rounds[rows])
        found += _phase_terms(name, columns, *(part[rows] for part in parts))
    return found


def _phase_terms(
    phase: str,
    columns: dict[str, FloatArray],
    rounds: IntColumn,
    model_ns: IntColumn,
    took_ns: IntColumn,
) -> Iterator[Term]:
    weights = 1.0 / np.sqrt(rounds)
    design = np.stack(list(columns.values()), axis=1) * weights[:, None]
    planned, measured = (
        solve(design, weights * values, list(columns), nonnegative=least)
        for values, least in ((model_ns, False), (took_ns, True))
    )
    error = weights * (took_ns - model_ns)
    squared = float(error @ error)
    for index, (term, column) in enumerate(columns.items()):
        before, after = float(planned[index]), float(measured[index])
        own = design[:, index]
        along, size = float(own @ error), float(own @ own)
        change = max(along / size, -before)
        removed = (2 * along - change * size) * change
        yield Term(
            phase,
            term,
            round(before, _DIGITS) + 0.0,
            round(after, _DIGITS) + 0.0,
            round((after - before) * float(column.sum())),
            round(before + change, _DIGITS) + 0.0,
            max(0.0, removed / squared) if squared else 0.0,
        )


def _features(steps: StepContents, phase: int, rows: IntColumn) -> dict[str, FloatArray]:
    """Return what each term counts in some steps of a phase."""
    rounds, active = steps.rounds[rows], steps.active[rows]
    context = rounds * steps.context_sum[rows] + active * (rounds * (rounds - 1) // 2)
    found = {"constant": rounds}
    if phase != DECODE:
        found["tokens"] = steps.tokens[rows]
    if phase != PREFILL:
        found["active"] = rounds * active
    found["context"] = context + (0 if phase == DECODE else steps.attended[rows])
    return {name: column.astype(np.float64) for name, column in found.items()}


def _told_apart(columns: dict[str, FloatArray], rounds: IntColumn) -> dict[str, FloatArray]:
    """Return the columns that are not nearly combinations of those before them."""
    kept: dict[str, FloatArray] = {}
    basis: list[FloatArray] = []
    weights = 1.0 / np.sqrt(rounds)
    for name, column in columns.items():
        weighted = weights * column
        size = float(np.linalg.norm(weighted))
        rest = weighted / size if size else weighted
        for axis in basis:
            rest = rest - (rest @ axis) * axis
        share = float(np.linalg.norm(rest))
        if share > NEW_SHARE:
            kept[name] = column
            basis.append(rest / share)
    return kept


class Refit(NamedTuple):
    """The cost model fitted again to a run.

    Attributes:
        cost: the model; None where the run does not determine it, and ``reason`` says why.
        reason: a text, or None.
    """

    cost: CostModel | None
    reason: str | None


def refitted(instance: Instance, trace: Schedule, times: StepTimes) -> Refit:
    """Return the instance's cost model with the parameters that fit a run best.

    A run of rounds counts as often as it has rounds; the gap before a step counts to it.
    """
    cost = instance.workers[0].cost
    if any(worker.cost != cost for worker in instance.workers):
        return Refit(None, "the workers have different cost models")
    start = trace.steps.start_ns.copy()
    start[Timeline(instance, trace).order] -= times.gap_ns
    begun = trace.replace(steps=replace(trace.steps, start_ns=start))
    floor = floor_of(cost)
    levels = None if floor is None else floor.stage.levels
    caps = None if levels is None else [cap for cap, _ in levels]
    try:
        measured = _fitted_rows(_by_rounds(observed(instance, begun)), cost.model)
        found = fit(cost.model, measured, weighting="absolute", holdout=0, level_caps=caps)
    except InputError as error:
        return Refit(None, str(error))
    return Refit(found.cost, None)


def _by_rounds(steps: Observed) -> Measurements:
    """Return a row a round, or fewer in proportion: so sums of times are met."""
    rounds = steps.rounds
    repeats = np.maximum(1, rounds * MOST_ROWS // max(MOST_ROWS, int(rounds.sum())))
    rows = np.repeat(np.arange(len(rounds)), repeats)
    columns = (column[rows] for column in steps[1:])
    return Observed([steps.phase[row] for row in rows.tolist()], *columns).measurements()


def _fitted_rows(measured: Measurements, model: str) -> Measurements:
    """Return the rows that a model is fitted to: mixed steps and later chunks if it knows them."""
    cached = measured.column("cached")
    kept = [
        row
        for row, phase in enumerate(measured.phase)
        if (phase != MIXED or model in FITS_MIXED) and (not cached[row] or model in FITS_CACHED)
    ]
    columns = {name: [values[row] for row in kept] for name, values in measured.to_dict().items()}
    return Measurements.from_dict(columns)
