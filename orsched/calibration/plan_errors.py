"""Plan against run: how far the times were off, in which stages, and by which term."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.calibration.fit import FITS_CACHED, FITS_MIXED, fit
from orsched.calibration.least_squares import solve
from orsched.calibration.measurements import MIXED, Measurements
from orsched.calibration.observed import Observed, observed, step_contents
from orsched.calibration.runs import (
    PHASES,
    Stages,
    StepTimes,
    matches,
    modelled_ns,
    stages_of,
    step_times,
)
from orsched.common.errors import InputError
from orsched.costs.floor import floor_of
from orsched.data.schedule import DECODE, PREFILL, require_same_instance
from orsched.metrics.flat_figures import ratio
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.calibration.least_squares import FloatArray
    from orsched.calibration.observed import StepContents
    from orsched.common.columns import IntColumn
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


NEW_SHARE = 1e-3
"""A term whose column is nearer than this to those before it is left out: it cannot be told."""

MOST_ROWS = 20_000  # rows, about, that the cost model is fitted to

_DIGITS = 6  # of a nanosecond: below is noise of the solution


class Term(NamedTuple):
    """A term of the time of steps.

    ``term`` is ``constant`` (a step, a round), ``tokens`` (prompt tokens), ``active`` (requests in
    a round) or ``context`` (tokens that are attended to).
    """

    phase: str  # of the steps
    term: str
    planned_ns: float  # its coefficient in the cost model, as the executed steps show it
    measured_ns: float  # its coefficient in the measured times, fitted together with the others
    error_ns: int  # what the difference adds up to over all steps
    alone_ns: float  # the best coefficient, at least 0, if the other terms are as planned
    explains: float  # share of the phase's squared error that this alone would remove


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
    """The cost model fitted again to a run."""

    cost: CostModel | None  # None where the run does not determine it
    reason: str | None  # why there is none


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


class PhaseError(NamedTuple):
    """The stages of a phase, or all of them."""

    phase: str  # ``prefill``, ``mixed``, ``decode``, or ``all``
    stages: int
    rounds: int
    planned_ns: int  # a sum
    took_ns: int  # a sum, gaps before the steps included
    gap_ns: int  # these gaps
    error: float | None  # (took - planned) / planned
    mean: float | None  # of the absolute relative errors of single stages, as the next two
    p95: float | None
    worst: float | None


@dataclass(frozen=True)
class PlanAgainstRun:
    """What ``plan_against_run`` returns.

    Attributes:
        plan_makespan_ns, run_makespan_ns: the makespans.
        parts: what the difference of the two adds up from, in nanoseconds: the errors of each
            phase, ``decisions`` (other steps than planned) and ``waiting`` (idle time that no gap
            between steps explains).
        stages: those of the run.
        planned_ns: what was planned of each: by the plan where it has the stage, else by the cost
            model.
        planned_start_ns: when it was to start; -1 where the plan does not have it.
        phases: errors by phase, then of all.
        terms: the share of each term of the cost model in the errors.
        cost: the cost model of the instance's first worker.
        refit: the same model fitted to the run.
        refit_error: relative error of the sum of all steps under the refit.
        has_plan: whether there was a plan; else planned times are the cost model's alone.
    """

    plan_makespan_ns: int
    run_makespan_ns: int
    parts: dict[str, int]
    stages: Stages
    planned_ns: IntColumn
    planned_start_ns: IntColumn
    phases: tuple[PhaseError, ...]
    terms: tuple[Term, ...]
    cost: dict[str, Any]
    refit: Refit
    refit_error: float | None
    has_plan: bool = True

    @property
    def makespan_error(self) -> float | None:
        """(run - plan) / plan."""
        return ratio(self.run_makespan_ns - self.plan_makespan_ns, self.plan_makespan_ns)

    @property
    def followed(self) -> int:
        """How many stages of the run the plan has at the same place."""
        return int((self.planned_start_ns >= 0).sum())

    @property
    def worst_term(self) -> Term | None:
        """Of the phase whose sum is off most, the term that explains most; None without errors."""
        off = {row.phase: abs(row.took_ns - row.planned_ns) for row in self.phases}
        phase = max(PHASES.values(), key=lambda name: off.get(name, 0))
        terms = [term for term in self.terms if term.phase == phase and off[phase]]
        return max(terms, key=lambda term: term.explains, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the stages as plain JSON values."""
        refit = self.refit.cost
        return {
            "plan_makespan_ns": self.plan_makespan_ns,
            "run_makespan_ns": self.run_makespan_ns,
            "makespan_error": self.makespan_error,
            "parts_ns": self.parts,
            "stages": len(self.stages.worker),
            "stages_as_planned": self.followed,
            "phases": [row._asdict() for row in self.phases],
            "terms": [term._asdict() for term in self.terms],
            "cost": self.cost,
            "refit": None if refit is None else {"model": refit.model, **refit.to_dict()},
            "refit_reason": self.refit.reason,
            "refit_error": self.refit_error,
        }

    def stage_rows(self) -> list[dict[str, Any]]:
        """Return one row a stage: what it held, what was planned, what it took."""
        stages, rows = self.stages, []
        names = ("worker", "phase", "start_ns", "end_ns", "rounds", "requests", "tokens")
        columns = [getattr(stages, name).tolist() for name in (*names, "took_ns", "gap_ns")]
        planned = zip(self.planned_ns.tolist(), self.planned_start_ns.tolist(), strict=True)
        for values, (expected, start) in zip(zip(*columns, strict=True), planned, strict=True):
            row = dict(zip((*names, "took_ns", "gap_ns"), values, strict=True))
            row["phase"] = PHASES[row["phase"]]
            row["planned_ns"] = expected
            row["planned_start_ns"] = None if start < 0 else start
            row["error"] = ratio(row["took_ns"] - expected, expected)
            rows.append(row)
        return rows


