"""One fit for all cost models, with its error on measurements that it did not see."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.calibration.fit_jointly import fit_linear, fit_profiled, fit_roofline
from orsched.calibration.least_squares import Work
from orsched.calibration.measurements import DECODE, MIXED, PREFILL, Measurements, refuse_mixed
from orsched.common.columns import IntColumn, int_column, whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.scalars import is_number, require_one_of
from orsched.costs.affine import AffineCost, LevelsCost
from orsched.costs.bilinear import BilinearCost
from orsched.costs.exact import FS_PER_NS
from orsched.costs.pooling import COEFFICIENTS, PPM, PoolingCost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from orsched.calibration.least_squares import FloatArray
    from orsched.common.columns import IntColumn
    from orsched.costs.protocol import CostModel

    BoolArray = NDArray[np.bool_]


PREFILL_NAMES = ("alpha_fs", "beta_fs")
DECODE_NAMES = ("gamma_fs", "delta_fs")
MOST_STARTS = 64
MOST_TURNS = 50


def fit_pooling(work: Work) -> PoolingCost:
    """Fit Echo's eq. (6), (7) and, when there are mixed rows, (8).

    Raises ``InputError`` that names the coefficients that the rows do not determine.
    """
    alpha, beta, least = _fit_prefill(work)
    rows = work.rows(DECODE, DECODE_NAMES)
    columns = [work.data.column(name)[rows] for name in ("count", "context_sum", "context_max")]
    count, total, longest = (column.astype(np.float64) for column in columns)
    gamma, delta = work.linear(DECODE, DECODE_NAMES, np.stack([longest, total / count], axis=1))
    named = zip(COEFFICIENTS, (alpha, beta, least, gamma, delta), strict=True)
    whole = {name: round(value * FS_PER_NS) for name, value in named}
    return _fit_lambda(work, PoolingCost(**whole))


def _fit_prefill(work: Work) -> tuple[float, float, float]:
    rows = work.rows(PREFILL, ("alpha_fs", "beta_fs", "c_fs"))
    count, tokens, longest = (
        work.data.column(name)[rows] for name in ("count", "tokens", "longest")
    )
    unequal = tokens != count * longest
    if unequal.any():
        raise InputError(
            "prompts of unequal length in one stage: their sum does not tell their times apart",
            row=int(rows[np.argmax(unequal)]),
            field="tokens",
            remedy="measure single prompts or prompts of one length for the pooling model",
        )
    x, n = longest.astype(np.float64), count.astype(np.float64)
    design = np.stack([n * x * x, n * x], axis=1)
    work.solve(PREFILL_NAMES, design, rows)
    kept = work.take(PREFILL, rows, np.column_stack([design, n]))
    return _alternate(work, rows[kept], x[kept], n[kept])


def _alternate(
    work: Work, rows: IntColumn, x: FloatArray, n: FloatArray
) -> tuple[float, float, float]:
    """Alternate between assigning rows to the two forms of the maximum and fitting each form.

    The lengths where the floor can end are the starts; of what they lead to, the least error
    wins, and the shorter floor unless the longer one is better by more than a thousandth.
    """
    lengths = np.unique(x)
    step = max(1, -(-len(lengths) // MOST_STARTS))
    weights = work.weights(rows)
    target = weights * work.data.column("duration_ns")[rows]
    best: tuple[float, float, float] | None = None
    least_error = np.inf
    for end in lengths[: max(1, len(lengths) - 1) : step]:
        found = _settle(work, rows, x, n, x < end)
        if found is None:
            continue
        alpha, beta, least = found
        error = weights * n * np.maximum((alpha * x + beta) * x, least) - target
        squared = float(error @ error) / float(target @ target)
        if squared < 0.999 * least_error - 1e-18:
            best, least_error = found, squared
    if best is None:
        raise InputError(
            "the measurements do not determine alpha_fs, beta_fs: too few different lengths",
            field="alpha_fs",
            remedy="measure more prompt lengths",
        )
    for name, value in zip(PREFILL_NAMES, best[:2], strict=True):
        if value == 0:
            work.notes.append(f"{name} is 0, the least that it may be")
    if best[2] == 0:
        work.notes.append("no measured prompt is short enough to show c_fs: set to 0")
    return best


def _settle(
    work: Work, rows: IntColumn, x: FloatArray, n: FloatArray, floor: BoolArray
) -> tuple[float, float, float] | None:
    """Return (alpha, beta, c) once the assignment no longer changes; None without a solution."""
    weights = work.weights(rows)
    target = weights * work.data.column("duration_ns")[rows]
    alpha = beta = least = 0.0
    for _ in range(MOST_TURNS):
        curve = ~floor
        if len(np.unique(x[curve])) < 2:
            return None
        design = np.stack([n * x * x, n * x], axis=1)[curve]
        alpha, beta = work.solve(PREFILL_NAMES, design, rows[curve])
        level = (weights * n)[floor]
        least = float(level @ target[floor] / (level @ level)) if floor.any() else 0.0
        again = (alpha * x + beta) * x < least
        if (again == floor).all():
            break
        floor = again
    return alpha, beta, least


def _fit_lambda(work: Work, cost: PoolingCost) -> PoolingCost:
    """Fit lambda: a mixed step's time over its smaller part is linear in it."""
    rows = work.data.rows(MIXED)
    if len(rows) == 0:
        work.notes.append("no mixed measurement: lambda_ppm is 1000000, the larger part alone")
        return cost
    smaller, larger = replace(cost, lambda_ppm=0), replace(cost, lambda_ppm=PPM)
    low, high = (
        np.array([work.data.predicted_ns(part, row) for row in rows.tolist()], np.float64)
        for part in (smaller, larger)
    )
    slope = high - low
    if not slope.any():
        raise InputError(
            "the mixed measurements do not determine lambda_ppm",
            field="lambda_ppm",
            remedy="measure more mixed steps of different sizes, or leave them out",
        )
    kept = work.take(MIXED, rows, slope[:, None])
    weights = work.weights(rows[kept])
    run, rise = weights * slope[kept], weights * (work.data.column("duration_ns")[rows] - low)[kept]
    value = float(run @ rise / (run @ run))
    if work.nonnegative and value < 0:
        work.notes.append("lambda_ppm would be negative: held to at least 0")
        value = 0.0
    return replace(cost, lambda_ppm=round(value * PPM))


