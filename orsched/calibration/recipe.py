"""The recipe: constants of a cost model from a measured run, with how firm they are.

One for every run, with nothing to choose but what is known of the model: the tables of a profile,
or its shape. Which steps lie between two measured times is what a simulation says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from orsched.calibration.intervals import student_quantile
from orsched.calibration.least_squares import LEVEL, Constant, solve
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import printed, require_one_of
from orsched.common.units import NS_PER_S
from orsched.costs.linear import attended_tokens
from orsched.costs.profiled import GRIDS, ProfiledCost
from orsched.costs.profiled_grid import Grid
from orsched.costs.protocol import mixed_ns
from orsched.data.schedule import PREFILL
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.calibration.least_squares import FloatArray
    from orsched.calibration.runs import MeasuredRun, Server, Times
    from orsched.calibration.shapes import ModelShape
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


BYTES = 2  # of a number: 16 bits

GIGA, TERA = 10**9, 10**12
_KNOTS = tuple(sorted({int(2 ** (half / 2)) for half in range(29)}))
"""Tokens at which the layers' curve is put down, 1 to 16,384."""

_CHUNKS = (0, *sorted({int(2 ** (half / 2)) for half in range(6, 29)}))
_LONGEST = 131_072
_LEAST = 1.0  # nanoseconds: no constant is taken for smaller while the curve is made straight


class StepWork(NamedTuple):
    """What is in a step, or in a run of rounds."""

    prompts: Sequence[int]  # tokens of each chunk
    cached: Sequence[int]  # tokens in the cache before each
    rounds: int  # how many
    active: int  # requests of the round
    context_sum: int  # of the first round


class Family(Protocol):
    """Cost models that differ in a few constants, in which the time of a step is linear, nearly."""

    @property
    def names(self) -> tuple[str, ...]:
        """The constants' names, with their units."""

    @property
    def units(self) -> tuple[float, ...]:
        """The units of the names, in nanoseconds."""

    @property
    def start(self) -> tuple[float, ...]:
        """The constants that a fit begins with, in nanoseconds."""

    def cost(self, values: Sequence[float]) -> CostModel:
        """Return the cost model of these constants, and take them to make ``row`` straight."""

    def row(self, step: StepWork) -> list[float]:
        """Return what each constant counts for in a step, at the constants last taken."""


class FactorOfTables:
    """The tables of a profile, all times one factor."""

    names = ("factor of the profile's times",)
    units = (1.0,)
    start = (1.0,)

    def __init__(self, base: ProfiledCost) -> None:
        self.base = base

    def cost(self, values: Sequence[float]) -> ProfiledCost:
        """Return the tables times the factor, each time rounded."""
        (factor,) = values
        base = self.base
        rest = None if base.per_sequence is None else _times(base.per_sequence, factor)
        return ProfiledCost(
            fixed_ns=round(factor * base.fixed_ns),
            dense=_times(base.dense, factor),
            prefill=_times(base.prefill, factor),
            decode=_times(base.decode, factor),
            time_scale=base.time_scale,
            per_sequence=rest,
        )

    def row(self, step: StepWork) -> list[float]:
        """Return what the step takes by the profile itself."""
        if not step.prompts:
            return [float(self.base.rounds_ns(step.rounds, step.active, step.context_sum, 0))]
        load = (step.active, step.context_sum, 0)
        return [float(mixed_ns(self.base, step.prompts, *load, cached=step.cached))]


def _times(grid: Grid, factor: float) -> Grid:
    return Grid(grid.names, grid.axes, tuple(round(factor * time) for time in grid.times_ns))