def plan_against_run(instance: Instance, plan: Schedule | None, trace: Schedule) -> PlanAgainstRun:
    """Compare a run with its plan, stage by stage.

    The k-th stage of a worker is compared with its k-th in the plan if they have the same content,
    all others with the times of the cost model. The time of a stage includes the gaps before its
    steps, so that these errors, other decisions and other waiting add up to the error of the
    makespan, exactly: of the worker that ends last.

    Args:
        instance: of both.
        plan: a schedule; None: planned times are the cost model's alone.
        trace: the run.

    Raises:
        InputError: one of them is of another instance.
    """
    for schedule in (trace, *([] if plan is None else [plan])):
        require_same_instance(instance, schedule)
    line, run = Timeline(instance, trace), stages_of(instance, trace)
    planned, starts = run.model_ns.copy(), np.full(len(run.worker), -1, np.int64)
    expected = None if plan is None else stages_of(instance, plan)
    if expected is not None:
        found = matches(expected, run)
        same = np.flatnonzero(found >= 0)
        planned[same] = expected.took_ns[found[same]]
        starts[same] = expected.start_ns[found[same]]
    times = step_times(instance, line)
    if expected is not None and expected.gap_ns.any():  # its policy waits on purpose
        times = StepTimes(times.model_ns, times.took_ns - times.gap_ns, np.zeros_like(times.gap_ns))
    parts = _parts(run, planned, expected, trace, plan)
    refit = refitted(instance, trace, times)
    return PlanAgainstRun(
        trace.makespan_ns - sum(parts.values()),
        trace.makespan_ns,
        parts,
        run,
        planned,
        starts,
        tuple(_phases(run, planned)),
        tuple(error_terms(step_contents(instance, trace), times)),
        {"model": instance.workers[0].cost.model, **instance.workers[0].cost.to_dict()},
        refit,
        _refit_error(instance, line, times, refit),
        plan is not None,
    )


def _parts(
    run: Stages, planned: IntColumn, expected: Stages | None, trace: Schedule, plan: Schedule | None
) -> dict[str, int]:
    """Return what the difference of the makespans adds up from, on the workers that end last."""
    mine = run.worker == _last_worker(run)
    parts = {
        name: int((run.took_ns - planned)[mine & (run.phase == phase)].sum())
        for phase, name in PHASES.items()
    }
    if expected is None or plan is None:
        return {**parts, "decisions": 0, "waiting": 0}
    in_plan = int(expected.took_ns[expected.worker == _last_worker(expected)].sum())
    parts["decisions"] = int(planned[mine].sum()) - in_plan
    waited = trace.makespan_ns - int(run.took_ns[mine].sum())
    return {**parts, "waiting": waited - (plan.makespan_ns - in_plan)}


def _last_worker(stages: Stages) -> int:
    return int(stages.worker[np.argmax(stages.end_ns)]) if len(stages.worker) else 0


def _phases(run: Stages, planned: IntColumn) -> Iterator[PhaseError]:
    every = np.ones(len(run.worker), bool)
    for name, rows in (*((n, run.phase == p) for p, n in PHASES.items()), ("all", every)):
        expected, took = planned[rows], run.took_ns[rows]
        if not rows.any() and name != "all":
            continue
        total, most = int(expected.sum()), expected > 0
        errors = np.abs(took - expected)[most] / expected[most]
        ordered = np.sort(errors)
        n = len(ordered)
        yield PhaseError(
            phase=name,
            stages=int(rows.sum()),
            rounds=int(run.rounds[rows].sum()),
            planned_ns=total,
            took_ns=int(took.sum()),
            gap_ns=int(run.gap_ns[rows].sum()),
            error=ratio(int(took.sum()) - total, total),
            mean=float(errors.sum()) / n if n else None,
            p95=float(ordered[-(-95 * n // 100) - 1]) if n else None,
            worst=float(ordered[-1]) if n else None,
        )


def _refit_error(
    instance: Instance, line: Timeline, times: StepTimes, refit: Refit
) -> float | None:
    """Return how far the sum of the executed steps is off under the refitted model."""
    if refit.cost is None:
        return None
    workers = tuple(replace(worker, cost=refit.cost) for worker in instance.workers)
    try:
        again = int(modelled_ns(instance.replace(workers=workers), line).sum())
    except InputError:  # steps that the refitted model has no time for
        return None
    took = int(times.took_ns.sum())
    return ratio(took - again, again)
