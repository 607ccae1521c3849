"""Every cost model fitted to one set of measurements, and judged by points it was not fitted to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.calibration.fit import FITS_CACHED, Fit, fit
from orsched.calibration.measurements import DECODE, MIXED, PHASES, PREFILL, Measurements
from orsched.common.errors import InputError, OrschedError
from orsched.costs import mixed_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.costs import CostModel

MODELS = ("affine", "levels", "bilinear", "pooling", "profiled", "linear", "roofline")
"""The cost models that can be fitted."""

SIMPLEST_FIRST = ("affine", "levels", "roofline", "linear", "bilinear", "pooling", "profiled")
"""Of models that are as good but for noise, the first: so repeats choose the same."""

NOISE = 0.1  # share by which scores of repeats on one device differ
EVERY = 4  # one of this many points is held out

MOST_LEVELS = 8


@dataclass(frozen=True)
class Candidate:
    """A cost model fitted to the points that were not held out.

    Errors are absolute relative ones on the points held out, by phase and over ``all`` of prefill
    and decode: ``points``, ``mean``, ``p95``, ``worst``; and ``run``: by how much the sums over the
    steps of a run that were held out are missed, by phase (over those of the grid in phases that no
    run has), ``rehearsed``: the phases that it has, and the ``score`` to choose by. Constants are
    by name, with standard error and 95 % interval; none for levels.
    """

    model: str
    cost: CostModel | None  # None where the points do not suffice
    errors: dict[str, dict[str, Any]]
    notes: tuple[str, ...] = ()  # noticed while fitting, or why there is no model
    constants: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def missed(self) -> tuple[str, float]:
        """The phase of the rehearsal whose sum is missed most, and by which signed share.

        Without a rehearsal no phase, and 0.
        """
        run = self.errors.get("run", {})
        phases = ((name, float(run[name])) for name in run.get("rehearsed", ()))
        return max(phases, key=lambda each: abs(each[1]), default=("", 0.0))


MISSED = 0.1
"""Share of its own rehearsal by which a model that is handed out may be off, in each phase."""


@dataclass(frozen=True)
class Calibration:
    """All candidates, and which points they were fitted to."""

    candidates: tuple[Candidate, ...]  # in the order of ``MODELS``
    fitted: IntColumn  # rows of the measurements
    held: IntColumn  # rows of the measurements
    measurements: Measurements | None = None
    weighting: str = "relative"

    def candidate(self, model: str = "best") -> Candidate:
        """Return a candidate by name, or the best: the one with the least score.

        The score is the mean over the phases of half the error of a run's sum and half the mean
        error of its steps, all held out. A phase that the run does not have, judged by the grid's
        steps, counts half: they are not at the speed of a run. Of those that are within ``NOISE``
        of the least the simplest is taken, so that the choice stays with repeats on the same
        device. A model that misses its rehearsal by more than ``MISSED`` is taken only if all do.
        """
        able = [c for c in self.candidates if c.cost is not None]
        able = [c for c in able if abs(c.missed[1]) <= MISSED] or able
        if model == "best":
            if not able:
                raise InputError(
                    f"no cost model could be fitted: {self.candidates[0].notes[0]}",
                    field="measurements",
                    remedy="measure more steps of different sizes",
                )
            least = min(c.errors["run"]["score"] for c in able)
            close = [c for c in able if c.errors["run"]["score"] <= least * (1 + NOISE) + 1e-4]
            return min(close, key=lambda c: SIMPLEST_FIRST.index(c.model))
        for found in self.candidates:
            if found.model == model:
                if found.cost is None:
                    raise InputError(
                        found.notes[0],
                        field=model,
                        remedy="measure more steps of different sizes, or fit another model",
                    )
                return found
        raise InputError(
            f"no fit for {model!r}", field="model", remedy=f"best, {', '.join(MODELS)}"
        )

    def whole(self, model: str = "best") -> Candidate:
        """Return a candidate with its model fitted to all points, those held out included.

        The choice and the errors stay those of the points held out.
        """
        chosen = self.candidate(model)
        if self.measurements is None:
            return chosen
        found = _fit(chosen.model, self.measurements, self.weighting)
        notes = tuple(found.report["warnings"])
        return replace(chosen, cost=found.cost, notes=notes, constants=found.report["constants"])

    def report(self, model: str = "best") -> dict[str, Any]:
        """Return the report of a candidate's fit to all points, as it is in a cost-model file."""
        chosen = self.whole(model)
        return {
            "model": chosen.model,
            "fitted": len(self.fitted),
            "held_out": len(self.held),
            "errors": chosen.errors,
            "constants": chosen.constants,
            "warnings": list(chosen.notes),
            "others": {
                c.model: c.errors["all"] if c.cost is not None else c.notes[0]
                for c in self.candidates
                if c.model != chosen.model
            },
        }