class TimesOfShape:
    """A model's shape, with the time of a gigabyte and of 10**12 operations.

    ``power`` says how the two make the time of the layers: 1 their sum, without end the larger.
    """

    names = ("ms a GB read", "ms a TFLOP")
    units = (1e6, 1e6)
    start = (1e6, 8e6)

    def __init__(self, shape: ModelShape, clients: int, power: float = 2.0) -> None:
        self.clients, self.power = clients, power
        self.weights = shape.read_bytes / GIGA
        self.token_kv = BYTES * shape.kv_numbers / GIGA
        self.token = 2 * shape.layer_weights / TERA
        self.attended = shape.attended_flops / TERA
        self.now = self.start

    def cost(self, values: Sequence[float]) -> ProfiledCost:
        """Return tables: the curve at powers of the root of 2, attention at powers of 2."""
        read, compute = values
        self.now = max(_LEAST, read), max(_LEAST, compute)
        chunks = [
            round(compute * self.attended * (chunk * (chunk + 1) / 2 + chunk * before))
            for chunk in _CHUNKS
            for before in (0, _LONGEST)
        ]
        rounds = round(read * self.token_kv * self.clients * _LONGEST)
        return ProfiledCost(
            fixed_ns=0,
            dense=Grid(GRIDS["dense"], (_KNOTS,), tuple(round(self._layers(x)) for x in _KNOTS)),
            prefill=Grid(GRIDS["prefill"], (_CHUNKS, (0, _LONGEST)), tuple(chunks)),
            decode=Grid(
                GRIDS["decode"], ((0,), (0, self.clients), (0, _LONGEST)), (0, 0, 0, rounds)
            ),
        )

    def _layers(self, tokens: int) -> float:
        read, compute = self.now
        parts = read * self.weights, compute * self.token * tokens
        most = max(parts)
        return float(most * sum((part / most) ** self.power for part in parts) ** (1 / self.power))

    def row(self, step: StepWork) -> list[float]:
        """Return the derivatives, which the time is the sum of: it doubles with the constants."""
        read, compute = self.now
        tokens = sum(step.prompts) + step.active
        layers = self._layers(tokens)
        more = self.power - 1
        by_read = self.weights * (read * self.weights / layers) ** more
        work = self.token * tokens
        by_compute = work * (compute * work / layers) ** more
        mean = step.context_sum + step.active * (step.rounds - 1) / 2  # contexts grow by one
        seen = attended_tokens(step.prompts, step.cached)
        found = [by_read + self.token_kv * mean, by_compute + self.attended * seen]
        return [step.rounds * each for each in found]


def spans(times: Times, requests: int) -> NDArray[np.int64]:
    """Return the (from, to) of what is fitted to, over the first requests, in nanoseconds.

    From each request's first to its last token, then from each one's arrival to its first token.
    """
    arrival, first, last = (
        column[:requests] for column in (times.arrival, times.first, times.last)
    )
    own, waits = np.stack([first, last], axis=1), np.stack([arrival, first], axis=1)
    return np.concatenate([own, waits])


def owners(requests: int) -> NDArray[np.int64]:
    """Return the request that each of the spans is of."""
    return np.tile(np.arange(requests), 2)


def design_of(
    instance: Instance, schedule: Schedule, family: Family, found: NDArray[np.int64]
) -> FloatArray:
    """Return a row a span: what each constant counts for in the steps, or parts of them, in it."""
    steps = schedule.steps
    rows = np.array([family.row(work) for work in step_works(instance, schedule)], np.float64)
    total = np.concatenate([np.zeros((1, len(family.names))), np.cumsum(rows, axis=0)])
    moments = np.stack([steps.start_ns, steps.end_ns], axis=1).ravel().astype(np.float64)
    values = np.stack([total[:-1], total[1:]], axis=1).reshape(-1, total.shape[1])
    ends = [
        np.stack([np.interp(found[:, end], moments, column) for column in values.T], axis=1)
        for end in (0, 1)
    ]
    difference: FloatArray = ends[1] - ends[0]
    return difference


