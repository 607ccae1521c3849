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


@dataclass(frozen=True, kw_only=True)
class RooflineCost:
    """A step takes ``fixed + max(weights, token x) + context C + attended A``.

    x are the tokens that go through the layers: the prompt tokens and one for each request of the
    round. C is the sum of the round's contexts. A are the attended tokens of the prompts: each
    prompt token attends to itself, those before it in its chunk, and those cached before the chunk,
    ``c (c + 1) / 2 + c k`` for c tokens after k cached ones. One formula for stages, rounds and
    steps that do both (Williams, Waterman and Patterson, *Roofline*, 2009, for one operation).

    The coefficients are whole femtoseconds (1e-15 s) from 0 to 2**62 (else ``InputError``):
    ``fixed_fs`` a step, ``weights_fs`` the reading of the weights, ``token_fs`` a token,
    ``context_fs`` a token of context that a round reads, ``attended_fs`` an attended token. A step
    is rounded once, half up, to a nanosecond; ``time_scale`` multiplies the rounded duration, so
    that a scaled model keeps every schedule exactly.
    """

    fixed_fs: int
    weights_fs: int
    token_fs: int
    context_fs: int
    attended_fs: int
    time_scale: int = 1

    model: ClassVar[str] = "roofline"
    context_matters: ClassVar[bool] = True
    cached_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        set_whole(self, *COEFFICIENTS, maximum=MAX_COEFFICIENT_FS)
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
        return self._rounded(self._step_fs(prompts, cached, 0, 0))

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of one decode round, in nanoseconds; the longest context plays no part."""
        return self._rounded(self._step_fs((), (), active, context_sum))

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds, each rounded, in ns: linear as all contexts grow by one."""
        if rounds <= 0:
            return 0
        first, slope = self._step_fs((), (), active, context_sum), self.context_fs * active
        return round_half_up_sum(rounds, FS_PER_NS, slope, first) * self.time_scale

    def longest_round_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of the longest of a run of rounds: their times are linear in the position."""
        later = rounds - 1 if self.context_fs > 0 else 0
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
        return self._rounded(self._step_fs(prompts, cached, active, context_sum))

    def _step_fs(
        self, prompts: Sequence[int], cached: Sequence[int], active: int, context_sum: int
    ) -> int:
        tokens = sum(prompts) + active
        attended = attended_tokens(prompts, cached)
        layers = max(self.weights_fs, self.token_fs * tokens)
        attention = self.context_fs * context_sum + self.attended_fs * attended
        return self.fixed_fs + layers + attention

    def _rounded(self, time_fs: int) -> int:
        return round_half_up(time_fs, FS_PER_NS) * self.time_scale

    def floor(self) -> Floor:
        """Return a floor: stages compute all their tokens, rounds read the weights.

        ``max(weights, token x)`` is at least either of the two, in every step: two lines. So a
        stage takes this exactly from ``weights / token`` tokens on, a round up to as many requests.
        In units of half a femtosecond, in which ``attended c (c + 1) / 2`` is whole.
        """
        stage = StageFloor(
            fixed=2 * self.fixed_fs,
            token=2 * self.token_fs + self.attended_fs,
            square=self.attended_fs,
        )
        fixed, token = 2 * self.fixed_fs, 2 * self.token_fs
        read = fixed + 2 * self.weights_fs
        round_floor = RoundFloor(fixed=read, context=2 * self.context_fs)
        attention = {"context": 2 * self.context_fs, "attended": 2 * self.attended_fs}
        lines = (
            StepLine(stage=read, round=read, **attention),
            StepLine(stage=fixed, round=fixed, prompt=token, request=token, **attention),
        )
        unit, times = 2 * FS_PER_NS, self.time_scale
        return Floor(stage, round_floor, unit, times, mixed="larger", lines=lines)

    def scaled(self, factor: int) -> Self:
        """Every duration multiplied by ``factor``, after its rounding."""
        return type(self)(**{**asdict(self), "time_scale": self.time_scale * factor})

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the five coefficients; ``time_scale`` may be left out."""
        return cls(**read_parameters(parameters, cls.model, COEFFICIENTS, ["time_scale"]))