def calibrate(
    measurements: Measurements, models: Sequence[str] = MODELS, weighting: str = "relative"
) -> Calibration:
    """Fit cost models to three of four points, and score them on the others.

    All models see the same points but for what a model cannot take: affine, levels and bilinear are
    not fitted to mixed steps, and the pooling model to no stages of unequal prompts. They are
    scored on mixed steps all the same, as ``orsched.costs.mixed_ns`` has them. Where rows are of
    several runs, none of the last one is fitted to. ``weighting`` is that of
    ``calibration.fit.fit``: relative for a grid of single steps, whose sizes are not as frequent as
    in a run; seconds for steps of runs. Raises ``InputError``: an unknown model, or a phase with
    too few points to hold any out.
    """
    measurements = with_runs(measurements)
    fitted, held = interleaved(measurements)
    train, test = select(measurements, fitted), select(measurements, held)
    candidates = tuple(_candidate(model, train, test, weighting) for model in models)
    return Calibration(candidates, fitted, held, measurements, weighting)


def interleaved(measurements: Measurements) -> tuple[IntColumn, IntColumn]:
    """Return the rows to fit to, and those held out: every fourth of each phase, by size.

    The smallest and the largest are never held out, so that no model is asked beyond its points.
    Where there are several runs, all of the last one is held out beside them.
    """
    run = measurements.column("run")
    last = int(run.max(initial=0))
    held = np.flatnonzero(run == last).tolist() if last > 1 else []
    for phase in PHASES:
        rows = measurements.rows(phase)
        rows = rows[(run[rows] < last) | (last < 2)]
        if phase != MIXED and len(rows) <= EVERY:
            raise InputError(
                f"{len(rows)} {phase} measurements", field="phase", remedy=f"at least {EVERY + 1}"
            )
        names = ("longest", "tokens", "context_max", "context_sum", "count")
        order = rows[np.lexsort([measurements.column(name)[rows] for name in names])]
        held += order[EVERY // 2 : -1 : EVERY].tolist()
    kept = np.ones(len(measurements), bool)
    kept[held] = False
    return np.flatnonzero(kept), np.array(sorted(held), np.int64)


def with_runs(measurements: Measurements) -> Measurements:
    """Return measurements that say which rows are of a run, also those of files that do not.

    Files of older versions have a grid, whose mixed steps come last, and behind it a run.
    """
    mixed = measurements.rows(MIXED)
    if measurements.column("run").any() or not len(mixed):
        return measurements
    run = (np.arange(len(measurements)) > mixed[-1]).astype(np.int64)
    kinds = {measurements.phase[row] for row in np.flatnonzero(run).tolist()}
    return replace(measurements, run=run) if {PREFILL, DECODE} <= kinds else measurements


def select(measurements: Measurements, rows: IntColumn) -> Measurements:
    """Return some rows of measurements."""
    columns = measurements.to_dict()
    return Measurements(**{name: [column[i] for i in rows] for name, column in columns.items()})


def joined(*parts: Measurements) -> Measurements:
    """Return the rows of several measurements one after the other."""
    tables = [part.to_dict() for part in parts]
    return Measurements(**{name: list(chain(*(t[name] for t in tables))) for name in tables[0]})


def anchored(grid: Measurements, run: Measurements) -> tuple[Measurements, dict[str, float]]:
    """Return a grid with its times multiplied, phase by phase, until they agree with a run.

    A step of a grid finds the worker as the same step left it; in a run others came between, and
    decisions. What of a run's time the best fit to the grid says, and what it took, gives the
    factor. Steps of the run that are averages of equally long times (``averaged``) count equally.

    Also returns the factors by phase; mixed steps have that of rounds. Raises as ``calibrate``.
    """
    cost = calibrate(grid).candidate().cost
    assert cost is not None
    true, factors = run.column("duration_ns"), {}
    for phase in (PREFILL, DECODE):
        shares = [predicted_ns(cost, run, row) / int(true[row]) for row in run.rows(phase)]
        factors[phase] = len(shares) / math.fsum(shares) if math.fsum(shares) else 1.0
    factors[MIXED] = factors[DECODE]
    columns = grid.to_dict()
    columns["duration_ns"] = [
        max(1, round(time * factors[phase]))
        for time, phase in zip(columns["duration_ns"], columns["phase"], strict=True)
    ]
    return Measurements(**columns), factors


def predicted_ns(cost: CostModel, data: Measurements, row: int) -> int:
    """Return the duration that a cost model gives to a measured step: any model, any phase."""
    active = int(data.column("count")[row]) if data.phase[row] != PREFILL else 0
    total, longest = (int(data.column(name)[row]) for name in ("context_sum", "context_max"))
    return mixed_ns(cost, data.prompts(row), active, total, longest, data.before(row))


def _fit(model: str, rows: Measurements, weighting: str) -> Fit:
    options: dict[str, Any] = {"holdout": 0, "weighting": weighting}
    if model == "levels":
        options |= {"level_caps": level_caps(rows), "quantile": 0.5}
    return fit(model, _usable(model, rows), **options)


def _candidate(model: str, train: Measurements, test: Measurements, weighting: str) -> Candidate:
    try:
        found = _fit(model, train, weighting)
        errors = _errors(found.cost, test)
    except OrschedError as error:
        if model not in MODELS:
            raise
        return Candidate(model, None, {}, (str(error),))
    report = found.report
    return Candidate(model, found.cost, errors, tuple(report["warnings"]), report["constants"])


def _usable(model: str, data: Measurements) -> Measurements:
    phase = np.array(data.phase, dtype="U7")
    kept = np.ones(len(data), bool)
    if model in ("affine", "levels", "bilinear"):
        kept &= phase != MIXED
    if model == "pooling":
        unequal = data.column("tokens") != data.column("count") * data.column("longest")
        kept &= ~((phase == PREFILL) & unequal)
    if model not in FITS_CACHED:
        kept &= data.column("cached") == 0
    return select(data, np.flatnonzero(kept))


def level_caps(measurements: Measurements) -> list[int]:
    """Return capacities of levels: measured sizes of stages, the largest and its halves."""
    sizes = np.unique(measurements.column("tokens")[measurements.rows(PREFILL)])
    caps: list[int] = []
    size = int(sizes[-1]) if len(sizes) else 0
    while size and len(caps) < MOST_LEVELS:
        caps.append(size)
        smaller = sizes[sizes <= size // 2]
        size = int(smaller[-1]) if len(smaller) else 0
    return caps[::-1]


def _errors(cost: CostModel, test: Measurements) -> dict[str, dict[str, Any]]:
    durations = test.column("duration_ns")
    each = np.array([predicted_ns(cost, test, row) for row in range(len(test))], np.float64)
    each = np.abs(each - durations) / durations
    found = {}
    for name, phases in (
        ("prefill", (PREFILL,)),
        ("decode", (DECODE,)),
        ("mixed", (MIXED,)),
        ("all", (PREFILL, DECODE)),
    ):
        rows = np.concatenate([test.rows(phase) for phase in phases])
        if len(rows):
            found[name] = _summary(sorted(each[rows].tolist()))
    found["run"] = _run_errors(cost, test)
    return found


def _run_errors(cost: CostModel, test: Measurements) -> dict[str, Any]:
    """Return by how much a run's sums are missed, by phase, and the score.

    A row stands for steps of about the same time as any other (``averaged``), so that the mean of
    the ratios is that of the sums.
    """
    durations, run = test.column("duration_ns"), test.column("run")
    found: dict[str, Any] = {"rehearsed": []}
    parts = []
    for phase in PHASES:
        rows = test.rows(phase)
        weight = 1.0 if not run.any() or (run[rows] > 0).any() else 0.5
        if (run[rows] > 0).any():
            rows = rows[run[rows] > 0]
            found["rehearsed"].append(phase)
        if len(rows):
            ratios = [predicted_ns(cost, test, row) / int(durations[row]) for row in rows.tolist()]
            found[phase] = math.fsum(ratios) / len(ratios) - 1
            mean = math.fsum(abs(ratio - 1) for ratio in ratios) / len(ratios)
            parts.append((weight, weight * (abs(found[phase]) + mean) / 2))
    found["score"] = math.fsum(part for _, part in parts) / math.fsum(weight for weight, _ in parts)
    return found


def _summary(errors: list[float]) -> dict[str, Any]:
    n = len(errors)
    return {
        "points": n,
        "mean": math.fsum(errors) / n,
        "p95": errors[-(-95 * n // 100) - 1],
        "worst": errors[-1],
    }
