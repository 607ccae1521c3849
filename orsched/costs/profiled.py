"""The profiled cost model: interpolation in tables of measured times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.units import MAX_TIME_NS
from orsched.costs.parameters import read_parameters
from orsched.costs.profiled_grid import Grid
from orsched.costs.profiled_times import ProfiledTimes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

GRIDS = {
    "dense": ("tokens",),
    "prefill": ("chunk", "context"),
    "decode": ("beside", "batch", "context"),
}
"""The tables that every profiled model has, and their axes."""

PER_SEQUENCE = ("sequences",)
"""The axis of the table that a model may have besides."""


@dataclass(frozen=True, kw_only=True)
class ProfiledCost:
    """A step takes ``fixed + dense(x) + sum prefill(c_i, k_i) + decode(p, N, mean context)``.

    With the table ``per_sequence`` it takes ``per_sequence(n)`` besides: what is done once for each
    of the n sequences in the step (chunks, and requests in the round), such as the output layer.

    All tokens of a step go through the dense layers together: x prompt tokens p = sum c_i plus N
    requests in the round. Attention is apart. That of a prompt goes by its c_i tokens and the k_i
    cached before them. That of the N requests beside the p tokens goes by their mean context: it
    reads every cache once, so it depends on the sum. Tables, of whole numbers of at least 0, are
    interpolated (``Grid``), the sum is rounded once, half up, to a nanosecond, and ``time_scale``
    multiplies the rounded duration, so that a scaled model keeps every schedule exactly. A step
    without a round has no decode part.
    """

    fixed_ns: int
    dense: Grid
    prefill: Grid
    decode: Grid
    time_scale: int = 1
    per_sequence: Grid | None = None

    model: ClassVar[str] = "profiled"
    context_matters: ClassVar[bool] = True
    cached_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "fixed_ns", whole_number(self.fixed_ns, "fixed_ns", maximum=MAX_TIME_NS))
        scale = whole_number(self.time_scale, "time_scale", minimum=1, maximum=2**62)
        put(self, "time_scale", scale)
        for name, axes in GRIDS.items():
            put(self, name, Grid.read(getattr(self, name), name, axes))
        if self.per_sequence is not None:
            put(self, "per_sequence", Grid.read(self.per_sequence, "per_sequence", PER_SEQUENCE))

    @property
    def prefill_limit(self) -> None:
        """No limit by the model."""
        return None

    def prefill_ns(self, prompts: Sequence[int], cached: Sequence[int] = ()) -> int:
        """Duration of a prefill stage, in ns; ``cached``: tokens before each prompt's (none: 0)."""
        self._require_cached(prompts, cached)
        return self._times.stage(prompts, cached) * self.time_scale

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of one decode round, in nanoseconds; the longest context plays no part."""
        if active == 0:
            return self._times.stage((), ()) * self.time_scale
        return self._times.round(active, context_sum) * self.time_scale

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds, each rounded, in ns: between points of the table linear."""
        if rounds <= 0:
            return 0
        if active == 0:
            return rounds * self.round_ns(0, 0, 0)
        return self._times.rounds(rounds, active, context_sum) * self.time_scale

    def mixed_ns(
        self,
        prompts: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Duration of a step that prefills the prompts beside a round, in nanoseconds."""
        if active == 0:
            return self.prefill_ns(prompts, cached)
        self._require_cached(prompts, cached)
        return self._times.mixed(prompts, cached, active, context_sum) * self.time_scale

    @cached_property
    def _times(self) -> ProfiledTimes:
        """The same formula in whole numbers: fractions take ten times as long."""
        return ProfiledTimes(self._dense, self.prefill, self.decode)

    def _dense(self, tokens: int, sequences: int) -> Fraction:
        """Return what does not look at contexts."""
        time = self.fixed_ns + self.dense.at(tokens)
        return time if self.per_sequence is None else time + self.per_sequence.at(sequences)

    def _require_cached(self, prompts: Sequence[int], cached: Sequence[int]) -> None:
        if cached and len(cached) != len(prompts):
            raise InputError(
                f"{len(cached)} values for {len(prompts)} prompts",
                field="cached",
                remedy="give one value for each prompt",
            )

    def scaled(self, factor: int) -> Self:
        """Every duration multiplied by ``factor``, after its rounding."""
        return replace(self, time_scale=self.time_scale * factor)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        grids = {name: getattr(self, name).to_dict() for name in GRIDS}
        if self.per_sequence is not None:
            grids["per_sequence"] = self.per_sequence.to_dict()
        return {"fixed_ns": self.fixed_ns, **grids, "time_scale": self.time_scale}

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read ``fixed_ns`` and the tables; ``per_sequence`` and ``time_scale`` may be left out."""
        optional = ["time_scale", "per_sequence"]
        values = read_parameters(parameters, cls.model, ["fixed_ns", *GRIDS], optional)
        if "per_sequence" in values:  # in a file it is a table or not there: never null
            grid = Grid.read(values["per_sequence"], "per_sequence", PER_SEQUENCE)
            values["per_sequence"] = grid
        return cls(**values)
