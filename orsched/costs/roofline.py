"""The roofline cost model: a step reads the weights or computes its tokens, whichever is longer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from orsched.common.scalars import set_whole
from orsched.costs.exact import (
    FS_PER_NS,
    MAX_COEFFICIENT_FS,
    round_half_up,
    round_half_up_sum,
    to_whole_units,
)
from orsched.costs.floor import Floor, RoundFloor, StageFloor, StepLine
from orsched.costs.linear import attended_tokens
from orsched.costs.parameters import read_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

FS_PER_S = 10**15
COEFFICIENTS = ("fixed_fs", "weights_fs", "token_fs", "context_fs", "attended_fs")
MORE = (
    "row_fs", "longest_fs", "launch_fs",
    "beside_request_fs", "beside_context_fs", "beside_launch_fs",
)  # fmt: skip
"""Coefficients that are 0 unless they are given, as of every data sheet."""


@dataclass(frozen=True, kw_only=True)
class RooflineCost:
    """A step takes ``fixed + row x + max(weights, token x) + context C + longest M + attended A``.

    x are the tokens that go through the layers: the prompt tokens and one for each request of the
    round. C is the sum of the round's contexts, M the longest of them. A are the attended tokens of
    the prompts: each prompt token attends to itself, those before it in its chunk, and those cached
    before the chunk, ``c (c + 1) / 2 + c k`` for c tokens after k cached ones. One formula for
    stages, rounds and steps that do both (Williams, Waterman and Patterson, *Roofline*, 2009, for
    one operation). A step that does both takes ``beside_request N + beside_context C`` more for its
    N requests. One with prompts takes at least ``launch``, and beside a round ``beside_launch``.

    The coefficients are whole femtoseconds (1e-15 s) from 0 to 2**62 (else ``InputError``):
    ``fixed_fs`` a step, ``weights_fs`` the reading of the weights, ``token_fs`` a token,
    ``context_fs`` a token of context that a round reads, ``attended_fs`` an attended token. Six
    more are 0 by default. ``row_fs`` is a token, on both sides of the larger part. ``longest_fs``
    is a token of the round's longest context, for which the others wait. ``beside_request_fs`` is a
    request of a round beside prompts, and ``beside_context_fs`` a token of its contexts, where such
    steps read caches in a slower way. ``launch_fs`` and ``beside_launch_fs`` are the least times of
    steps with prompts, whose kernels the host launches one by one. A step is rounded once, half up,
    to a nanosecond; ``time_scale`` multiplies the rounded duration, so that a scaled model keeps
    every schedule exactly.
    """

    fixed_fs: int
    weights_fs: int
    token_fs: int
    context_fs: int
    attended_fs: int
    time_scale: int = 1
    row_fs: int = 0
    longest_fs: int = 0
    launch_fs: int = 0
    beside_request_fs: int = 0
    beside_context_fs: int = 0
    beside_launch_fs: int = 0

    model: ClassVar[str] = "roofline"
    context_matters: ClassVar[bool] = True
    cached_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        set_whole(self, *COEFFICIENTS, *MORE, maximum=MAX_COEFFICIENT_FS)
        set_whole(self, "time_scale", minimum=1)

    @classmethod
    def from_s(
        cls, *, fixed: float, weights: float, token: float, context: float, attended: float
    ) -> Self:
        """Build from coefficients of at least 0 in seconds, each rounded to a femtosecond."""
        values = (fixed, weights, token, context, attended)
        pairs = zip(COEFFICIENTS, values, strict=True)
        return cls(**{name: to_whole_units(value, FS_PER_S, name) for name, value in pairs})

    @property
    def prefill_limit(self) -> None:
        """No limit by the model."""
        return None

    def prefill_ns(self, prompts: Sequence[int], cached: Sequence[int] = ()) -> int:
        """Duration of a prefill stage, in ns; ``cached``: tokens before each prompt's (none: 0)."""
        return self._rounded(self._step_fs(prompts, cached, 0, 0, 0))

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of one decode round, in nanoseconds."""
        return self._rounded(self._step_fs((), (), active, context_sum, context_max))

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds, each rounded, in ns: linear as all contexts grow by one."""
        if rounds <= 0:
            return 0
        first = self._step_fs((), (), active, context_sum, context_max)
        slope = self.context_fs * active + self.longest_fs
        return round_half_up_sum(rounds, FS_PER_NS, slope, first) * self.time_scale

    def longest_round_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of the longest of a run of rounds: their times are linear in the position."""
        later = rounds - 1 if self.context_fs or self.longest_fs else 0
        return self.round_ns(active, context_sum + later * active, context_max + later)

    def mixed_ns(
        self,
        prompts: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Duration of a step with prefill and round, in ns; the weights are read once for both."""
        return self._rounded(self._step_fs(prompts, cached, active, context_sum, context_max))

    def _step_fs(
        self,
        prompts: Sequence[int],
        cached: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
    ) -> int:
        tokens = sum(prompts) + active
        layers = self.row_fs * tokens + max(self.weights_fs, self.token_fs * tokens)
        caches = self.context_fs * context_sum + self.longest_fs * context_max
        time = self.fixed_fs + layers + caches
        if not prompts:
            return time
        time += self.attended_fs * attended_tokens(prompts, cached)
        if not active:
            return max(self.launch_fs, time)
        time += self.beside_request_fs * active + self.beside_context_fs * context_sum
        return max(self.launch_fs, self.beside_launch_fs, time)

    def _rounded(self, time_fs: int) -> int:
        return round_half_up(time_fs, FS_PER_NS) * self.time_scale

    def floor(self) -> Floor:
        """Return a floor: stages compute all their tokens, rounds read the weights.

        ``max(weights, token x)`` is at least either of the two, in every step: two lines. So a
        stage takes this exactly from ``weights / token`` tokens on (unless its launch takes
        longer), a round up to as many requests. The longest context, and what a round takes more
        beside prompts, are at least 0, so that the lines hold without them, and a mixed step takes
        no less than either of its parts. The third line is the launch, which only steps without a
        round are sure to have by what is in them.
        In units of half a femtosecond, in which ``attended c (c + 1) / 2`` is whole.
        """
        fixed, row, token = 2 * self.fixed_fs, 2 * self.row_fs, 2 * (self.row_fs + self.token_fs)
        read = fixed + 2 * self.weights_fs
        square = self.attended_fs
        stage = StageFloor(fixed=fixed, token=token + square, square=square)
        round_floor = RoundFloor(
            fixed=read, request=row, context=2 * self.context_fs, longest=2 * self.longest_fs
        )
        attention = {"context": 2 * self.context_fs, "attended": 2 * self.attended_fs}
        lines = (
            StepLine(stage=read, round=read, prompt=row, request=row, **attention),
            StepLine(stage=fixed, round=fixed, prompt=token, request=token, **attention),
            *((StepLine(stage=2 * self.launch_fs),) if self.launch_fs else ()),
        )
        unit, times = 2 * FS_PER_NS, self.time_scale
        return Floor(stage, round_floor, unit, times, mixed="larger", lines=lines)

    def scaled(self, factor: int) -> Self:
        """Every duration multiplied by ``factor``, after its rounding."""
        return type(self)(**{**asdict(self), "time_scale": self.time_scale * factor})

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values; those that are 0 by default only where they are not."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value or name not in MORE}

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the coefficients; those that have a default may be left out."""
        return cls(**read_parameters(parameters, cls.model, COEFFICIENTS, [*MORE, "time_scale"]))
