"""The linear cost model: stages, rounds and mixed steps, each linear in what is in it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from orsched.common.errors import InputError
from orsched.common.scalars import set_whole
from orsched.costs.affine import AffineCost
from orsched.costs.exact import (
    FS_PER_NS,
    MAX_COEFFICIENT_FS,
    round_half_up,
    round_half_up_sum,
)
from orsched.costs.floor import Floor, RoundFloor, StageFloor, StepLine
from orsched.costs.protocol import mixed_ns, read_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.costs.protocol import CostModel


COEFFICIENTS = (
    "stage_fixed_fs",
    "stage_token_fs",
    "attended_fs",
    "round_fixed_fs",
    "round_request_fs",
    "context_fs",
    "mixed_fixed_fs",
    "mixed_context_fs",
)


@dataclass(frozen=True, kw_only=True)
class LinearCost:
    """Stage ``s + t x + a A``, round ``r + q N + c C``, each with numbers of its own.

    x are the prompt tokens of a stage and A the tokens that they attend to (``RooflineCost``); N
    are the requests of a round and C the sum of their contexts. A step that does both takes
    ``max(s, r) + m + t x + q N + (c + d) C + a A``: one of the fixed parts, and what such steps
    take more, ``m`` alone and ``d`` a token of context. This is what workers are like whose stages,
    rounds and mixed steps run through different kernels; one with equal steps is a roofline.

    The coefficients are whole femtoseconds (1e-15 s) from 0 to 2**62 (else ``InputError``), in the
    order of the letters s, t, a, r, q, c, m, d. A step is rounded once, half up, to a nanosecond;
    ``time_scale`` multiplies the rounded duration, so that a scaled model keeps every schedule
    exactly.
    """

    stage_fixed_fs: int
    stage_token_fs: int
    attended_fs: int
    round_fixed_fs: int
    round_request_fs: int
    context_fs: int
    mixed_fixed_fs: int
    mixed_context_fs: int
    time_scale: int = 1

    model: ClassVar[str] = "linear"
    context_matters: ClassVar[bool] = True
    cached_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        set_whole(self, *COEFFICIENTS, maximum=MAX_COEFFICIENT_FS)
        set_whole(self, "time_scale", minimum=1)

    @property
    def prefill_limit(self) -> None:
        """No limit by the model."""
        return None

    def prefill_ns(self, prompts: Sequence[int], cached: Sequence[int] = ()) -> int:
        """Duration of a prefill stage, in ns; ``cached``: tokens before each prompt's (none: 0)."""
        return self._rounded(self.stage_fixed_fs + self._prompts_fs(prompts, cached))

    def round_ns(self, active: int, context_sum: int, context_max: int) -> int:
        """Duration of one decode round, in nanoseconds; the longest context plays no part."""
        return self._rounded(self.round_fixed_fs + self._round_fs(active, context_sum))

    def rounds_ns(self, rounds: int, active: int, context_sum: int, context_max: int) -> int:
        """Duration of a run of rounds, each rounded, in ns: linear as all contexts grow by one."""
        if rounds <= 0:
            return 0
        first = self.round_fixed_fs + self._round_fs(active, context_sum)
        slope = self.context_fs * active
        return round_half_up_sum(rounds, FS_PER_NS, slope, first) * self.time_scale

    def mixed_ns(
        self,
        prompts: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Duration of a step with prefill and round, or with only one of both, in ns."""
        if not active:
            return self.prefill_ns(prompts, cached)
        if not prompts:
            return self.round_ns(active, context_sum, context_max)
        fixed = max(self.stage_fixed_fs, self.round_fixed_fs) + self.mixed_fixed_fs
        parts = self._prompts_fs(prompts, cached) + self._round_fs(active, context_sum)
        return self._rounded(fixed + parts + self.mixed_context_fs * context_sum)

    def _prompts_fs(self, prompts: Sequence[int], cached: Sequence[int]) -> int:
        attended = attended_tokens(prompts, cached)
        return self.stage_token_fs * sum(prompts) + self.attended_fs * attended

    def _round_fs(self, active: int, context_sum: int) -> int:
        return self.round_request_fs * active + self.context_fs * context_sum

    def _rounded(self, time_fs: int) -> int:
        return round_half_up(time_fs, FS_PER_NS) * self.time_scale

    def floor(self) -> Floor:
        """Return what stages and rounds take, exactly; a mixed step has the larger fixed part.

        In units of half a femtosecond, in which ``attended c (c + 1) / 2`` is whole.
        """
        stage = StageFloor(
            fixed=2 * self.stage_fixed_fs,
            token=2 * self.stage_token_fs + self.attended_fs,
            square=self.attended_fs,
        )
        round_floor = RoundFloor(
            fixed=2 * self.round_fixed_fs,
            request=2 * self.round_request_fs,
            context=2 * self.context_fs,
        )
        line = StepLine(
            stage=stage.fixed,
            round=round_floor.fixed,
            prompt=2 * self.stage_token_fs,
            request=round_floor.request,
            context=round_floor.context,
            attended=2 * self.attended_fs,
        )
        unit, scale = 2 * FS_PER_NS, self.time_scale
        return Floor(stage, round_floor, unit, scale, mixed="larger", exact=True, lines=(line,))

    def scaled(self, factor: int) -> Self:
        """Every duration multiplied by ``factor``, after its rounding."""
        return type(self)(**{**asdict(self), "time_scale": self.time_scale * factor})

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the eight coefficients; ``time_scale`` may be left out."""
        return cls(**read_parameters(parameters, cls.model, COEFFICIENTS, ["time_scale"]))


def attended_tokens(prompts: Sequence[int], cached: Sequence[int] = ()) -> int:
    """Return how many tokens the tokens of chunks attend to, each itself and all before it.

    ``cached``: tokens of its prompt in the cache before each chunk; empty: none.
    """
    found = sum(tokens * (tokens + 1) // 2 for tokens in prompts)
    if not cached:
        return found
    if len(cached) != len(prompts):
        raise InputError(
            f"{len(cached)} values for {len(prompts)} prompts",
            field="cached",
            remedy="give one value for each prompt",
        )
    return found + sum(tokens * k for tokens, k in zip(prompts, cached, strict=True))


_FS_PER_NS = 1e6


def has_step_lines(cost: CostModel) -> bool:
    """Return whether ``step_lines`` are the model's own times, and not ones near to them."""
    return type(cost) in (AffineCost, LinearCost)


def step_lines(cost: CostModel, prompt: float, context: float, clients: int) -> list[float]:
    """Return the eight times of a model's lines, in nanoseconds; of others those near to it.

    They are of a stage: fixed, a token, a token pair that is attended; of a round: fixed, a
    request, a token of context; of a mixed step beyond both: fixed, a token of context. Without
    lines of its own a model gets those through a few steps around ``prompt`` and ``context``
    tokens, the larger round with half of the worker's clients.
    """
    if type(cost) is AffineCost:
        stage: list[float] = [cost.prefill_fixed_ns, cost.prefill_token_ns, 0.0]
        return [*stage, cost.round_fixed_ns, cost.round_client_ns, 0.0, 0.0, 0.0]
    if type(cost) is LinearCost:
        parts: list[Any] = [
            cost.stage_fixed_fs,
            cost.stage_token_fs,
            cost.attended_fs,
            cost.round_fixed_fs,
            cost.round_request_fs,
            cost.context_fs,
            cost.mixed_fixed_fs,
            cost.mixed_context_fs,
        ]
        return [part * cost.time_scale / _FS_PER_NS for part in parts]
    return _lines(cost, max(1, round(prompt)), max(1, round(context)), max(2, clients // 2))


def _lines(cost: CostModel, prompt: int, context: int, active: int) -> list[float]:
    """Return times from a stage of one prompt and of four, a round of one request and of many."""
    limit = cost.prefill_limit
    prompt = prompt if limit is None else max(1, min(prompt, limit // 4))
    one, four = cost.prefill_ns([prompt]), cost.prefill_ns([prompt] * 4)
    token = max(0.0, (four - one) / (3 * prompt))
    stage = max(0.0, one - token * prompt)
    few = cost.round_ns(1, context, context)
    many = cost.round_ns(active, active * context, context)
    request = max(0.0, (many - few) / (active - 1))
    round_ = max(1.0, few - request)
    both = mixed_ns(cost, [prompt], active, active * context, context)
    more = both - max(stage, round_) - token * prompt - request * active
    return [stage, token, 0.0, round_, request, 0.0, max(0.0, more), 0.0]