def step_works(instance: Instance, schedule: Schedule) -> list[StepWork]:
    """Return what is in each step of a schedule of one worker."""
    steps, work = schedule.steps, schedule.work
    line = Timeline(instance, schedule)
    prompts: list[list[int]] = [[] for _ in range(len(steps))]
    cached: list[list[int]] = [[] for _ in range(len(steps))]
    for row in np.flatnonzero(work.phase == PREFILL).tolist():
        step = int(work.first_step[row])
        prompts[step].append(int(work.tokens[row]))
        cached[step].append(int(line.cached[row]))
    caches = line.caches
    decodes = (steps.phase != PREFILL).tolist()
    columns = (steps.rounds.tolist(), caches.active.tolist(), caches.context_sum.tolist())
    return [
        StepWork(
            prompts[i], cached[i], rounds if on else 1, active if on else 0, total if on else 0
        )
        for i, (rounds, active, total, on) in enumerate(zip(*columns, decodes, strict=True))
    ]


MOST_ITERATIONS = 20
BLOCKS = 10
"""Blocks of consecutive requests, each left out once: neighbours share steps and are not
independent measurements."""

WEIGHTINGS = ("seconds", "relative")
LEAST_REQUESTS = 20


@dataclass(frozen=True)
class RunFit:
    """A cost model fitted to a measured run.

    ``measured`` and ``simulated`` are figures of all requests in seconds, ``rest`` of those not
    fitted to.
    """

    cost: CostModel
    constants: tuple[Constant, ...]  # with errors and intervals, in the units of their names
    fitted: int  # requests whose times were fitted to, the first to arrive
    weighting: str  # seconds or relative
    error: float  # root mean square of what the spans are missed by: seconds, or a share
    measured: dict[str, float]
    simulated: dict[str, float]
    measured_rest: dict[str, float]
    simulated_rest: dict[str, float]

    def errors(self, *, rest: bool = False) -> dict[str, float]:
        """Return simulated by measured less 1, by figure; ``rest``: of requests not fitted to."""
        true, found = self.measured, self.simulated
        if rest:
            true, found = self.measured_rest, self.simulated_rest
        return {name: found[name] / value - 1 for name, value in true.items() if value}

    def to_dict(self) -> dict[str, Any]:
        """Return all but the model as JSON values."""
        return {
            "constants": {found.name: found.to_dict() for found in self.constants},
            "fitted_requests": self.fitted,
            "weighting": self.weighting,
            "error": self.error,
            "measured_s": self.measured,
            "simulated_s": self.simulated,
            "errors": self.errors(),
            "errors_not_fitted": self.errors(rest=True) if self.measured_rest else {},
        }


def require_enough(run: MeasuredRun) -> None:
    """Raise ``InputError`` for a run of fewer than ``LEAST_REQUESTS`` requests."""
    if len(run.requests) < LEAST_REQUESTS:
        raise InputError(
            f"has {len(run.requests)} requests, too few to fit to",
            file=run.name,
            remedy=f"a run of {LEAST_REQUESTS} at least",
        )


