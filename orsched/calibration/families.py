"""What a run is fitted by: cost models with few constants, each with a time in every step.

Either the tables of a profile of kernels, all times one factor: kernels run compiled, as graphs,
overlapped. Or the model's shape alone, with two constants, the time of a byte read and of an
operation: the layers take ``sqrt(weights**2 + operations**2)`` of a step's tokens, which is either
where one of them is large, and reading the caches and attending to them comes on top. Between the
two a kernel profile of Llama-3.1-8B on an RTX 4090 has this form: 15.6 ms of weights and 0.092 ms a
token make 19.6 ms at 128 tokens, where 20.0 ms were measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from orsched.costs.linear import attended_tokens
from orsched.costs.profiled import GRIDS, ProfiledCost
from orsched.costs.profiled_grid import Grid
from orsched.costs.protocol import mixed_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration.shapes import ModelShape
    from orsched.costs import CostModel

BYTES = 2
"""Of a number: 16 bits."""

GIGA, TERA = 10**9, 10**12
_KNOTS = tuple(sorted({int(2 ** (half / 2)) for half in range(29)}))
"""Tokens at which the layers' curve is put down, 1 to 16,384."""

_CHUNKS = (0, *sorted({int(2 ** (half / 2)) for half in range(6, 29)}))
_LONGEST = 131_072
_LEAST = 1.0
"""Nanoseconds: no constant is taken for smaller while the curve is made straight."""


class StepWork(NamedTuple):
    """What is in a step, or in a run of rounds.

    Attributes:
        prompts, cached: tokens of each chunk, and those in the cache before it.
        rounds: how many.
        active: requests of the round.
        context_sum: of the first round.
    """

    prompts: Sequence[int]
    cached: Sequence[int]
    rounds: int
    active: int
    context_sum: int


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