FITS_MIXED = ("pooling", "profiled", "linear", "roofline")
FITS_CACHED = ("profiled", "linear", "roofline")
"""The models that steps with prompts beside a round can be fitted to as well."""


_NEVER_NEGATIVE = ("affine", "profiled", "linear", "roofline")


@dataclass(frozen=True)
class Fit:
    """A fitted cost model and the report on how good it is."""

    cost: CostModel
    report: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The content of a cost-model file: ``cost`` with its ``model``, and ``fit_report``."""
        return {
            "cost": {"model": self.cost.model, **self.cost.to_dict()},
            "fit_report": self.report,
        }


def fit(
    model: str,
    measurements: Measurements,
    *,
    weighting: str = "relative",
    nonnegative: bool = True,
    holdout: float = 0.2,
    seed: int = 0,
    level_caps: Sequence[int] | None = None,
    quantile: float = 1.0,
) -> Fit:
    """Fit a cost model to measured steps and report its error on steps held out.

    ``weighting`` "relative" (the default) minimises the sum of squared *relative* errors, so that
    short rounds count as much as long stages and the fit minimises what the report shows;
    "seconds" minimises squared seconds, which serves fits that must meet sums over a run
    ("absolute" is its older name). ``nonnegative`` keeps every coefficient at 0 or
    above (affine, profiled, linear and roofline always do), and the report names those that would
    be negative; without it negative coefficients are returned and reported. ``holdout`` is the
    share of each phase's rows, drawn with ``seed``, that is not fitted to but predicted by the
    finished model; 0 fits to all rows and reports no error.

    ``level_caps`` and ``quantile`` are for the levels model: the time of a level is that quantile
    (nearest rank; 1.0 is the maximum) of the stages that need it, raised to that of the level
    before where it is lower, and T^d that quantile of the rounds.

    The report is a dict of plain values: the options, ``constants`` with the standard error and the
    95 % interval of each (``calibration.least_squares``), for each phase ``points``, ``fitted``,
    ``held_out`` and the mean, 95th percentile and worst absolute relative error of the points
    held out (None without any), and ``warnings``.

    Raises:
        InputError: an unknown option, a phase without rows, or coefficients that the rows do not
            determine, which it names.
    """
    if model not in _FITTERS:
        raise InputError(
            f"no fit for {model!r}", field="model", remedy=known_names(model, _FITTERS)
        )
    _check_options(model, weighting, holdout, level_caps, quantile)
    seed = whole_number(seed, "seed")
    rng = random.Random(seed)
    nonnegative = bool(nonnegative) or model in _NEVER_NEGATIVE
    work = Work(measurements, weighting, nonnegative, holdout, rng, level_caps, quantile)
    cost = _FITTERS[model](work)
    if model not in FITS_CACHED and work.data.column("cached").any():
        work.notes.append("chunks behind cached tokens count as if nothing were cached")
    report: dict[str, Any] = {"model": model, "holdout": holdout, "seed": seed}
    if model == "levels":
        report["quantile"] = quantile
    else:
        report |= {"weighting": weighting, "nonnegative": nonnegative}
    report["constants"] = {found.name: found.to_dict() for found in work.constants}
    report["phases"] = {phase: _errors(work, cost, phase) for phase in work.fitted}
    negative: Callable[[], tuple[str, ...]] | None = getattr(cost, "warnings", None)
    report["warnings"] = work.notes + list(negative() if negative else ())
    return Fit(cost, report)


def _check_options(
    model: str, weighting: str, holdout: float, level_caps: object, quantile: float
) -> None:
    require_one_of(weighting, "weighting", ("relative", "seconds", "absolute"))
    for name, value in (("holdout", holdout), ("quantile", quantile)):
        if not is_number(value):
            raise InputError(f"{value!r} is not a number", field=name, remedy="give a number")
    if not 0 <= holdout < 1:
        raise InputError(
            f"{holdout} is not a share in [0, 1)",
            field="holdout",
            remedy="give a share of at least 0 and below 1",
        )
    if not 0 < quantile <= 1:
        raise InputError(
            f"{quantile} is not a quantile in (0, 1]",
            field="quantile",
            remedy="give a number above 0 and up to 1",
        )
    if (model == "levels") != (level_caps is not None):
        raise InputError(
            "the levels model needs the capacities of its levels, other models have none",
            field="level_caps",
            remedy="give level_caps for levels, and leave them out for other models",
        )


def _errors(work: Work, cost: CostModel, phase: str) -> dict[str, Any]:
    durations = work.data.column("duration_ns")
    errors = []
    for row in work.held[phase].tolist():
        true = int(durations[row])
        errors.append(abs(work.data.predicted_ns(cost, row) - true) / true)
    errors.sort()
    n = len(errors)
    return {
        "points": len(work.fitted[phase]) + n,
        "fitted": len(work.fitted[phase]),
        "held_out": n,
        "mean_relative_error": math.fsum(errors) / n if n else None,
        "p95_relative_error": errors[-(-95 * n // 100) - 1] if n else None,
        "worst_relative_error": errors[-1] if n else None,
    }


def _columns(work: Work, phase: str, *names: str) -> list[FloatArray]:
    rows = work.data.rows(phase)
    return [work.data.column(name)[rows].astype(np.float64) for name in names]


def _affine(work: Work) -> AffineCost:
    refuse_mixed(work.data, "affine")
    values: dict[str, int] = {}
    for phase, names, size in (
        (PREFILL, ("prefill_fixed_ns", "prefill_token_ns"), "tokens"),
        (DECODE, ("round_fixed_ns", "round_client_ns"), "count"),
    ):
        (x,) = _columns(work, phase, size)
        found = work.linear(phase, names, np.stack([np.ones_like(x), x], axis=1))
        values |= {name: round(value) for name, value in zip(names, found, strict=True)}
    return AffineCost(**values)


def _bilinear(work: Work) -> BilinearCost:
    refuse_mixed(work.data, "bilinear")
    values: dict[str, int] = {}
    for phase, letter, length in ((PREFILL, "p", "longest"), (DECODE, "d", "context_max")):
        names = [f"{letter}{i}_fs" for i in (1, 2, 3, 4)]
        n, x = _columns(work, phase, "count", length)
        found = work.linear(phase, names, np.stack([n * x, n, x, np.ones_like(n)], axis=1))
        values |= {name: round(v * FS_PER_NS) for name, v in zip(names, found, strict=True)}
    return BilinearCost(**values)


def _levels(work: Work) -> LevelsCost:
    refuse_mixed(work.data, "levels")
    caps = int_column(work.level_caps or [], "level_caps", minimum=1)
    if len(caps) == 0 or (np.diff(caps) <= 0).any():
        raise InputError(
            "give at least one capacity, in strictly growing order",
            field="level_caps",
            remedy="sort the capacities and give each once",
        )
    rows = work.rows(PREFILL, ["levels"])
    level = np.searchsorted(caps, work.data.column("tokens")[rows])
    over = level == len(caps)
    if over.any():
        row = int(rows[np.argmax(over)])
        raise InputError(
            f"over the largest level, {caps[-1]} tokens",
            row=row,
            field="tokens",
            remedy="add a larger level, or leave the measurement out",
        )
    for index in range(len(caps)):
        if not (level == index).any():
            raise InputError(
                f"no prefill measurement for the level of {caps[index]} tokens",
                row=index,
                field="level_caps",
                remedy="measure a stage of that size or drop the level",
            )
    kept = work.take(PREFILL, rows, (level[:, None] == np.arange(len(caps))).astype(np.float64))
    durations = work.data.column("duration_ns")
    times: list[int] = []
    for index in range(len(caps)):
        time = _quantile(durations[rows[kept][level[kept] == index]], work.quantile)
        if times and time < times[-1]:
            work.notes.append(f"the level of {caps[index]} tokens was faster than the one before")
            time = times[-1]
        times.append(time)
    rounds = work.rows(DECODE, ["round_fixed_ns"])
    kept = work.take(DECODE, rounds, np.ones((len(rounds), 1)))
    pairs = tuple(zip(caps.tolist(), times, strict=True))
    return LevelsCost(
        levels=pairs, round_fixed_ns=_quantile(durations[rounds[kept]], work.quantile)
    )


def _quantile(values: IntColumn, quantile: float) -> int:
    """Return the nearest-rank quantile."""
    return int(np.sort(values)[math.ceil(Fraction(quantile) * len(values)) - 1])


_FITTERS: dict[str, Callable[[Work], CostModel]] = {
    "affine": _affine,
    "levels": _levels,
    "bilinear": _bilinear,
    "pooling": fit_pooling,
    "profiled": fit_profiled,
    "linear": fit_linear,
    "roofline": fit_roofline,
}