def fit_run(
    run: MeasuredRun,
    server: Server,
    base: ProfiledCost | ModelShape | Family,
    *,
    requests: int | None = None,
    weighting: str = "seconds",
) -> RunFit:
    """Fit a cost model to a measured run, and simulate the run with it.

    With a profile (``base`` is its cost model) one constant is fitted, a factor of all its times;
    with a model's shape two: the time of a byte read and of an operation; or those of a family of
    one's own. Least squares over the spans of the first requests (default: half, at least
    ``LEAST_REQUESTS``), with constants of at least 0: from each one's first to its last token, and
    from its arrival to its first. A simulation with the constants so far says which steps lie in a
    span; that is repeated until they stay, or ``MOST_ITERATIONS`` times, and the least error is
    taken. The simulation knows arrivals and lengths, and no measured time.

    Standard errors are those of leaving out each of ``BLOCKS`` blocks of consecutive requests
    (jackknife), the steps of each span as they are. ``weighting`` "seconds" makes squared seconds
    small, so that sums over the run are met; "relative" the squared shares, in which short times
    count most.

    Raises ``InputError`` for too few requests, or constants that the run does not determine, named.
    """
    require_one_of(weighting, "weighting", WEIGHTINGS)
    require_enough(run)
    every = len(run.requests)
    count = max(LEAST_REQUESTS, every // 2) if requests is None else requests
    count = whole_number(count, "requests", minimum=LEAST_REQUESTS, maximum=every)
    family = family_of(base, server)
    best = _fitted(run, server, family, count, weighting)
    constants = _constants(best, family, count)
    cost = family.cost(best.values)
    rest = slice(count, None) if count < every else slice(0, 0)
    return RunFit(
        cost,
        constants,
        count,
        weighting,
        best.error,
        run.times.figures(),
        best.times.figures(),
        run.times.figures(rest) if count < every else {},
        best.times.figures(rest) if count < every else {},
    )


def family_of(base: ProfiledCost | ModelShape | Family, server: Server) -> Family:
    """Return the cost models that a run is fitted by."""
    from orsched.calibration.shapes import ModelShape as Shape
    from orsched.costs import ProfiledCost as Tables

    if isinstance(base, Tables):
        return FactorOfTables(base)
    if isinstance(base, Shape):
        return TimesOfShape(base, server.clients)
    if not hasattr(base, "start"):
        raise InputError(
            f"{printed(base)} is nothing to fit",
            field="base",
            remedy="a profiled cost model, a model's shape, or a family of cost models",
        )
    return base


class _Best(NamedTuple):
    values: list[float]
    error: float
    times: Times
    design: FloatArray
    target: FloatArray
    kept: NDArray[np.bool_]


def _fitted(run: MeasuredRun, server: Server, family: Family, count: int, weighting: str) -> _Best:
    """Return the constants of the least error, in nanoseconds, and the weighted spans."""
    true = spans(run.times, count)
    target = (true[:, 1] - true[:, 0]).astype(np.float64)
    kept = target > 0  # an answer of one token has no time of its own
    weight = np.where(
        kept, 1 / NS_PER_S if weighting == "seconds" else 1 / np.maximum(target, 1), 0
    )
    if not kept.any():
        raise InputError("all times are equal", field="last_token_s", remedy="check the run")
    values, best = list(family.start), None
    for _ in range(MOST_ITERATIONS):
        instance, schedule, times = run.simulate(family.cost(values), server)
        found = spans(times, count)
        took = (found[:, 1] - found[:, 0]).astype(np.float64)
        error = float(np.sqrt(np.mean((weight * (took - target))[kept] ** 2)))
        design = design_of(instance, schedule, family, found)
        given = took - design @ np.array(values)
        weighted = (design * weight[:, None])[kept]
        aim = ((target - given) * weight)[kept]
        if best is None or error < best.error:
            best = _Best(values, error, times, weighted, aim, kept)
        new = solve(weighted, aim, family.names, nonnegative=True).tolist()
        if np.allclose(new, values, rtol=1e-9):
            break
        values = new
    assert best is not None
    return best


def _constants(best: _Best, family: Family, count: int) -> tuple[Constant, ...]:
    """Return the constants with the standard errors of leaving out blocks of requests."""
    blocks = (owners(count) * BLOCKS // count)[best.kept]
    without: list[list[float]] = []
    for block in range(BLOCKS):
        rows = blocks != block
        try:
            found = solve(best.design[rows], best.target[rows], family.names, nonnegative=True)
        except InputError:
            return tuple(_open(best, family))
        without.append(found.tolist())
    table = np.array(without)
    spread = np.sqrt((BLOCKS - 1) / BLOCKS * ((table - table.mean(axis=0)) ** 2).sum(axis=0))
    constants = []
    for place, name in enumerate(family.names):
        value, error = best.values[place] / family.units[place], float(spread[place])
        error /= family.units[place]
        half = student_quantile(0.5 + LEVEL / 2, BLOCKS - 1) * error
        if math.isfinite(half):
            low, high = max(0.0, value - half), value + half
            constants.append(Constant(name, value, error, low, high))
    return tuple(constants)


def _open(best: _Best, family: Family) -> Sequence[Constant]:
    """Return constants that hang on one block of requests: they have no interval."""
    return [
        Constant(name, value / unit, None, None, None)
        for name, value, unit in zip(family.names, best.values, family.units, strict=True)
    ]
